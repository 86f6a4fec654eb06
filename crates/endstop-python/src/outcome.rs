//! The outcome of a run.

use crate::errors::{Exception, error};
use crate::json;
use crate::members::{Enumeration, member};
use crate::outcome_html::html;
use crate::usage::Usage;
use endstop_core::NanoUsd;
use pyo3::prelude::*;
use std::sync::Arc;

/// The ending of a run: one, typed, priced and explained.
///
/// Like any object it is true in a condition, so that `if run.outcome:` asks if the run has ended. A
/// truncated answer is an outcome as well: ask `outcome.is_success`.
#[pyclass(frozen, module = "endstop")]
#[derive(Clone)]
pub(crate) struct Outcome(pub(crate) Arc<endstop_core::Outcome>);

#[pymethods]
impl Outcome {
    /// The termination, a `Termination`.
    #[getter]
    fn termination<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::Termination, self.0.termination.as_str())
    }

    /// The category, which determines what to do next.
    #[getter]
    fn category<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::Category, self.0.category().as_str())
    }

    /// True if the run succeeded.
    #[getter]
    fn is_success(&self) -> bool {
        self.0.is_success()
    }

    /// The reason for the ending, for a person to read.
    #[getter]
    fn evidence(&self) -> &str {
        &self.0.decided_by.evidence
    }

    /// The check that ended the run: `layer`, `name` and `evidence`.
    #[getter]
    fn decided_by<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.decided_by)
    }

    /// Other terminations that also applied.
    #[getter]
    fn also<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.0.also.iter().map(|one| member(py, Enumeration::Termination, one.as_str())).collect()
    }

    /// The answer of a success: what was declared, else the visible part of the last text. None if the run is
    /// not a success; see `last_text`.
    #[getter]
    fn answer(&self) -> Option<String> {
        self.0.answer()
    }

    /// The last visible text that is not blank; partial if the response was cut.
    #[getter]
    fn last_text(&self) -> Option<&str> {
        self.0.last_text.as_deref()
    }

    /// The declared answer of a submitted run.
    #[getter]
    fn deliverable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.deliverable)
    }

    /// Number of responses that became part of the conversation.
    #[getter]
    fn turns(&self) -> u32 {
        self.0.turns
    }

    /// Number of attempts at model calls.
    #[getter]
    fn model_calls(&self) -> u32 {
        self.0.model_calls
    }

    /// Number of tool calls that were answered.
    #[getter]
    fn tool_calls(&self) -> u32 {
        self.0.tool_calls
    }

    /// Token usage of all attempts.
    #[getter]
    fn usage(&self) -> Usage {
        Usage(self.0.usage.clone())
    }

    /// Known cost in US dollars.
    #[getter]
    fn cost_usd(&self) -> f64 {
        self.0.cost.to_usd()
    }

    /// Upper bound on the cost in US dollars; None if no bound is known.
    #[getter]
    fn cost_upper_usd(&self) -> Option<f64> {
        self.0.cost_upper.map(NanoUsd::to_usd)
    }

    /// True if part of the cost is unknown. `cost_usd` is then a lower bound.
    #[getter]
    fn cost_unknown(&self) -> bool {
        self.0.cost_unknown
    }

    /// Seconds from start to end.
    #[getter]
    fn duration(&self) -> f64 {
        self.0.duration.as_secs_f64()
    }

    /// Wait time in seconds that the provider asked for, if that is why the run ended.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after.map(|time| time.as_secs_f64())
    }

    /// Details of a failure, for example the traceback of a policy.
    #[getter]
    fn error_diagnostic(&self) -> Option<&str> {
        self.0.error_diagnostic.as_deref()
    }

    /// The proof of a run that made no progress: its repeated calls and results.
    #[getter]
    fn no_progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.no_progress_snapshot)
    }

    /// The conversation, valid for providers, in the kernel's JSON form.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.messages)
    }

    /// Exit status for a process whose run ended so: 0 success, 10 retryable, 20 capacity, 30
    /// fatal, 130 cancelled, 143 terminated.
    #[getter]
    fn exit_status(&self) -> u8 {
        self.0.exit_status()
    }

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
        if slf.get().is_success() {
            return Ok(slf);
        }
        let class = slf.py().import("endstop._errors")?.getattr("Unsuccessful")?;
        Err(PyErr::from_value(class.call1((slf,))?))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let make = py.get_type::<Outcome>().getattr("from_json")?;
        Ok((make, (slf.get().to_json(py)?,)))
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
}

impl Outcome {
    /// The error for a run that has not ended.
    pub(crate) fn missing(py: Python<'_>) -> PyErr {
        error(py, Exception::Config, "the run has not ended, so it has no outcome; call close()")
    }
}
