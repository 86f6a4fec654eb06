//! The outcome of a run.

use crate::errors::{Exception, error};
use crate::fields::{class, shown};
use crate::html::html;
use crate::json;
use endstop_guest::outcome_fields;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use std::sync::Arc;

/// The ending of a run: one, typed, priced and explained.
///
/// Like any object it is true in a condition, so that `if run.outcome:` asks if the run has ended. A
/// truncated answer is an outcome as well: ask `outcome.is_success`.
#[pyclass(frozen, module = "endstop")]
#[derive(Clone)]
pub(crate) struct Outcome(pub(crate) Arc<endstop_core::Outcome>);

outcome_fields! { class Outcome, "outcome", {
    /// Returns the fields as a dict, the same as the last line of `endstop run --json`. A function for
    /// values that the `json` module does not know: `json.dumps(row, default=endstop.Outcome.to_dict)`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &*self.0)
    }

    /// Returns the fields as JSON.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        json::to_json(py, &*self.0)
    }

    /// Reads what `to_json` wrote, also in another process or by an earlier version.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Outcome> {
        json::from_json(py, text, "outcome").map(|outcome| Outcome(Arc::new(outcome)))
    }

    /// Returns the outcome if it is a success, and raises `Unsuccessful` otherwise.
    fn check(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if slf.get().0.is_success() {
            return Ok(slf);
        }
        let class = slf.py().import("endstop._errors")?.getattr("Unsuccessful")?;
        Err(PyErr::from_value(class.call1((slf,))?))
    }

    /// Outcomes are equal if their JSON is, so that a pickled outcome equals the original.
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, Outcome>) -> PyResult<bool> {
        let same = Arc::ptr_eq(&self.0, &other.get().0);
        Ok(same || self.to_json(py)? == other.get().to_json(py)?)
    }

    fn __str__(&self) -> String {
        let outcome = &self.0;
        format!("{}: {}", outcome.termination, outcome.decided_by.evidence)
    }

    fn __repr__(&self) -> String {
        let outcome = &self.0;
        let (category, evidence) = (outcome.category(), &outcome.decided_by.evidence);
        let (turns, cost) = (outcome.turns, outcome.cost);
        format!("<Outcome {} ({category}), {turns} turns, {cost}: {evidence}>", outcome.termination)
    }

    /// Returns a table for a notebook. Everything that a model or a server wrote is escaped.
    fn _repr_html_(&self) -> String {
        html(&self.0)
    }

    /// An outcome of the kernel has no hash, because it contains lists.
    #[classattr]
    const __hash__: Option<Py<PyAny>> = None;
} }

impl Outcome {
    /// The error for a run that has not ended.
    pub(crate) fn missing(py: Python<'_>) -> PyErr {
        error(py, Exception::Config, "the run has not ended, so it has no outcome; call close()")
    }
}

shown! { py, value:
    &Arc<endstop_core::Outcome> => Outcome(Arc::clone(value)).into_bound_py_any(py);
}
