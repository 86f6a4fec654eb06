//! A tool call of the model.

use crate::json;
use endstop_core::ToolCall;
use pyo3::prelude::*;
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
