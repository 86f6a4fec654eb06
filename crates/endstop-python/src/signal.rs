//! The reason why a turn ended, and the error of a model call.

use crate::json;
use crate::members::{Enumeration, member};
use endstop_core::TerminationSignal;
use pyo3::prelude::*;

/// The reason why the model stopped its turn, with the provider's own value.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Signal(pub(crate) TerminationSignal);

#[pymethods]
impl Signal {
    /// The reason, a `SignalReason`.
    #[getter]
    fn reason<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::SignalReason, self.0.reason.as_str())
    }

    /// True if the turn ends the model's part: it asks for no tool and is not paused.
    #[getter]
    fn should_terminate(&self) -> bool {
        self.0.should_terminate
    }

    /// The confidence that the reason was read correctly, a `Confidence`.
    #[getter]
    fn confidence<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::Confidence, self.0.confidence.as_str())
    }

    /// Name of the field that the reason was read from, for example `finish_reason`.
    #[getter]
    fn original_field(&self) -> &str {
        &self.0.provider_specific.original_field
    }

    /// Raw value of that field; empty if it was missing.
    #[getter]
    fn original_value(&self) -> &str {
        &self.0.provider_specific.original_value
    }

    /// Other data of the provider about the end of the turn.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.provider_specific.metadata)
    }

    /// An explanation for a person, if there is one.
    #[getter]
    fn message(&self) -> Option<&str> {
        self.0.message.as_deref()
    }

    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    /// Reads what `to_dict` returned, as JSON text.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Signal> {
        json::from_json(py, text, "signal").map(Signal)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let make = py.get_type::<Signal>().getattr("_from_json")?;
        Ok((make, (json::to_json(py, &slf.get().0)?,)))
    }

    fn __repr__(&self) -> String {
        let TerminationSignal { reason, confidence, provider_specific, .. } = &self.0;
        let value = &provider_specific.original_value;
        format!("Signal({reason}, {}, original_value={value:?})", confidence.as_str())
    }
}

/// The error of a model call, or a response that is an error.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct ModelError(pub(crate) endstop_core::ModelError);

#[pymethods]
impl ModelError {
    /// Class of the error, an `ErrorClass`. (`class` is a keyword of Python.)
    #[getter]
    fn kind<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::ErrorClass, self.0.class.as_str())
    }

    /// The category, which determines what to do next.
    #[getter]
    fn category<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::Category, self.0.class.category().as_str())
    }

    /// HTTP status, if there was a response.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The provider's message, or Endstop's own. Contains no credential.
    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }

    /// Wait time in seconds that the provider asks for.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after_ms.map(|ms| ms as f64 / 1e3)
    }

    /// Returns the fields as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0)
    }

    /// Reads what `to_dict` returned, as JSON text.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<ModelError> {
        json::from_json(py, text, "error").map(ModelError)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let make = py.get_type::<ModelError>().getattr("_from_json")?;
        Ok((make, (json::to_json(py, &slf.get().0)?,)))
    }

    fn __repr__(&self) -> String {
        format!("ModelError({})", self.0)
    }
}
