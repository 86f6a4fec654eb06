//! One response: the recognition of its format, its content, and its tool calls.

use endstop_core::{ModelTurn, Part, SignalReason, ToolCall, Usage};
use endstop_wire::detect::{DetectError, printed};
use endstop_wire::dialect::{self, Dialect};
use endstop_wire::stream::sniff::formats;
use endstop_wire::{Decoded, Headers, RequestFacts, decode_body};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// A decoded response, with the format that it had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Detection {
    /// The wire format; empty if the caller described the response.
    pub api: &'static str,
    /// The content, and why the model stopped.
    #[serde(flatten)]
    pub decoded: Decoded,
}

// Not derived, because the derived method would require input that lives for ever, as the name does.
impl<'de> Deserialize<'de> for Detection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Detection, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            api: String,
            #[serde(flatten)]
            decoded: Decoded,
        }
        let Stored { api, decoded } = Stored::deserialize(deserializer)?;
        // A format that this version does not know reads as none, because nothing is decoded again.
        Ok(Detection { api: dialect::dialect(&api).map_or("", |dialect| dialect.name), decoded })
    }
}

impl Detection {
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.decoded.turn.iter().flat_map(|turn| &turn.parts)
    }

    /// Returns the visible text.
    pub fn text(&self) -> String {
        self.decoded.turn.as_ref().map(ModelTurn::text).unwrap_or_default()
    }

    /// Returns the reasoning in plain text.
    pub fn reasoning(&self) -> String {
        let texts = self.parts().filter_map(|part| match part {
            Part::Reasoning { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns the text with which the model refused, if the provider marks it.
    pub fn refusal(&self) -> Option<String> {
        let texts = self.parts().filter_map(|part| match part {
            Part::Refusal { text } => Some(text.as_str()),
            _ => None,
        });
        Some(texts.collect::<String>()).filter(|text| !text.is_empty())
    }

    /// Returns the token usage.
    pub fn usage(&self) -> Usage {
        self.decoded.turn.as_ref().map(|turn| turn.usage.clone()).unwrap_or_default()
    }

    /// Returns the model that answered, as the provider names it.
    pub fn model(&self) -> Option<&str> {
        self.decoded.turn.as_ref().and_then(|turn| turn.model.as_deref())
    }

    /// Returns the calls that may run, and those that are cut or invalid.
    pub fn split_calls(&self) -> (Vec<ToolCall>, Vec<ToolCall>) {
        let whole = asks_for_tools(&self.decoded);
        let calls = self.decoded.turn.iter().flat_map(ModelTurn::tool_calls).cloned();
        calls.partition(|call| whole && call.parsed_arguments().is_ok())
    }

    /// Returns the object that `endstop detect` prints.
    pub fn printed(&self) -> Map<String, Value> {
        let mut object = printed(&self.decoded);
        // A response that was described by hand has no format.
        if !self.api.is_empty() {
            object.insert("api".to_owned(), self.api.into());
        }
        object
    }
}

/// A response and the facts around it.
#[derive(Clone, Copy)]
pub struct Body<'b> {
    /// The bytes of the body.
    pub bytes: &'b [u8],
    /// The HTTP status; `None` if it is not known that a server sent the body.
    pub status: Option<u16>,
    /// The headers.
    pub headers: &'b Headers,
    /// The facts of the request that decoding needs.
    pub request: &'b RequestFacts,
}

impl Body<'_> {
    /// Decodes the body: in the format that the caller names, or in that of the run's last response if it
    /// fits, or in the one that is recognised.
    ///
    /// # Errors
    /// The format is unknown or ambiguous.
    pub fn detect(
        &self,
        given: Option<&'static Dialect>,
        last: &str,
    ) -> Result<Detection, DetectError> {
        let as_last = if given.is_none() { self.decode_as_last(last) } else { None };
        as_last.map_or_else(|| self.decode(given), Ok)
    }

    fn decode(&self, format: Option<&'static Dialect>) -> Result<Detection, DetectError> {
        if shape(self.bytes) == Shape::Event {
            return Err(DetectError::Part("one event of a stream"));
        }
        let dialect = format.map_or_else(|| recognise(self.bytes, self.status), Ok)?;
        let Body { bytes, status, headers, request } = *self;
        let status = status.unwrap_or(200);
        let decoded = decode_body(dialect, status, headers, bytes, request);
        Ok(Detection { api: dialect.name, decoded })
    }

    /// Decodes the body in the format of a run's last response, if that format fits.
    fn decode_as_last(&self, last: &str) -> Option<Detection> {
        // Before the first response `last` is empty, which is the name of no dialect.
        let found = self.decode(Some(dialect::dialect(last).ok()?)).ok()?;
        let decoded = &found.decoded;
        // In a wrong format nothing is found, least of all a finish value that it has.
        let is_known = !decoded.value_missing && decoded.signal.reason != SignalReason::Unknown;
        (decoded.error.is_none() && is_known).then_some(found)
    }
}

/// Recognises the format of a body.
///
/// # Errors
/// The format is unknown or ambiguous, the body is only a part of a response, or it is empty without a
/// status.
pub fn recognise(bytes: &[u8], status: Option<u16>) -> Result<&'static Dialect, DetectError> {
    let is_error = status.is_some_and(|status| status >= 300);
    match formats(bytes)[..] {
        [family] => Ok(family.dialect()),
        // The status of an error, and an empty body that a server sent, mean the same in every format.
        [] if is_error => Ok(dialect::OPENAI_CHAT),
        [] if bytes.trim_ascii().is_empty() => {
            status.map(|_| dialect::OPENAI_CHAT).ok_or(DetectError::Empty)
        }
        // Formats that share the shape of an error read it alike.
        [family, ..] if is_error => Ok(family.dialect()),
        ref several => Err(DetectError::unrecognised(bytes, several.to_vec())),
    }
}

/// The role of a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A whole response.
    Whole,
    /// An event of a stream: the rest of the response is in others.
    Event,
    /// Anything else, also an object that may be either, such as that of Gemini.
    Other,
}

/// Returns the role of bytes that are one JSON object, by its fields.
fn shape(bytes: &[u8]) -> Shape {
    type Fields<'a> = HashMap<Cow<'a, str>, &'a RawValue>;
    // Bytes of a stream that was not put together have other first bytes, and cost nothing more.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Shape::Other;
    }
    let Ok(fields) = serde_json::from_slice::<Fields<'_>>(bytes) else { return Shape::Other };
    let has = |name: &str| fields.contains_key(name);
    let text = |name: &str| {
        let value = fields.get(name)?.get();
        value.strip_prefix('"')?.strip_suffix('"')
    };
    match text("object") {
        Some("chat.completion" | "response") => return Shape::Whole,
        Some("chat.completion.chunk") => return Shape::Event,
        _ => {}
    }
    match text("type") {
        Some("message") if has("content") => return Shape::Whole,
        Some(kind) if kind.starts_with("response.") => return Shape::Event,
        Some(
            "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop"
            | "message-start"
            | "message-end"
            | "content-start"
            | "content-delta"
            | "content-end"
            | "tool-plan-delta"
            | "tool-call-start"
            | "tool-call-delta"
            | "tool-call-end",
        ) => return Shape::Event,
        _ => {}
    }
    if let Some(choices) = fields.get("choices") {
        let choices: Vec<Fields<'_>> = serde_json::from_str(choices.get()).unwrap_or_default();
        let any = |name: &str| choices.iter().any(|choice| choice.contains_key(name));
        return match (any("message"), any("delta")) {
            (true, _) => Shape::Whole,
            (false, true) => Shape::Event,
            (false, false) => Shape::Other,
        };
    }
    let events = ["messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"];
    if events.into_iter().any(has) || has("event_type") && has("is_finished") {
        return Shape::Event;
    }
    let is_ended = |end: &str| text(end).is_some_and(|value| !value.is_empty());
    let is_converse = has("output") && is_ended("stopReason");
    let is_cohere =
        has("message") && is_ended("finish_reason") || has("generation_id") && has("text");
    if is_converse || is_cohere {
        return Shape::Whole;
    }
    match fields.get("done").filter(|_| has("model")).map(|done| done.get()) {
        // The last object of Ollama's stream is like a whole response.
        Some("true") => Shape::Whole,
        Some("false") => Shape::Event,
        _ => Shape::Other,
    }
}

/// Finds whole responses in a list that is taken for the chunks of one stream.
///
/// ```
/// use endstop_guest::response::Chunks;
/// let response = br#"{"object":"chat.completion","choices":[]}"#;
/// let mut chunks = Chunks::default();
/// assert!(chunks.add(response).is_ok());
/// assert!(chunks.add(response).is_err(), "one answer and one usage would be made of both");
/// ```
#[derive(Debug, Default)]
pub struct Chunks {
    has_whole: bool,
    /// The id of Gemini's response, whose chunks look like whole responses.
    id: Option<String>,
}

impl Chunks {
    /// Looks at the next chunk.
    ///
    /// # Errors
    /// It belongs to another response than one before.
    pub fn add(&mut self, chunk: &[u8]) -> Result<(), DetectError> {
        let is_whole = shape(chunk) == Shape::Whole;
        let id = response_id(chunk);
        let is_another = self.id.is_some() && id.is_some() && self.id != id;
        if self.has_whole && is_whole || is_another {
            return Err(DetectError::Part("a list of several responses"));
        }
        self.has_whole |= is_whole;
        self.id = id.or(self.id.take());
        Ok(())
    }
}

/// Returns the id that all chunks of one response of Gemini have.
fn response_id(chunk: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(rename = "responseId")]
        id: String,
        #[serde(rename = "candidates")]
        _candidates: Vec<IgnoredAny>,
    }
    serde_json::from_slice::<Named>(chunk).ok().map(|named| named.id)
}

/// `true` if the response asks for its tools: at any other end, its calls may be cut.
pub(crate) fn asks_for_tools(decoded: &Decoded) -> bool {
    decoded.error.is_none() && decoded.signal.reason == SignalReason::ToolUse
}
