//! The primitives that the ending and the control are made of: the standard library's, and loom's
//! where every order of their steps is gone through.
//!
//! ```text
//! let state = lock(&self.state);
//! ```

use std::time::Duration;

#[cfg(not(all(test, endstop_loom)))]
pub(super) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::ThreadId,
};

#[cfg(all(test, endstop_loom))]
pub(super) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::ThreadId,
};

/// Locks; whoever panicked while it held the lock had changed nothing by halves.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits for a notification, at most this long. loom's never times out: what waits for a
/// notification that does not come is a deadlock there.
pub(super) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, limit).unwrap_or_else(std::sync::PoisonError::into_inner).0
}

/// The thread that calls.
pub(super) fn current_thread() -> ThreadId {
    #[cfg(not(all(test, endstop_loom)))]
    return std::thread::current().id();
    #[cfg(all(test, endstop_loom))]
    return loom::thread::current().id();
}
