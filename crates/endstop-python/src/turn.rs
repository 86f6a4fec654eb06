//! A turn that a run accepted, with the calls that may run.

use crate::call::Call;
use crate::members::{Enumeration, member};
use crate::outcome::Outcome;
use crate::signal::{ModelError, Signal};
use crate::usage::Usage;
use endstop_core::{Termination, TerminationSignal, ToolCall};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A response that was fed to a run.
#[pyclass(frozen, module = "endstop")]
pub(crate) struct Turn {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) held_back: Vec<ToolCall>,
    pub(crate) signal: TerminationSignal,
    pub(crate) usage: endstop_core::Usage,
    pub(crate) error: Option<endstop_core::ModelError>,
    /// The ending of the run if its loop ends now.
    pub(crate) ending: Option<Termination>,
    pub(crate) outcome: Option<Outcome>,
}

#[pymethods]
impl Turn {
    /// The visible text.
    #[getter]
    fn text(&self) -> &str {
        &self.text
    }

    /// The calls that may run, and no others of the response: a cut call is never among them.
    /// Empty if the run has ended.
    #[getter]
    fn calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.calls.iter().map(|call| Call(call.clone())))
    }

    /// The calls of the response that must not run: it was cut, or their arguments are not a JSON
    /// object, or the run has ended. The kernel has answered them.
    #[getter]
    fn held_back<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.held_back.iter().map(|call| Call(call.clone())))
    }

    /// The reason why the model stopped.
    #[getter]
    fn signal(&self) -> Signal {
        Signal(self.signal.clone())
    }

    /// Token usage of the response.
    #[getter]
    fn usage(&self) -> Usage {
        Usage(self.usage.clone())
    }

    /// The error that the response is, or that ended it.
    #[getter]
    fn error(&self) -> Option<ModelError> {
        self.error.clone().map(ModelError)
    }

    /// The ending that the run has if its loop ends now; None while the model waits for its tools.
    /// An ending that is not a success, such as `error_output_truncated`, means that the response is
    /// not an answer; the loop may still continue from it.
    #[getter]
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let ended = self.outcome.as_ref().map(|outcome| outcome.0.termination);
        let ending = self.ending.or(ended);
        ending.map(|one| member(py, Enumeration::Termination, one.as_str())).transpose()
    }

    /// True if the run has ended: call neither the model nor a tool.
    #[getter]
    fn stopped(&self) -> bool {
        self.outcome.is_some()
    }

    /// The outcome, if the run has ended.
    #[getter]
    fn outcome(&self) -> Option<Outcome> {
        self.outcome.clone()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.calls.iter().map(|call| call.name.as_str()).collect();
        format!("Turn({}, calls={names:?}, stopped={})", self.signal.reason, self.stopped())
    }
}
