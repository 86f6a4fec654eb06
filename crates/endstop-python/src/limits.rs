//! Limits by name, from the kernel's table.

use crate::errors::{Exception, error};
use crate::json;
use endstop_core::{GuestMode, Limits};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

/// Returns the names of all limits. A duration also has a name with the suffix `_ms`.
#[pyfunction]
pub(crate) fn limit_names() -> Vec<&'static str> {
    Limits::NAMES.to_vec()
}

/// Returns the limits that apply if nothing is set, spelled as `Run(limits=…)` reads them.
#[pyfunction]
pub(crate) fn default_limits(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let limits = Limits::default();
    let values = Limits::NAMES.iter().map(|name| ((*name).to_owned(), limits.get(name)));
    let values: serde_json::Map<String, Value> =
        values.map(|(name, value)| (name, value.unwrap_or_default())).collect();
    json::to_python(py, &values)
}

/// Reads limits by name. A `datetime.timedelta` is a duration as well, and None switches a limit off.
/// A limit that has no effect on the guest is refused.
pub(crate) fn read_limits(given: Option<&Bound<'_, PyDict>>, guest: GuestMode) -> PyResult<Limits> {
    let mut limits = Limits::default();
    let Some(given) = given else { return Ok(limits) };
    let py = given.py();
    for (name, value) in given {
        let name: String = name
            .extract()
            .map_err(|_| error(py, Exception::Config, "the names of limits must be strings"))?;
        let value = match value.getattr_opt("total_seconds")? {
            // Milliseconds as text, because limits have no fractions of a second as numbers.
            Some(seconds) => {
                let seconds: f64 = seconds.call0()?.extract()?;
                Value::from(format!("{}ms", seconds * 1e3))
            }
            None => json::from_python(&value, &name)?,
        };
        // By name through the kernel's table, so that a new limit needs no line here.
        limits
            .set(&name, &value)
            .and_then(|()| guest.check(&limits))
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
    }
    Ok(limits)
}
