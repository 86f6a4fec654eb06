//! The getters of classes, from the lists of fields that all bindings share, and the members of the string
//! enumerations of `endstop._enums`.

use crate::json;
use endstop_core::{
    Category, Confidence, DecidedBy, ErrorClass, Message, NanoUsd, NoProgressSnapshot,
    SignalReason, Termination,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use serde_json::{Map, Value};
use std::time::Duration;

/// Gives a class its getters, the methods for pickling, and the methods that follow. The class has one
/// field, which is pickled as its JSON.
macro_rules! class {
    (
        $class:ident, $what:literal, { $($methods:tt)* }
        $value:ident; $($(#[doc = $doc:tt])* ($($kind:tt)+) $name:ident = $get:expr;)*
    ) => {
        #[pymethods]
        impl $class {
            $(
                $(#[doc = $doc])*
                #[getter]
                fn $name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                    let $value = &self.0;
                    crate::fields::Field::show($get, py)
                }
            )*

            /// Reads what pickling wrote.
            #[staticmethod]
            fn _from_json(py: Python<'_>, text: &str) -> PyResult<$class> {
                crate::json::from_json(py, text, $what).map($class)
            }

            fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
                let py = slf.py();
                let make = py.get_type::<$class>().getattr("_from_json")?;
                Ok((make, (crate::json::to_json(py, &slf.get().0)?,)))
            }

            $($methods)*
        }
    };
}
pub(crate) use class;

/// A value as a program reads it.
pub(crate) trait Field<'py> {
    /// Returns the object of Python.
    fn show(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

/// Implements [`Field`] for types, each with an expression.
macro_rules! shown {
    ($py:ident, $value:ident: $($kind:ty => $show:expr;)*) => {
        $(impl<'py> crate::fields::Field<'py> for $kind {
            fn show(self, $py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let $value = self;
                $show
            }
        })*
    };
}

pub(crate) use shown;

shown! { py, value:
    bool => value.into_bound_py_any(py);
    u16 => value.into_bound_py_any(py);
    u32 => value.into_bound_py_any(py);
    u64 => value.into_bound_py_any(py);
    &str => value.into_bound_py_any(py);
    String => value.into_bound_py_any(py);
    NanoUsd => value.to_usd().into_bound_py_any(py);
    Duration => value.as_secs_f64().into_bound_py_any(py);
    Termination => member(py, Enumeration::Termination, value.as_str());
    Category => member(py, Enumeration::Category, value.as_str());
    SignalReason => member(py, Enumeration::SignalReason, value.as_str());
    Confidence => member(py, Enumeration::Confidence, value.as_str());
    ErrorClass => member(py, Enumeration::ErrorClass, value.as_str());
    &DecidedBy => json::to_python(py, value);
    &NoProgressSnapshot => json::to_python(py, value);
    &[Message] => json::to_python(py, &value);
    &Map<String, Value> => json::to_python(py, value);
    &Value => json::to_python(py, value);
    Value => json::to_python(py, &value);
}

impl<'py, T: Field<'py>> Field<'py> for Option<T> {
    fn show(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.map_or_else(|| Ok(py.None().into_bound(py)), |value| value.show(py))
    }
}

impl<'py> Field<'py> for &[Termination] {
    fn show(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let members = self.iter().map(|one| one.show(py)).collect::<PyResult<Vec<_>>>()?;
        members.into_bound_py_any(py)
    }
}

/// Returns the names and the kinds of the fields of each class, from which `_endstop.pyi` is generated.
#[pyfunction]
pub(crate) fn fields() -> Vec<(&'static str, endstop_guest::fields::Rows)> {
    endstop_guest::fields::classes()
}

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
