//! A value that one call at a time may use.
//!
//! A call takes the value out and puts it back when it ends, also after a panic. JavaScript that
//! runs in between, such as a policy, can call the same object: it finds the slot empty and gets an
//! error instead of a second reference to the value.

use crate::errors::{Code, Result};
use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Holds a value that calls borrow one at a time.
// Boxed, because a value of hundreds of bytes would be copied twice in each call.
pub(crate) struct Slot<T>(Cell<Option<Box<T>>>);

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Slot<T> {
        Slot(Cell::new(Some(Box::new(value))))
    }

    /// Takes the value for the length of a call. `what` names the object in the error.
    pub(crate) fn take(&self, what: &str) -> Result<Taken<'_, T>> {
        self.try_take().ok_or_else(|| {
            let message = format!(
                "this {what} is in use by another call; do not call it from its own policy"
            );
            napi::Error::new(Code::Busy, message)
        })
    }

    /// Takes the value, or returns `None` if another call has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        let value = self.0.take()?;
        Some(Taken { slot: self, value: Some(value) })
    }
}

/// A value that is lent to a call. Dropping it puts the value back.
pub(crate) struct Taken<'a, T> {
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
        self.slot.0.set(self.value.take());
    }
}
