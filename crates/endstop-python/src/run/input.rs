//! The input of a run: failures of model calls, and results of tools.

use crate::errors::{Exception, error};
use crate::json;
use crate::response::body::Body;
use crate::response::detection::decode;
use crate::turn::{Call, ModelError};
use endstop_core::{ErrorClass, ToolReport, ToolStatus};
use endstop_guest::choice::{InvalidChoice, error_class, tool_status};
use endstop_wire::RequestFacts;
use endstop_wire::redact::secrets_out;
use pyo3::exceptions::{
    PyBaseException, PyConnectionError, PyGeneratorExit, PyKeyboardInterrupt, PyTimeoutError,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// Reads the id of a tool call: a `Call`, or the id itself.
pub(crate) fn call_id(call: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(call) = call.cast::<Call>() {
        return Ok(call.get().0.id.clone());
    }
    call.extract::<String>().map_err(|_| {
        let message = "invalid call: expected endstop.Call, or the provider's id of the call";
        error(call.py(), Exception::Config, message)
    })
}

/// Builds the report of a tool. Any value but text is written as JSON, and an exception is an
/// error with its message.
pub(crate) fn report(
    output: &Bound<'_, PyAny>,
    status: &str,
    variables: Option<&Bound<'_, PyDict>>,
    metrics: Option<&Bound<'_, PyDict>>,
    halt: Option<String>,
) -> PyResult<ToolReport> {
    let py = output.py();
    let invalid = |problem: InvalidChoice| error(py, Exception::Config, problem.to_string());
    let mut found = tool_status(status).map_err(invalid)?;
    let content = if let Ok(text) = output.cast::<PyString>() {
        text.to_string_lossy().into_owned()
    } else if output.is_instance_of::<PyBaseException>() {
        // A status such as `timeout`, which the caller gave, describes the exception better.
        if found == ToolStatus::Ok {
            found = ToolStatus::Error;
        }
        format!("{}: {}", output.get_type().name()?, output.str()?.to_string_lossy())
    } else {
        json::dumps(output)?.to_string_lossy().into_owned()
    };
    let mut report = ToolReport::new(found, content);
    let read = |given: Option<&Bound<'_, PyDict>>, name| {
        given.map(|dict| json::from_python(dict.as_any(), name)).transpose()
    };
    report.variables = read(variables, "variables")?.unwrap_or_default();
    report.metrics = read(metrics, "metrics")?.unwrap_or_default();
    report.halt = halt.map(|reason| secrets_out(&reason));
    Ok(report)
}

/// Reads the failure of a model call: an exception of an SDK, a `ModelError`, or a message.
pub(crate) fn failure(
    given: &Bound<'_, PyAny>,
    kind: Option<&str>,
) -> PyResult<endstop_core::ModelError> {
    let py = given.py();
    json::refuse_awaitable(given)?;
    if let Ok(known) = given.cast::<ModelError>() {
        return Ok(known.get().0.clone());
    }
    let invalid = |problem: InvalidChoice| error(py, Exception::Config, problem.to_string());
    let named = kind.map(error_class).transpose().map_err(invalid)?;
    // A class that the caller named takes precedence over the one that the response shows.
    if named.is_none()
        && let Some(of_response) = of_response(given)?
    {
        return Ok(of_response);
    }
    let message = secrets_out(&given.str()?.to_string_lossy());
    let class = named.unwrap_or_else(|| class_of(given));
    Ok(endstop_core::ModelError::new(class, message))
}

/// Classifies the response that an exception of an SDK carries.
fn of_response(given: &Bound<'_, PyAny>) -> PyResult<Option<endstop_core::ModelError>> {
    let Some(response) = given.getattr_opt("response")?.filter(|response| !response.is_none())
    else {
        return Ok(None);
    };
    // A streamed response that was not read has no content, so that nothing is known of its error.
    let Ok(body) = Body::of(&response) else { return Ok(None) };
    let py = given.py();
    // If the format is unknown, the type of the exception decides.
    let decoded = decode(py, &body, (None, ""), &RequestFacts::default());
    Ok(decoded.ok().and_then(|found| found.0.decoded.error))
}

/// Guesses the class of an exception without a response by its type.
fn class_of(given: &Bound<'_, PyAny>) -> ErrorClass {
    // By its name, because the exceptions of the SDKs have no base class in common.
    let name = given.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    if given.is_instance_of::<PyTimeoutError>() || name.contains("Timeout") {
        ErrorClass::Timeout
    } else if given.is_instance_of::<PyConnectionError>()
        || ["Connection", "RemoteProtocol", "ReadError", "Incomplete"]
            .iter()
            .any(|part| name.contains(part))
    {
        ErrorClass::IncompleteStream
    } else {
        ErrorClass::UnknownError
    }
}

/// Reads messages of the user: one text, or several.
pub(crate) fn read_input(input: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    let Some(input) = input.filter(|input| !input.is_none()) else { return Ok(Vec::new()) };
    match input.cast::<PyString>() {
        Ok(text) => Ok(vec![text.to_string_lossy().into_owned()]),
        Err(_) => input.extract(),
    }
}

/// `true` for an exception that means that the work is no longer wanted.
pub(crate) fn is_cancel(problem: &Bound<'_, PyAny>) -> PyResult<bool> {
    if problem.is_instance_of::<PyKeyboardInterrupt>()
        || problem.is_instance_of::<PyGeneratorExit>()
    {
        return Ok(true);
    }
    // Imported only here, because most programs without asyncio never get to this line.
    let cancelled = problem.py().import("asyncio")?.getattr("CancelledError")?;
    problem.is_instance(&cancelled)
}
