//! The report of a backtest: as attributes, as JSON, as text and as the page of `endstop backtest`.

use super::content::Reduced;
use super::notebook;
use crate::errors::{Exception, error};
use crate::json;
use endstop_report::backtest::{Census, Report, Strength, json as to_json, lines, page, settings};
use endstop_trajectory::backtest::{Plan, merge};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The report of a backtest: first what a stop would have cost, then what it would have saved.
#[pyclass(frozen, module = "endstop")]
pub(crate) struct BacktestReport {
    report: Report,
    /// The merged counts, which can be merged with others again.
    counts: Vec<u8>,
    /// Makes the same report again, in another process.
    made_by: Py<PyAny>,
}

impl BacktestReport {
    /// Makes the report of merged counts.
    pub(crate) fn of(
        made_by: &Bound<'_, PyAny>,
        counts: Vec<u8>,
        plan: &Plan,
        max_harm: f64,
    ) -> PyResult<BacktestReport> {
        let py = made_by.py();
        let merged = py
            .detach(|| merge([&counts]))
            .map_err(|problem| error(py, Exception::Merge, problem.to_string()))?;
        let report = Report {
            candidates: plan.candidates.clone(),
            figures: merged.figures,
            census: Census::Parts(merged.reading),
            max_harm,
            alpha: plan.alpha,
            sweep: false,
            curves: Vec::new(),
            model: None,
        };
        Ok(BacktestReport { report, counts, made_by: made_by.clone().unbind() })
    }
}

#[pymethods]
impl BacktestReport {
    /// Number of runs that were read.
    #[getter]
    fn runs(&self) -> u64 {
        self.report.census.runs()
    }

    /// Number of runs with a recorded success or failure.
    #[getter]
    fn judged(&self) -> u64 {
        self.report.whole().map_or(0, |whole| whole.runs)
    }

    /// Names of the datasets with judged runs.
    #[getter]
    fn datasets(&self) -> Vec<&str> {
        let sets = &self.report.figures.datasets;
        // The last one of several is the sum.
        let several = sets.len().saturating_sub(usize::from(sets.len() > 1));
        sets.iter().take(several).map(|one| one.name.as_str()).collect()
    }

    /// Name of the recommended candidate; None if there is none.
    #[getter]
    fn recommended(&self) -> Option<&str> {
        self.report.recommended().map(|one| one.name.as_str())
    }

    /// `set` if the runs show that the recommended candidate stops few good runs, `try` if it only
    /// did so in these runs; None without a recommendation.
    #[getter]
    fn strength(&self) -> Option<&'static str> {
        self.report.strength().map(Strength::as_str)
    }

    /// Records that could not be read: by kind, a dict with `count` and `first`.
    #[getter]
    fn problems<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.report.census {
            Census::Parts(reading) => json::to_python(py, &reading.problems),
            Census::Files { .. } => json::to_python(py, &serde_json::Map::new()),
        }
    }

    /// The figures by dataset and candidate, as the member `figures` of `to_dict()`.
    #[getter]
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.report.figures)
    }

    /// The merged counts as bytes: `merge` takes them as a part, with those of further runs.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.counts)
    }

    /// Returns the report as `endstop backtest --json` prints it. `census` has those of its members
    /// that do not depend on the division into files.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &to_json(&self.report))
    }

    /// Returns the same as JSON text.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        json::to_json(py, &to_json(&self.report))
    }

    /// Returns the report as `endstop backtest --report` writes it: an HTML page.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| page(&self.report, &notebook::escaper()))
    }

    /// Returns the recommended or calibrated candidate as settings in TOML. `mode` states what a
    /// rule does when it fires: `observe`, `warn`, `nudge` or `stop`. `day` is today's date.
    #[pyo3(signature = (mode = "observe", *, day = ""))]
    fn to_toml(&self, py: Python<'_>, mode: &str, day: &str) -> PyResult<String> {
        let config = |message: String| error(py, Exception::Config, message);
        // By its JSON form, so that the names of the modes are listed in the kernel only.
        let mode = serde_json::from_value(mode.into()).map_err(|_| {
            config(format!("invalid `mode` `{mode}`: expected observe, warn, nudge or stop"))
        })?;
        settings(&self.report, mode, day).map_err(|nothing| config(nothing.to_string()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let merge = self.made_by.bind(py).getattr("merge")?;
        Ok((merge, (vec![self.counts(py)],)))
    }

    fn __str__(&self) -> String {
        lines(&self.report, false).join("\n")
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        notebook::framed(&self.to_html(py), 720)
    }

    fn __repr__(&self) -> String {
        let said = self.recommended().map_or_else(
            || "nothing recommended".to_owned(),
            |name| format!("{} {name}", self.strength().unwrap_or_default()),
        );
        format!("<endstop.BacktestReport: {} runs, {said}>", self.runs())
    }
}
