//! Backtests of recorded runs: counts of parts as bytes, and the report of merged counts.

use super::backtest_report::BacktestReport;
use super::content::Given;
use super::run_files::read_skipped;
use crate::errors::{Exception, error};
use crate::json;
use crate::policy::Policy;
use endstop_trajectory::backtest::{
    Batch, Candidate, GroupBy, Plan, combine, tally, tally_content, tally_skipped,
};
use endstop_trajectory::read::{Outcomes, UnknownFormat, formats};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A backtest in parts: `tally` counts the runs of one part, in any process, and `merge` makes the
/// report of all counts. The report is the same for each division into parts and each order.
///
/// >>> test = endstop.Backtest("reference")
/// >>> parts = [test.tally(path) for path in ("runs/a.jsonl", "runs/b.jsonl")]
/// >>> test.merge(parts).runs
/// 80
#[pyclass(frozen, module = "endstop")]
pub(crate) struct Backtest {
    plan: Plan,
    max_harm: f64,
    /// The arguments, for pickling: policies, group_by, format, outcomes as text.
    arguments: Value,
}

#[pymethods]
impl Backtest {
    /// Prepares a backtest of `policies`: `"default"`, `"reference"`, `"grid"`, or a list of
    /// policies and of dicts with `name` and `limits` or `policy`.
    ///
    /// `calibrate` is the share of good tasks that a calibrated rule may stop, `group_by` the field
    /// of a run that names its kind of task, `max_harm` the share of good runs that a
    /// recommendation may stop. `outcomes` is a dict from run id to success or reward, a path to a
    /// file with them, or the bytes of one; they override those of the recordings.
    #[new]
    #[pyo3(signature = (policies = None, *, calibrate = None, group_by = "auto", max_harm = 0.01, format = None, outcomes = None))]
    #[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
    fn new(
        py: Python<'_>,
        policies: Option<&Bound<'_, PyAny>>,
        calibrate: Option<f64>,
        group_by: &str,
        max_harm: f64,
        format: Option<String>,
        outcomes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Backtest> {
        let config = |message: String| error(py, Exception::Config, message);
        let policies = policies.map_or(Ok(Value::from("default")), read_policies)?;
        let candidates = candidates(&policies).map_err(config)?;
        // Neither 0 nor 1: no rule keeps the one promise, and every rule keeps the other.
        if calibrate.is_some_and(|share| !(share > 0.0 && share < 1.0)) {
            return Err(config("invalid `calibrate`: expected a share between 0 and 1".to_owned()));
        }
        if !(0.0..=1.0).contains(&max_harm) {
            return Err(config("invalid `max_harm`: expected a share from 0 to 1".to_owned()));
        }
        let text = outcomes.map(outcomes_text).transpose()?;
        let mut plan = Plan::new(candidates);
        plan.alpha = calibrate;
        plan.group_by = GroupBy::parse(group_by);
        plan.options.format = known_format(py, format.as_deref())?;
        plan.outcomes = text
            .as_deref()
            .map(Outcomes::parse)
            .transpose()
            .map_err(|problem| config(format!("invalid `outcomes`: {problem}")))?;
        let arguments = json!({
            "policies": policies,
            "calibrate": calibrate,
            "group_by": group_by,
            "max_harm": max_harm,
            "format": format,
            "outcomes": text,
        });
        Ok(Backtest { plan, max_harm, arguments })
    }

    /// The names of the candidates.
    #[getter]
    fn candidates(&self) -> Vec<&str> {
        self.plan.candidates.iter().map(|one| one.name.as_str()).collect()
    }

    /// Counts the runs of a part: a path, bytes, or a file object that is open for reading bytes.
    ///
    /// `file` is the name of a part that is not a path, and helps to recognise its format.
    /// `dataset` names the dataset; by default it is the file's name. `folder` is the folder in
    /// which a path was found: a file that is obviously not a run is then skipped.
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
        let counted = given.read(py, |content| tally_content(content, dataset, &self.plan))?;
        let bytes = counted.map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Counts the entries of a folder that are not read; `skipped` is what `run_files` returned.
    fn tally_skipped<'py>(&self, py: Python<'py>, skipped: &str) -> PyResult<Bound<'py, PyBytes>> {
        let counted = tally_skipped(read_skipped(py, skipped)?.count(), &self.plan);
        let bytes = counted.map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
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
    fn merge(slf: &Bound<'_, Self>, parts: Vec<PyBackedBytes>) -> PyResult<BacktestReport> {
        let (py, this) = (slf.py(), slf.get());
        // The settings of this backtest come first, so that an empty list is an empty report.
        let own = tally(Batch { bytes: Vec::new(), file: "", dataset: None }, &this.plan)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        let merged = py.detach(|| {
            let parts = parts.iter().map(|part| &part[..]);
            combine(std::iter::once(&own[..]).chain(parts))
        });
        let counts = merged.map_err(|problem| error(py, Exception::Merge, problem.to_string()))?;
        BacktestReport::of(slf.as_any(), counts, &this.plan, this.max_harm)
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<((Bound<'py, PyAny>,), Bound<'py, PyDict>)> {
        let all = json::to_python(py, &self.arguments)?.cast_into::<PyDict>()?;
        let policies = all.as_any().get_item("policies")?;
        all.del_item("policies")?;
        // A string would be a path.
        if let Some(text) = self.arguments["outcomes"].as_str() {
            all.set_item("outcomes", PyBytes::new(py, text.as_bytes()))?;
        }
        Ok(((policies,), all))
    }

    fn __repr__(&self) -> String {
        format!("<endstop.Backtest of {} candidates>", self.plan.candidates.len())
    }
}

/// Checks the name of a format.
pub(crate) fn known_format(py: Python<'_>, format: Option<&str>) -> PyResult<Option<String>> {
    let Some(name) = format else { return Ok(None) };
    if formats().iter().all(|(known, _)| *known != name) {
        let unknown = UnknownFormat(name.to_owned());
        return Err(error(py, Exception::Config, format!("invalid `format`: {unknown}")));
    }
    Ok(Some(name.to_owned()))
}

/// Reads policies as JSON: the name of a set, or a list of specifications.
fn read_policies(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if given.is_instance_of::<PyString>() {
        return json::from_python(given, "policies");
    }
    if given.is_instance_of::<PyDict>() || given.is_instance_of::<Policy>() {
        let list = PyList::new(given.py(), [given])?;
        return read_policies(&list);
    }
    let mut list = Vec::new();
    for item in given.try_iter()? {
        let item = item?;
        let Ok(policy) = item.cast::<Policy>() else {
            list.push(json::from_python(&item, "policies")?);
            continue;
        };
        let specification: Value = json::from_python(&item.getattr("specification")?, "policies")?;
        // Parts are counted in other processes and without the interpreter lock, so that Python
        // code cannot be called.
        if specification.is_null() {
            let message = format!(
                "invalid `policies`: `{}` is Python code, which a backtest does not call; give \
                 built-in policies, limits, or rules",
                policy.getattr("name")?
            );
            return Err(error(given.py(), Exception::Config, message));
        }
        list.push(specification);
    }
    Ok(Value::from(list))
}

/// Builds the candidates of a set, or of a list of specifications.
fn candidates(policies: &Value) -> Result<Vec<Candidate>, String> {
    let wrong = |problem: endstop_core::PolicyError| format!("invalid `policies`: {problem}");
    let list = match policies {
        Value::String(set) => match set.as_str() {
            "default" => return Candidate::defaults().map_err(wrong),
            "reference" => return Candidate::reference().map_err(wrong),
            "grid" => return Candidate::grid().map_err(wrong),
            one => vec![Value::from(one)],
        },
        Value::Array(list) if !list.is_empty() => list.clone(),
        _ => {
            return Err("invalid `policies`: expected default, reference, grid, or a list of \
                        policies"
                .to_owned());
        }
    };
    let mut all: Vec<Candidate> = Vec::new();
    for item in list {
        let read = match &item {
            Value::String(text) => vec![Candidate::parse(text).map_err(wrong)?],
            item => Candidate::read(&Value::from(vec![item.clone()])).map_err(wrong)?,
        };
        for one in read {
            // Figures are found by the name of their candidate.
            if all.iter().any(|other| other.name == one.name) {
                return Err(format!(
                    "invalid `policies`: duplicate name `{}`; give a dict with another `name`",
                    one.name
                ));
            }
            all.push(one);
        }
    }
    Ok(all)
}

/// Returns outcomes as text: of a dict as JSON, of a path the content of the file.
fn outcomes_text(given: &Bound<'_, PyAny>) -> PyResult<String> {
    if given.is_instance_of::<PyDict>() {
        return Ok(json::dumps(given)?.to_cow()?.into_owned());
    }
    if let Ok(bytes) = given.cast::<PyBytes>() {
        return Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned());
    }
    // Python's own function, because it raises the errors that a user of Python knows.
    let path = given.py().import("pathlib")?.call_method1("Path", (given,))?;
    path.call_method0("read_text")?.extract()
}
