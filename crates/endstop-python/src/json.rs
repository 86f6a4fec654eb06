//! Conversions between Python values and JSON, by Python's own `json` module.
//!
//! Walking a dict from Rust is ten times slower than `json.dumps`, so nothing here does that.

use crate::errors::{Exception, error};
use crate::exit::enter;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyString, PyType};
use serde::Serialize;
use serde::de::DeserializeOwned;

static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DEFAULT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Writes a Python value as JSON. A model of pydantic is written as its fields, and any other value that
/// JSON does not have as its `str()`. Raises for a coroutine.
pub(crate) fn dumps<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let py = value.py();
    let _inside = enter(py);
    let dumps = DUMPS.import(py, "json", "dumps")?;
    let options = PyDict::new(py);
    let default = DEFAULT.get_or_try_init(py, || {
        let other = PyCFunction::new_closure(py, Some(c"default"), None, |given, _| {
            jsonable(&given.get_item(0)?).map(Bound::unbind)
        })?;
        PyResult::Ok(other.into_any().unbind())
    })?;
    options.set_item("default", default)?;
    // Without blanks, because only programs read this text.
    options.set_item("separators", (",", ":"))?;
    Ok(dumps.call((value,), Some(&options))?.cast_into::<PyString>()?)
}

/// Returns a value that JSON does not have as one that it has.
fn jsonable<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    refuse_awaitable(value)?;
    match value.getattr_opt("model_dump")? {
        Some(dump) if !value.is_instance_of::<PyType>() => {
            let options = PyDict::new(value.py());
            options.set_item("mode", "json")?;
            dump.call((), Some(&options))
        }
        _ => value.str().map(Bound::into_any),
    }
}

/// `true` for a coroutine, a task and anything else that `await` takes.
pub(crate) fn is_awaitable(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    // Of its class, as the interpreter looks for it.
    value.get_type().hasattr("__await__")
}

/// Raises for a value of which `await` was forgotten. Its `str()` would be taken for the value.
pub(crate) fn refuse_awaitable(value: &Bound<'_, PyAny>) -> PyResult<()> {
    if !is_awaitable(value)? {
        return Ok(());
    }
    let class = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "invalid value of type `{class}`: it was not awaited; pass `await …`"
    )))
}

/// Reads JSON as a Python value.
pub(crate) fn loads<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let _inside = enter(py);
    LOADS.import(py, "json", "loads")?.call1((json,))
}

/// Converts a value of the kernel into a Python value.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    loads(py, &to_json(py, value)?)
}

/// Writes a value of the kernel as JSON.
pub(crate) fn to_json(py: Python<'_>, value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|problem| error(py, Exception::Config, format!("not valid as JSON: {problem}")))
}

/// Converts a Python value into a value of the kernel; `name` is the argument in the error.
pub(crate) fn from_python<T: DeserializeOwned>(
    value: &Bound<'_, PyAny>,
    name: &str,
) -> PyResult<T> {
    let text = dumps(value)?;
    let text = text.to_cow()?;
    from_json(value.py(), &text, name).map_err(|problem| {
        // Python writes these words, and the message about their place would not name them.
        match ["NaN", "-Infinity", "Infinity"].iter().find(|word| text.contains(**word)) {
            Some(word) => {
                let message = format!("invalid `{name}`: {word} is not a number in JSON");
                error(value.py(), Exception::Config, message)
            }
            None => large_integer(value.py(), &text, name).unwrap_or(problem),
        }
    })
}

/// Converts an answer, whose numbers must be exact: an integer of more than 64 bits would become another one.
pub(crate) fn exact_from_python<T: DeserializeOwned>(
    value: &Bound<'_, PyAny>,
    name: &str,
) -> PyResult<T> {
    let text = dumps(value)?;
    large_integer(value.py(), &text.to_cow()?, name).map_or_else(|| from_python(value, name), Err)
}

/// Returns the error for an integer of more than 64 bits, if there is one.
fn large_integer(py: Python<'_>, json: &str, name: &str) -> Option<PyErr> {
    let number = find_large_integer(json)?;
    let shown = number.get(..30).map_or_else(|| number.to_owned(), |start| format!("{start}…"));
    let message = format!(
        "invalid `{name}`: {shown} is larger than the integers of other programs; pass such a number as text"
    );
    Some(error(py, Exception::Config, message))
}

/// Reads JSON as a value of the kernel; `name` is the argument in the error.
pub(crate) fn from_json<T: DeserializeOwned>(
    py: Python<'_>,
    json: &str,
    name: &str,
) -> PyResult<T> {
    serde_json::from_str(json)
        .map_err(|problem| error(py, Exception::Config, format!("invalid `{name}`: {problem}")))
}

/// Returns the first integer of a JSON text that has more than 64 bits.
fn find_large_integer(json: &str) -> Option<&str> {
    // Outside of strings, of which every second piece is one between unescaped quotation marks.
    let mut rest = json;
    loop {
        let start = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
        rest = &rest[start..];
        if let Some(string) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = string.find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            })?;
            rest = &string[end + 1..];
            continue;
        }
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let is_integer = !number.contains(['.', 'e', 'E']) && number != "-";
        if is_integer && number.parse::<u64>().is_err() && number.parse::<i64>().is_err() {
            return Some(number);
        }
        rest = after;
    }
}
