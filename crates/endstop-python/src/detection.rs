//! Detection of why a model's turn ended, from one response.

use crate::body::{Body, DETACH_FROM};
use crate::call::Call;
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::json;
use crate::members::{Enumeration, member};
use crate::signal::{ModelError, Signal};
use crate::usage::Usage;
use endstop_core::{ModelTurn, Part, TerminationSignal, ToolCall};
use endstop_guest::describe::{Description, describe};
use endstop_guest::response as guest_response;
use endstop_guest::response::split_calls;
use endstop_wire::codec::ServiceTier;
use endstop_wire::detect::{DetectError, printed, request_facts};
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::{Decoded, RequestFacts};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

/// A decoded response: its content, and why the model stopped.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Detection {
    pub(crate) decoded: Decoded,
    /// The wire format; empty if the caller described the response.
    pub(crate) api: &'static str,
}

/// The JSON form of a detection, for pickling.
#[derive(Serialize, Deserialize)]
struct Stored {
    api: String,
    turn: Option<ModelTurn>,
    error: Option<endstop_core::ModelError>,
    signal: TerminationSignal,
    streamed: bool,
    complete: bool,
    value_missing: bool,
    should_retry: Option<bool>,
    service_tier: Option<ServiceTier>,
}

impl Detection {
    fn parts(&self) -> &[Part] {
        self.decoded.turn.as_ref().map_or(&[], |turn| &turn.parts)
    }
}

#[pymethods]
impl Detection {
    /// The wire format, for example `openai-chat`; empty if the response was described by hand.
    #[getter]
    fn api(&self) -> &str {
        self.api
    }

    /// The reason why the model stopped, with the provider's own value.
    #[getter]
    fn signal(&self) -> Signal {
        Signal(self.decoded.signal.clone())
    }

    /// The reason alone, a `SignalReason`.
    #[getter]
    fn reason<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        member(py, Enumeration::SignalReason, self.decoded.signal.reason.as_str())
    }

    /// True if the turn ends the model's part: it asks for no tool and is not paused.
    #[getter]
    fn should_terminate(&self) -> bool {
        self.decoded.signal.should_terminate
    }

    /// The visible text.
    #[getter]
    fn text(&self) -> String {
        self.decoded.turn.as_ref().map(ModelTurn::text).unwrap_or_default()
    }

    /// The reasoning in plain text.
    #[getter]
    fn reasoning(&self) -> String {
        let texts = self.parts().iter().filter_map(|part| match part {
            Part::Reasoning { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The text with which the model refused, if the provider marks it.
    #[getter]
    fn refusal(&self) -> Option<String> {
        let texts = self.parts().iter().filter_map(|part| match part {
            Part::Refusal { text } => Some(text.as_str()),
            _ => None,
        });
        Some(texts.collect::<String>()).filter(|text| !text.is_empty())
    }

    /// The tool calls that may run. A call that the token limit or a lost connection cut, or whose
    /// arguments are not a JSON object, is never among them.
    #[getter]
    fn calls(&self) -> Vec<Call> {
        split_calls(&self.decoded).0.into_iter().map(Call::of).collect()
    }

    /// The tool calls that must not run, because they are cut or invalid.
    #[getter]
    fn cut_calls(&self) -> Vec<Call> {
        split_calls(&self.decoded).1.into_iter().map(Call::of).collect()
    }

    /// Token usage.
    #[getter]
    fn usage(&self) -> Usage {
        Usage(self.decoded.turn.as_ref().map(|turn| turn.usage.clone()).unwrap_or_default())
    }

    /// The model that answered, as the provider names it.
    #[getter]
    fn model(&self) -> Option<&str> {
        self.decoded.turn.as_ref().and_then(|turn| turn.model.as_deref())
    }

    /// The error that the response is, or that ended it; otherwise None.
    #[getter]
    fn error(&self) -> Option<ModelError> {
        self.decoded.error.clone().map(ModelError)
    }

    /// True if a finish value or the protocol's end marker arrived.
    #[getter]
    fn complete(&self) -> bool {
        self.decoded.complete
    }

    /// True if the response was a stream of events.
    #[getter]
    fn streamed(&self) -> bool {
        self.decoded.streamed
    }

    /// Returns the object that `endstop detect` prints, as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut object = printed(&self.decoded);
        // A response that was described by hand has no format.
        if !self.api.is_empty() {
            object.insert("api".to_owned(), self.api.into());
        }
        json::to_python(py, &object)
    }

    /// Reads what pickling wrote.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Detection> {
        let stored: Stored = json::from_json(py, text, "detection")?;
        // A format that this version does not know is shown as none, because nothing is decoded
        // again.
        let api = dialect::dialect(&stored.api).map_or("", |dialect| dialect.name);
        let Stored { turn, error, signal, streamed, complete, value_missing, .. } = stored;
        let Stored { should_retry, service_tier, .. } = stored;
        let decoded = Decoded {
            turn,
            error,
            signal,
            service_tier,
            streamed,
            complete,
            value_missing,
            should_retry,
        };
        Ok(Detection { decoded, api })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let Detection { decoded, api } = slf.get().clone();
        let Decoded { turn, error, signal, service_tier, streamed, complete, .. } = decoded;
        let Decoded { value_missing, should_retry, .. } = decoded;
        let api = api.to_owned();
        let stored = Stored {
            api,
            turn,
            error,
            signal,
            streamed,
            complete,
            value_missing,
            should_retry,
            service_tier,
        };
        let make = py.get_type::<Detection>().getattr("_from_json")?;
        Ok((make, (json::to_json(py, &stored)?,)))
    }

    fn __repr__(&self) -> String {
        let signal = &self.decoded.signal;
        let value = &signal.provider_specific.original_value;
        format!("Detection({}, original_value={value:?}, api={:?})", signal.reason, self.api)
    }
}

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
    let body = guest_response::Body { bytes, status: body.status, headers, request: facts };
    let work = || {
        let as_last = if given.is_none() { body.decode_as_last(last) } else { None };
        let (decoded, api) = as_last.map_or_else(|| body.decode(given), Ok)?;
        Ok(Detection { decoded, api })
    };
    let _inside = enter(py);
    // Giving up the lock costs time, which only long work repays to the other threads.
    let found = if bytes.len() < DETACH_FROM { work() } else { py.detach(work) };
    found.map_err(|problem: DetectError| error(py, Exception::Format, problem.to_string()))
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
#[pyfunction]
#[pyo3(signature = (
    text = "", *, finish, calls = Vec::new(), refusal = None, input_tokens = None,
    output_tokens = None, cached_input_tokens = None, cost_usd = None, model = None,
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
    cost_usd: Option<f64>,
    model: Option<String>,
) -> Detection {
    let calls = calls.into_iter().map(|call| match call {
        GivenCall::Call(call) => ToolCall::clone(&call.get().0),
        GivenCall::Fields(id, name, arguments) => ToolCall { id, name, arguments },
    });
    let decoded = describe(Description {
        text: text.to_owned(),
        finish: finish.map(str::to_owned),
        calls: calls.collect(),
        refusal,
        usage: endstop_core::Usage {
            input_tokens,
            output_tokens,
            cached_input_tokens,
            ..endstop_core::Usage::default()
        },
        cost_usd,
        model,
    });
    Detection { decoded, api: "" }
}
