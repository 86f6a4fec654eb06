//! Detection of why a model's turn ended, from one response.

use super::body::{Body, DETACH_FROM};
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::fields::class;
use crate::json;
use crate::turn::Call;
use endstop_core::ToolCall;
use endstop_guest::describe::{Counts, Description, describe};
use endstop_guest::detection_fields;
use endstop_wire::RequestFacts;
use endstop_wire::detect::request_facts;
use endstop_wire::dialect::{self, Dialect};
use pyo3::prelude::*;

/// A decoded response: its content, and why the model stopped.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Detection(pub(crate) endstop_guest::response::Detection);

detection_fields! { class Detection, "detection", {
    /// Returns the object that `endstop detect` prints, as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.0.printed())
    }

    fn __repr__(&self) -> String {
        let signal = &self.0.decoded.signal;
        let value = &signal.provider_specific.original_value;
        format!("Detection({}, original_value={value:?}, api={:?})", signal.reason, self.0.api)
    }
} }

/// Returns the format of the responses to a request, by its method and its path; `None` if it is not a model call.
#[pyfunction]
pub(crate) fn api_of(method: &str, path: &str) -> Option<&'static str> {
    Some(endstop_wire::route::recognise(method, path).format()?.as_str())
}

/// Decodes a body. `api` is the format that the caller names, and the format of the run's last
/// response, which is tried before the format is recognised anew.
pub(crate) fn decode(
    py: Python<'_>,
    body: &Body<'_>,
    (api, last): (Option<&str>, &str),
    facts: &RequestFacts,
) -> PyResult<Detection> {
    let given = api.map(|name| read_api(py, name)).transpose()?;
    let (bytes, headers) = (body.bytes(), &body.headers);
    let body =
        endstop_guest::response::Body { bytes, status: body.status, headers, request: facts };
    let work = || body.detect(given, last).map(Detection);
    let _inside = enter(py);
    // Giving up the lock costs time, which only long work repays to the other threads.
    let found = if bytes.len() < DETACH_FROM { work() } else { py.detach(work) };
    found.map_err(|problem| error(py, Exception::Format, problem.to_string()))
}

/// Returns the dialect with this name.
pub(crate) fn read_api(py: Python<'_>, name: &str) -> PyResult<&'static Dialect> {
    dialect::dialect(name).map_err(|problem| error(py, Exception::Config, problem.to_string()))
}

/// Reads the facts that decoding needs from a request: bytes, text or a dict.
pub(crate) fn read_request(request: &Bound<'_, PyAny>) -> PyResult<RequestFacts> {
    let body = Body::of(request)?;
    let py = request.py();
    let value: serde_json::Value = serde_json::from_slice(body.bytes())
        .map_err(|e| error(py, Exception::Config, format!("invalid `request`: {e}")))?;
    Ok(request_facts(&value))
}

/// A tool call: a `Call`, or a tuple of id, name and arguments.
#[derive(FromPyObject)]
pub(crate) enum GivenCall<'py> {
    Call(Bound<'py, Call>),
    Fields(String, String, String),
}

/// Describes a response by hand, for a framework that does not show the provider's bytes.
///
/// `finish` is the provider's finish value as it sent it, in any format. None means that none arrived: the response then counts as cut, and never as a
/// success.
///
/// Cached tokens are part of `input_tokens`, and reasoning is part of `output_tokens`, unless `total_tokens` counts them
/// next to those, as some providers do, or more tokens are cached than `input_tokens` says.
#[pyfunction]
#[pyo3(signature = (
    text = "", *, finish, calls = Vec::new(), refusal = None, input_tokens = None,
    output_tokens = None, cached_input_tokens = None, cache_write_tokens = None,
    cache_write_1h_tokens = None, reasoning_tokens = None, total_tokens = None, cost_usd = None,
    model = None,
))]
#[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
pub(crate) fn response(
    text: &str,
    finish: Option<&str>,
    calls: Vec<GivenCall<'_>>,
    refusal: Option<String>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cached_input_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    cache_write_1h_tokens: Option<u64>,
    reasoning_tokens: Option<u64>,
    total_tokens: Option<u64>,
    cost_usd: Option<f64>,
    model: Option<String>,
) -> Detection {
    let calls = calls.into_iter().map(|call| match call {
        GivenCall::Call(call) => ToolCall::clone(&call.get().0),
        GivenCall::Fields(id, name, arguments) => ToolCall { id, name, arguments },
    });
    Detection(describe(Description {
        text: text.to_owned(),
        finish: finish.map(str::to_owned),
        calls: calls.collect(),
        refusal,
        usage: endstop_core::Usage::from(Counts {
            input: input_tokens,
            output: output_tokens,
            cached_input: cached_input_tokens,
            cache_write: cache_write_tokens,
            cache_write_1h: cache_write_1h_tokens,
            reasoning: reasoning_tokens,
            total: total_tokens,
        }),
        cost_usd,
        model,
    }))
}
