//! The synchronization primitives of `control`: the standard library's, or loom's in
//! the tests that explore every order of steps.
//!
//! ```text
//! let state = lock(&self.state);
//! ```

use std::time::Duration;

#[cfg(not(all(test, endstop_loom)))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::ThreadId,
};

#[cfg(all(test, endstop_loom))]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::ThreadId,
};

/// Locks, ignoring poison: a panic while the lock is held leaves no partial change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Waits for a notification, at most this long. loom's version never times out, so a notification
/// that is never sent shows up as a deadlock.
pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, limit).unwrap_or_else(std::sync::PoisonError::into_inner).0
}

/// Returns the id of the calling thread.
pub(crate) fn current_thread() -> ThreadId {
    #[cfg(not(all(test, endstop_loom)))]
    return std::thread::current().id();
    #[cfg(all(test, endstop_loom))]
    return loom::thread::current().id();
}
