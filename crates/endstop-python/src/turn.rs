//! A turn that a run accepted, with the calls that may run.

use crate::call::Call;
use crate::json;
use crate::members::{Enumeration, member};
use crate::outcome::Outcome;
use crate::signal::{ModelError, Signal};
use crate::usage::Usage;
use endstop_core::{Termination, TerminationSignal, ToolCall};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A response that was fed to a run.
#[pyclass(frozen, module = "endstop")]
pub(crate) struct Turn(pub(crate) endstop_guest::run_state::Turn);

/// The JSON form of a turn.
#[derive(Serialize, Deserialize)]
struct Stored {
    text: String,
    calls: Vec<ToolCall>,
    held_back: Vec<ToolCall>,
    signal: TerminationSignal,
    usage: endstop_core::Usage,
    error: Option<endstop_core::ModelError>,
    ending: Option<Termination>,
    outcome: Option<Arc<endstop_core::Outcome>>,
}

impl Stored {
    fn of(turn: &endstop_guest::run_state::Turn) -> Stored {
        let calls = |calls: &[Arc<ToolCall>]| calls.iter().map(|call| (**call).clone()).collect();
        Stored {
            text: turn.text.clone(),
            calls: calls(&turn.calls),
            held_back: calls(&turn.held_back),
            signal: turn.signal.clone(),
            usage: turn.usage.clone(),
            error: turn.error.clone(),
            ending: turn.ending,
            outcome: turn.outcome.clone(),
        }
    }
}

impl From<Stored> for endstop_guest::run_state::Turn {
    fn from(stored: Stored) -> Self {
        let Stored { text, calls, held_back, signal, usage, error, ending, outcome } = stored;
        let shared = |calls: Vec<ToolCall>| calls.into_iter().map(Arc::new).collect();
        let (calls, held_back) = (shared(calls), shared(held_back));
        Self { text, calls, held_back, signal, usage, error, ending, outcome }
    }
}

#[pymethods]
impl Turn {
    /// The visible text.
    #[getter]
    fn text(&self) -> &str {
        &self.0.text
    }

    /// The calls that may run, and no others of the response: a cut call is never among them.
    /// Empty if the run has ended.
    #[getter]
    fn calls<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.calls.iter().map(|call| Call(call.clone())))
    }

    /// The calls of the response that must not run: it was cut, or their arguments are not a JSON
    /// object, or the run has ended. The kernel has answered them.
    #[getter]
    fn held_back<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.held_back.iter().map(|call| Call(call.clone())))
    }

    /// The reason why the model stopped.
    #[getter]
    fn signal(&self) -> Signal {
        Signal(self.0.signal.clone())
    }

    /// Token usage of the response.
    #[getter]
    fn usage(&self) -> Usage {
        Usage(self.0.usage.clone())
    }

    /// The error that the response is, or that ended it.
    #[getter]
    fn error(&self) -> Option<ModelError> {
        self.0.error.clone().map(ModelError)
    }

    /// The ending that the run has if its loop ends now; None while the model waits for its tools.
    /// An ending that is not a success, such as `error_output_truncated`, means that the response is
    /// not an answer; the loop may still continue from it.
    #[getter]
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // After the end of the run, its ending is also that of the turn.
        let ending = self.0.ending_or_end();
        ending.map(|one| member(py, Enumeration::Termination, one.as_str())).transpose()
    }

    /// True if the run has ended: call neither the model nor a tool.
    #[getter]
    fn stopped(&self) -> bool {
        self.0.outcome.is_some()
    }

    /// The outcome, if the run has ended.
    #[getter]
    fn outcome(&self) -> Option<Outcome> {
        self.0.outcome.clone().map(Outcome)
    }

    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &Stored::of(&self.0))
    }

    /// Reads what pickling wrote.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Turn> {
        json::from_json::<Stored>(py, text, "turn").map(|stored| Turn(stored.into()))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let make = py.get_type::<Turn>().getattr("_from_json")?;
        Ok((make, (json::to_json(py, &Stored::of(&slf.get().0))?,)))
    }

    /// Turns are equal if their JSON is, as outcomes are.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, Turn>) -> PyResult<bool> {
        let json = |turn: &Turn| json::to_json(py, &Stored::of(&turn.0));
        Ok(json(self)? == json(other.get())?)
    }

    /// A turn has no hash, because it contains lists.
    #[classattr]
    const __hash__: Option<Py<PyAny>> = None;

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.0.calls.iter().map(|call| call.name.as_str()).collect();
        format!("Turn({}, calls={names:?}, stopped={})", self.0.signal.reason, self.stopped())
    }
}
