//! Detection of why a model's turn ended, from one response.

use crate::call::Call;
use crate::errors::{Code, Result, config, from_json, to_json};
use crate::signal::{ModelError, Signal};
use crate::usage::Usage;
use endstop_core::{ModelTurn, Part};
use endstop_guest::response::{Body, split_calls};
use endstop_wire::detect::{printed, request_facts};
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::{Decoded, Headers, RequestFacts};
use napi::Either;
use napi_derive::napi;

/// The facts around a response.
#[napi(object)]
#[derive(Default)]
pub struct ResponseFacts {
    /// Name of the format; if it is missing, the format is recognised.
    pub api: Option<String>,
    /// HTTP status.
    pub status: Option<u16>,
    /// Names and values of the headers, by turns.
    pub headers: Option<Vec<String>>,
    /// The request that was sent, as JSON.
    pub request: Option<String>,
}

impl ResponseFacts {
    pub(crate) fn headers(&self) -> Headers {
        let mut headers = Headers::new();
        for pair in self.headers.as_deref().unwrap_or_default().chunks_exact(2) {
            headers.push(&pair[0], &pair[1]);
        }
        headers
    }

    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or(200)
    }

    pub(crate) fn dialect(&self) -> Result<Option<&'static Dialect>> {
        self.api.as_deref().map(|name| dialect::dialect(name).map_err(config)).transpose()
    }

    /// Returns the facts that decoding needs from the request.
    pub(crate) fn request(&self) -> Result<RequestFacts> {
        let Some(json) = &self.request else { return Ok(RequestFacts::default()) };
        from_json::<serde_json::Value>(json, "request").map(|value| request_facts(&value))
    }
}

/// A decoded response: its content, and why the model stopped.
#[napi(object, use_nullable = true)]
pub struct DetectionFields {
    /// The wire format, for example `openai-chat`; empty if the response was described by hand.
    #[napi(readonly)]
    pub api: String,
    /// The reason why the model stopped, with the provider's own value.
    #[napi(readonly)]
    pub signal: Signal,
    /// The reason alone.
    #[napi(readonly, ts_type = "SignalReason")]
    pub reason: String,
    /// True if the turn ends the model's part: it asks for no tool and is not paused.
    #[napi(readonly)]
    pub should_terminate: bool,
    /// The visible text.
    #[napi(readonly)]
    pub text: String,
    /// The reasoning in plain text.
    #[napi(readonly)]
    pub reasoning: String,
    /// The text with which the model refused, if the provider marks it.
    #[napi(readonly)]
    pub refusal: Option<String>,
    /// The tool calls that may run. A call that the token limit or a lost connection cut, or whose
    /// arguments are not a JSON object, is never among them.
    #[napi(readonly, ts_type = "readonly Call[]")]
    pub calls: Vec<Call>,
    /// The tool calls that must not run, because they are cut or invalid.
    #[napi(readonly, ts_type = "readonly Call[]")]
    pub cut_calls: Vec<Call>,
    /// Token usage.
    #[napi(readonly)]
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    #[napi(readonly)]
    pub model: Option<String>,
    /// The error that the response is, or that ended it; otherwise null.
    #[napi(readonly)]
    pub error: Option<ModelError>,
    /// True if a finish value or the protocol's end marker arrived.
    #[napi(readonly)]
    pub complete: bool,
    /// True if the response was a stream of events.
    #[napi(readonly)]
    pub streamed: bool,
}

/// A decoded response as the kernel has it, which a run reads.
#[napi]
#[derive(Clone)]
pub struct NativeDetection {
    pub(crate) decoded: Decoded,
    /// The wire format; empty if the caller described the response.
    pub(crate) api: &'static str,
}

#[napi]
impl NativeDetection {
    /// Returns the content as a plain object.
    #[napi(catch_unwind)]
    pub fn fields(&self) -> Result<DetectionFields> {
        let Decoded { turn, error, signal, complete, streamed, .. } = &self.decoded;
        let parts: &[Part] = turn.as_ref().map_or(&[], |turn| &turn.parts);
        let (calls, cut_calls) = split_calls(&self.decoded);
        let reasoning = parts.iter().filter_map(|part| match part {
            Part::Reasoning { text } => Some(text.as_str()),
            _ => None,
        });
        let refusal: String = parts
            .iter()
            .filter_map(|part| match part {
                Part::Refusal { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let no_usage = endstop_core::Usage::default();
        Ok(DetectionFields {
            api: self.api.to_owned(),
            reason: signal.reason.as_str().to_owned(),
            should_terminate: signal.should_terminate,
            signal: Signal::of(signal)?,
            text: turn.as_ref().map(ModelTurn::text).unwrap_or_default(),
            reasoning: reasoning.collect(),
            refusal: Some(refusal).filter(|text| !text.is_empty()),
            calls: calls.into_iter().map(Call::from).collect(),
            cut_calls: cut_calls.into_iter().map(Call::from).collect(),
            usage: Usage::from(turn.as_ref().map_or(&no_usage, |turn| &turn.usage)),
            model: turn.as_ref().and_then(|turn| turn.model.clone()),
            error: error.as_ref().map(ModelError::from),
            complete: *complete,
            streamed: *streamed,
        })
    }

    /// Returns the object that `endstop detect` prints, as JSON.
    #[napi(catch_unwind)]
    pub fn printed(&self) -> Result<String> {
        let mut object = printed(&self.decoded);
        // A response that was described by hand has no format.
        if !self.api.is_empty() {
            object.insert("api".to_owned(), self.api.into());
        }
        to_json(&object)
    }
}

/// Returns the format of the responses to a request, by its method and its path; null if it is not a model
/// call.
#[napi(catch_unwind)]
pub fn api_of(method: String, path: String) -> Option<&'static str> {
    Some(endstop_wire::route::recognise(&method, &path).format()?.as_str())
}

/// Detects why a model's turn ended, from the body of a response.
#[napi(catch_unwind)]
pub fn detect(
    body: Either<&[u8], String>,
    facts: Option<ResponseFacts>,
) -> Result<NativeDetection> {
    let facts = facts.unwrap_or_default();
    decode_sent(bytes_of(&body), &facts, "", facts.status)
}

/// Returns the bytes of a body.
pub(crate) fn bytes_of<'a>(body: &'a Either<&'a [u8], String>) -> &'a [u8] {
    match body {
        // Not copied, because no JavaScript runs while the bytes are read.
        Either::A(bytes) => bytes,
        Either::B(text) => text.as_bytes(),
    }
}

/// Decodes a body that a server sent, in this format, or in the format that is recognised. `last` is the
/// format of a run's last response, which is tried before.
pub(crate) fn decode(bytes: &[u8], facts: &ResponseFacts, last: &str) -> Result<NativeDetection> {
    decode_sent(bytes, facts, last, Some(facts.status()))
}

/// Decodes a body. Without a status, an empty one is a mistake of the caller.
fn decode_sent(
    bytes: &[u8],
    facts: &ResponseFacts,
    last: &str,
    status: Option<u16>,
) -> Result<NativeDetection> {
    let (given, headers, request) = (facts.dialect()?, facts.headers(), facts.request()?);
    let body = Body { bytes, status, headers: &headers, request: &request };
    let as_last = if given.is_none() { body.decode_as_last(last) } else { None };
    let found = as_last.map_or_else(|| body.decode(given), Ok);
    let (decoded, api) =
        found.map_err(|problem| napi::Error::new(Code::Format, problem.to_string()))?;
    Ok(NativeDetection { decoded, api })
}
