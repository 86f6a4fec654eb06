//! Limits by name, from the kernel's table.

use crate::errors::{Exception, error};
use crate::json;
use endstop_core::{GuestMode, Limits};
use endstop_guest::limits::{apply, defaults, names};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

/// Returns the capabilities that a run of a program may have.
fn guest() -> GuestMode {
    GuestMode { inject: true, waits: true, ..GuestMode::default() }
}

/// Returns the names of the limits that a run may have, with `inject=True` and `waits=True`. A duration also
/// has a name with the suffix `_ms`.
#[pyfunction]
pub(crate) fn limit_names() -> Vec<&'static str> {
    names(guest()).collect()
}

/// Returns the limits that apply if nothing is set, spelled as `Run(limits=…)` reads them.
#[pyfunction]
pub(crate) fn default_limits(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let mut limits = defaults();
    limits.retain(|name, _| names(guest()).any(|known| known == name));
    json::to_python(py, &limits)
}

/// Reads limits by name. A `datetime.timedelta` is a duration as well, and None switches a limit off.
/// A limit that has no effect on the guest is refused.
pub(crate) fn read_limits(
    py: Python<'_>,
    given: &[&Bound<'_, PyDict>],
    guest: GuestMode,
) -> PyResult<Limits> {
    let mut limits = Limits::default();
    apply(&mut limits, &limit_values(py, given)?, guest)
        .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
    Ok(limits)
}

/// Reads the values of limits. A name in several of the dicts is refused.
pub(crate) fn limit_values(
    py: Python<'_>,
    given: &[&Bound<'_, PyDict>],
) -> PyResult<Map<String, Value>> {
    let mut values = Map::new();
    for (name, value) in given.iter().flat_map(|given| given.iter()) {
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
        if values.contains_key(&name) {
            let message = format!("limit `{name}` is given twice: in `limits` and as a keyword");
            return Err(error(py, Exception::Config, message));
        }
        values.insert(name, value);
    }
    Ok(values)
}
