//! Members of the string enumerations of `endstop._enums`, looked up once each.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// An enumeration of `endstop._enums`.
#[derive(Clone, Copy)]
pub(crate) enum Enumeration {
    Termination,
    Category,
    SignalReason,
    Confidence,
    ErrorClass,
}

/// The members of each enumeration by value.
static MEMBERS: [PyOnceLock<Py<PyDict>>; 5] = [const { PyOnceLock::new() }; 5];

/// Returns the member of an enumeration for a name of the kernel.
pub(crate) fn member<'py>(
    py: Python<'py>,
    of: Enumeration,
    value: &'static str,
) -> PyResult<Bound<'py, PyAny>> {
    let name = match of {
        Enumeration::Termination => "Termination",
        Enumeration::Category => "Category",
        Enumeration::SignalReason => "SignalReason",
        Enumeration::Confidence => "Confidence",
        Enumeration::ErrorClass => "ErrorClass",
    };
    let by_value = MEMBERS[of as usize].get_or_try_init(py, || {
        let class = py.import("endstop._enums")?.getattr(name)?;
        // Python's own table of the members, so that the class is called for none of them.
        let by_value = class.getattr("_value2member_map_")?.cast_into::<PyDict>()?;
        PyResult::Ok(by_value.unbind())
    })?;
    by_value.bind(py).as_any().get_item(value)
}

/// Returns the values of all enumerations as the kernel spells them, by name of the enumeration. A
/// test compares `endstop._enums` with them.
#[pyfunction]
pub(crate) fn members() -> Vec<(&'static str, Vec<&'static str>)> {
    endstop_guest::choice::members()
}
