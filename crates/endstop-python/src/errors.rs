//! The exceptions of the package, which `endstop/_errors.py` defines.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// An exception class of `endstop._errors`.
#[derive(Clone, Copy)]
pub(crate) enum Exception {
    /// An invalid limit, policy, price or argument.
    Config,
    /// A response in an unknown or ambiguous format.
    Format,
    /// An object that another call is using.
    Busy,
    /// Counts that cannot be merged.
    Merge,
}

static CLASSES: [PyOnceLock<Py<PyType>>; 4] = [const { PyOnceLock::new() }; 4];

/// Builds an exception with this message.
pub(crate) fn error(py: Python<'_>, kind: Exception, message: impl Into<String>) -> PyErr {
    let name = match kind {
        Exception::Config => "ConfigError",
        Exception::Format => "FormatError",
        Exception::Busy => "BusyError",
        Exception::Merge => "MergeError",
    };
    let class = CLASSES[kind as usize].import(py, "endstop._errors", name);
    match class {
        Ok(class) => PyErr::from_type(class.clone(), (message.into(),)),
        // While the interpreter shuts down, the module may be gone; then that is the exception.
        Err(missing) => missing,
    }
}
