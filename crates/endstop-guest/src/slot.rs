//! A value that one call at a time may use, without a lock that stays held.
//!
//! A call takes the value out and puts it back when it ends, also after a panic. Code of the guest
//! that runs in between, such as a policy, can call the same object: it finds the slot empty and gets
//! an error instead of a deadlock. The same holds for a second thread, and for the child of a fork.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Holds a value that calls borrow one at a time.
// Boxed, because a value of hundreds of bytes would be copied twice in each call.
pub struct Slot<T>(Mutex<Option<Box<T>>>);

impl<T> Slot<T> {
    /// Creates a slot with this value.
    pub fn new(value: T) -> Slot<T> {
        Slot(Mutex::new(Some(Box::new(value))))
    }

    /// Takes the value for the length of a call, or returns `None` if another call has it.
    pub fn take(&self) -> Option<Taken<'_, T>> {
        let mut place = match self.0.try_lock() {
            Ok(place) => place,
            // The lock guards the move of a pointer, which no panic can leave half done.
            Err(TryLockError::Poisoned(place)) => place.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let value = place.take()?;
        Some(Taken { slot: self, value: Some(value) })
    }
}

/// A value that is lent to a call. Dropping it puts the value back.
pub struct Taken<'a, T> {
    slot: &'a Slot<T>,
    /// Empty only while the value is put back.
    value: Option<Box<T>>,
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("the value is put back only when it is dropped"),
        }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("the value is put back only when it is dropped"),
        }
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        // The lock is held for a few instructions only, and never while code of the guest runs.
        let mut place = self.slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        *place = self.value.take();
    }
}
