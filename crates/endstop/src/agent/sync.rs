//! The primitives that the ending and the control are made of: the standard library's, and loom's
//! where every order of their steps is gone through.
//!
//! ```text
//! let state = lock(&self.state);
//! ```

#[cfg(not(all(test, endstop_loom)))]
pub(super) use std::sync::{Arc, Mutex, MutexGuard};

#[cfg(all(test, endstop_loom))]
pub(super) use loom::sync::{Arc, Mutex, MutexGuard};

/// Locks; whoever panicked while it held the lock had changed nothing by halves.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
