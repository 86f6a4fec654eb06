//! A value that one call at a time may use, with the error of this package if it is in use.

use crate::errors::{Code, Result};
use endstop_guest::slot::Taken;

/// Holds a value that calls borrow one at a time.
pub(crate) struct Slot<T>(endstop_guest::slot::Slot<T>);

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Slot<T> {
        Slot(endstop_guest::slot::Slot::new(value))
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
        self.0.take()
    }
}
