//! Audits of recorded sessions: counts of parts as bytes, and the report of merged counts.

use super::backtest::known_format;
use super::content::{Given, Reduced};
use super::notebook;
use super::run_files::read_skipped;
use crate::errors::{Exception, error};
use crate::json;
use endstop_report::audit::{Report, json as to_json, lines, page};
use endstop_trajectory::audit::{Plan, combine, merge, no_sessions, tally, tally_skipped, time_ms};
use endstop_trajectory::backtest::Examples;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;

/// An audit in parts: `tally` looks at the sessions of one part, in any process, and `merge` makes
/// the report of all counts. The report is the same for each division into parts and each order.
///
/// >>> audit = endstop.Audit()
/// >>> paths = ("runs/a.jsonl", "runs/b.jsonl")
/// >>> audit.merge([audit.tally(path) for path in paths]).sessions
/// 80
#[pyclass(frozen, module = "endstop")]
pub(crate) struct Audit {
    plan: Plan,
    since: Option<String>,
}

#[pymethods]
impl Audit {
    /// Prepares an audit that lists the `top` worst sessions. Sessions that ended before `since`
    /// (a date or a time, as text) are left out.
    #[new]
    #[pyo3(signature = (*, top = 10, since = None, format = None))]
    fn new(
        py: Python<'_>,
        top: usize,
        since: Option<String>,
        format: Option<&str>,
    ) -> PyResult<Audit> {
        let mut plan = Plan::new(top);
        plan.options.format = known_format(py, format)?;
        if let Some(text) = &since {
            let wrong = || {
                format!("invalid `since` `{text}`: expected a day or a time, such as 2026-11-21")
            };
            // Read now, because a wrong time should fail here and not in a worker process.
            let time = time_ms(text).ok_or_else(|| error(py, Exception::Config, wrong()))?;
            plan.since_ms = Some(time);
        }
        Ok(Audit { plan, since })
    }

    /// Counts the sessions of a part: a path, bytes, or a file object that is open for reading
    /// bytes.
    ///
    /// `file` is the name of a part that is not a path, and helps to recognise its format.
    /// `dataset` is the place of the sessions in the report, instead of their file and line.
    /// `folder` is the folder in which a path was found.
    #[pyo3(signature = (part, *, file = "runs.jsonl", dataset = None, folder = None))]
    fn tally<'py>(
        &self,
        py: Python<'py>,
        part: &Bound<'py, PyAny>,
        file: &str,
        dataset: Option<&str>,
        folder: Option<PathBuf>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let given = Given::of(part, file, folder)?;
        let bytes = given.read(py, |content| tally(content, dataset, &self.plan))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Counts the entries of a folder that are not read; `skipped` is what `run_files` returned.
    fn tally_skipped<'py>(&self, py: Python<'py>, skipped: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &tally_skipped(read_skipped(py, skipped)?, &self.plan)))
    }

    /// Merges counts into counts, so that an engine can merge some parts while others are counted.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
    fn combine(py: Python<'_>, parts: Vec<PyBackedBytes>) -> PyResult<Bound<'_, PyBytes>> {
        let merged = py.detach(|| combine(&parts));
        let bytes = merged.map_err(|problem| error(py, Exception::Merge, problem.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Makes the report of counts, in any order. Counts of another version or with other settings
    /// are a `MergeError`.
    #[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
    fn merge(slf: &Bound<'_, Self>, parts: Vec<PyBackedBytes>) -> PyResult<AuditReport> {
        let (py, plan) = (slf.py(), &slf.get().plan);
        // The settings of this audit come first, so that an empty list is an empty report.
        let merged = py.detach(|| {
            let own = no_sessions(plan);
            let parts = parts.iter().map(|part| &part[..]);
            combine(std::iter::once(&own[..]).chain(parts))
        });
        let counts = merged.map_err(|problem| error(py, Exception::Merge, problem.to_string()))?;
        AuditReport::of(slf, counts)
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((), Bound<'py, PyDict>)> {
        let options = PyDict::new(py);
        options.set_item("top", self.plan.top)?;
        options.set_item("since", self.since.as_deref())?;
        options.set_item("format", self.plan.options.format.as_deref())?;
        Ok(((), options))
    }

    fn __repr__(&self) -> String {
        format!("<endstop.Audit of the {} worst sessions>", self.plan.top)
    }
}

/// The report of an audit: how sessions ended, what their loops cost, and what limits would have
/// saved.
#[pyclass(frozen, module = "endstop")]
pub(crate) struct AuditReport {
    report: Report,
    counts: Vec<u8>,
    /// Makes the same report again, in another process.
    made_by: Py<Audit>,
}

impl AuditReport {
    fn of(made_by: &Bound<'_, Audit>, counts: Vec<u8>) -> PyResult<AuditReport> {
        let py = made_by.py();
        let merged = py
            .detach(|| merge([&counts]))
            .map_err(|problem| error(py, Exception::Merge, problem.to_string()))?;
        Ok(AuditReport { report: Report::of(merged), counts, made_by: made_by.clone().unbind() })
    }
}

fn by_kind<'py>(py: Python<'py>, all: &[(String, Examples)]) -> PyResult<Bound<'py, PyAny>> {
    let kinds = all.iter().map(|(kind, one)| (kind.clone(), serde_json::json!(one)));
    json::to_python(py, &kinds.collect::<serde_json::Map<_, _>>())
}

#[pymethods]
impl AuditReport {
    /// Number of sessions.
    #[getter]
    fn sessions(&self) -> u64 {
        self.report.audit.sessions
    }

    /// Number of sessions without an answer, with a loop, or with a contradicted claim.
    #[getter]
    fn wrong(&self) -> u64 {
        self.report.audit.wrong
    }

    /// US dollars of all sessions, as recorded or by the price list.
    #[getter]
    fn usd(&self) -> f64 {
        self.report.audit.spent.usd.to_usd()
    }

    /// US dollars of the part that is in question.
    #[getter]
    fn in_question_usd(&self) -> f64 {
        self.report.audit.in_question.usd.to_usd()
    }

    /// Number of sessions by ending: `answered`, `no_answer`, `limit`, …
    #[getter]
    fn ended<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ended = self.report.audit.ended.iter();
        let counts: serde_json::Map<String, serde_json::Value> =
            ended.map(|(how, group)| (how.as_str().to_owned(), group.sessions.into())).collect();
        json::to_python(py, &counts)
    }

    /// The worst sessions, as dicts.
    #[getter]
    fn worst<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.report.audit.worst)
    }

    /// Records that could not be read: by kind, a dict with `count` and `first`.
    #[getter]
    fn problems<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        by_kind(py, &self.report.problems)
    }

    /// Notes of the readers about sessions, such as failed calls: by kind, a dict with `count` and
    /// `first`.
    #[getter]
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        by_kind(py, &self.report.notes)
    }

    /// Files and folders that are not sessions: by reason, a dict with `count` and `first`.
    #[getter]
    fn skipped_for<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        by_kind(py, &self.report.skipped_for)
    }

    /// The merged counts as bytes: `merge` takes them as a part, with those of further sessions.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.counts)
    }

    /// Returns the report as `endstop audit --json` prints it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &to_json(&self.report))
    }

    /// Returns the same as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        json::to_json(py, &to_json(&self.report))
    }

    /// Returns the report as `endstop audit --report` writes it: an HTML page.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| page(&self.report, &notebook::escaper()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let merge = self.made_by.bind(py).getattr("merge")?;
        Ok((merge, (vec![self.counts(py)],)))
    }

    fn __str__(&self) -> String {
        lines(&self.report).join("\n")
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        notebook::framed(&self.to_html(py), 720)
    }

    fn __repr__(&self) -> String {
        let (sessions, wrong) = (self.sessions(), self.wrong());
        format!("<endstop.AuditReport: {sessions} sessions, {wrong} with problems>")
    }
}
