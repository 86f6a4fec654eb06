//! A value that one call at a time may use, with the exception of this package if it is in use.

pub(crate) use endstop_guest::slot::Taken;

use crate::errors::{Exception, error};
use pyo3::prelude::*;

/// Holds a value that calls borrow one at a time.
pub(crate) struct Slot<T>(endstop_guest::slot::Slot<T>);

impl<T> Slot<T> {
    pub(crate) fn new(value: T) -> Slot<T> {
        Slot(endstop_guest::slot::Slot::new(value))
    }

    /// Takes the value for the length of a call. `what` names the object in the error.
    pub(crate) fn take(&self, py: Python<'_>, what: &str) -> PyResult<Taken<'_, T>> {
        self.try_take().ok_or_else(|| {
            let message = format!(
                "this {what} is in use by another call; use it from one thread at a time, and do \
                 not call it from its own policy"
            );
            error(py, Exception::Busy, message)
        })
    }

    /// Takes the value, or returns `None` if another call has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        self.0.take()
    }
}
