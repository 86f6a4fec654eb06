//! A response: its calls, its usage, the reason why it ended, and the turn of a run that it is.

use crate::fields::{Field, class, shown};
use crate::json;
use endstop_core::{TerminationSignal, ToolCall};
use endstop_guest::{model_error_fields, signal_fields, turn_fields, usage_fields};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// A tool call that the model requested.
#[pyclass(frozen, eq, hash, module = "endstop")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Call(pub(crate) Arc<ToolCall>);

impl Call {
    pub(crate) fn of(call: ToolCall) -> Call {
        Call(Arc::new(call))
    }
}

#[pymethods]
impl Call {
    #[new]
    fn new(id: String, name: String, arguments: String) -> Call {
        Call::of(ToolCall { id, name, arguments })
    }

    /// The provider's id of the call.
    #[getter]
    fn id(&self) -> &str {
        &self.0.id
    }

    /// Name of the tool.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The arguments as the model wrote them: JSON text.
    #[getter]
    fn arguments(&self) -> &str {
        &self.0.arguments
    }

    /// The arguments, parsed. Blank arguments are an empty dict.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = self.0.arguments.trim();
        json::loads(py, if text.is_empty() { "{}" } else { text })
    }

    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &*self.0)
    }

    fn __getnewargs__(&self) -> (&str, &str, &str) {
        (&self.0.id, &self.0.name, &self.0.arguments)
    }

    fn __repr__(&self) -> String {
        let ToolCall { id, name, arguments } = &*self.0;
        format!("Call(id={id:?}, name={name:?}, arguments={arguments:?})")
    }
}

/// Token usage of a response or of a run. None stands for a count that was not reported.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Usage(pub(crate) endstop_core::Usage);

usage_fields! { class Usage, "usage", {
    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    fn __repr__(&self) -> String {
        let count = |tokens: Option<u64>| tokens.map_or("None".to_owned(), |n| n.to_string());
        let (input, output) = (count(self.0.input_tokens), count(self.0.output_tokens));
        format!("Usage(input_tokens={input}, output_tokens={output})")
    }
} }

/// The reason why the model stopped its turn, with the provider's own value.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Signal(pub(crate) TerminationSignal);

signal_fields! { class Signal, "signal", {
    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    fn __repr__(&self) -> String {
        let TerminationSignal { reason, confidence, provider_specific, .. } = &self.0;
        let value = &provider_specific.original_value;
        format!("Signal({reason}, {}, original_value={value:?})", confidence.as_str())
    }
} }

/// The error of a model call, or a response that is an error.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct ModelError(pub(crate) endstop_core::ModelError);

model_error_fields! { class ModelError, "error", {
    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    fn __repr__(&self) -> String {
        format!("ModelError({})", self.0)
    }
} }

/// A response that was fed to a run.
#[pyclass(frozen, module = "endstop")]
pub(crate) struct Turn(pub(crate) endstop_guest::run_state::Turn);

turn_fields! { class Turn, "turn", {
    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    /// Turns are equal if their JSON is, as outcomes are.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, Turn>) -> PyResult<bool> {
        let json = |turn: &Turn| json::to_json(py, &turn.0);
        Ok(json(self)? == json(other.get())?)
    }

    /// A turn has no hash, because it contains lists.
    #[classattr]
    const __hash__: Option<Py<PyAny>> = None;

    fn __repr__(&self) -> String {
        let endstop_guest::run_state::Turn { calls, signal, outcome, .. } = &self.0;
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        format!("Turn({}, calls={names:?}, stopped={})", signal.reason, outcome.is_some())
    }
} }

shown! { py, value:
    &endstop_core::Usage => Usage(value.clone()).into_bound_py_any(py);
    &TerminationSignal => Signal(value.clone()).into_bound_py_any(py);
    &endstop_core::ModelError => ModelError(value.clone()).into_bound_py_any(py);
}

impl<'py> Field<'py> for Vec<ToolCall> {
    fn show(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.into_iter().map(Call::of).collect::<Vec<_>>().into_bound_py_any(py)
    }
}

impl<'py> Field<'py> for &[Arc<ToolCall>] {
    fn show(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, self.iter().map(|call| Call(Arc::clone(call))))?.into_any())
    }
}
