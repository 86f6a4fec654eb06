//! A model call as its body describes it, in one model for all formats.

use super::fields::{Fields, any};
use super::top::{Structured, Top};
use super::{anthropic, chat, cohere, converse, gemini, responses, strict};
use crate::exchange::route::{Call, Delivery, Route};
use crate::exchange::signs::Signs;
use endstop_core::{Message, bounded_json};
use endstop_wire::WireFormat;
use serde_json::Value;
use std::cell::OnceCell;
use std::fmt;
use std::ops::Range;

/// The largest body that is read, in bytes. Claude Code's bodies have up to 32 MB.
const LARGEST: usize = 64 << 20;
/// The most memory that the values of a body may need, in bytes.
const HEAVIEST: u64 = 256 << 20;

/// The reason why a body cannot be read. The call still passes through, but guard cannot place it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The route is not a model call.
    #[error("the request is not a model call")]
    NotAModelCall,
    /// The body is larger than guard reads.
    #[error("the body has {bytes} bytes; guard reads at most {LARGEST}")]
    Large {
        /// The size of the body in bytes.
        bytes: usize,
    },
    /// The body would need too much memory.
    #[error("the body has too many values")]
    Heavy,
    /// The body is not a JSON object in UTF-8.
    #[error("the body is not a JSON object: {0}")]
    Json(String),
    /// The body of an InvokeModel call has a format that guard does not read.
    #[error("guard does not read the formats of older models and of Cohere's first version")]
    Shape,
}

/// A model call. It borrows the body, and parses messages on demand.
pub struct Request<'a> {
    /// The format of the call.
    pub format: WireFormat,
    /// The format of the body: that of `format`, or the model's own inside InvokeModel.
    pub shape: WireFormat,
    /// The form in which the client expects the answer.
    pub delivery: Delivery,
    /// The model, if the body or the path names it.
    pub model: Option<String>,
    /// Another model that the call names: its path and its body can differ.
    pub other_model: Option<String>,
    /// The output cap that the client asks for, in tokens.
    pub output_cap: Option<u64>,
    /// The number of answers that the client asks for; each may use the whole output cap.
    pub choices: u64,
    /// The budget for reasoning, in tokens. An output cap must be larger.
    pub thinking: Option<u64>,
    /// Names of the tools that the client runs.
    pub tools: Vec<String>,
    /// The sign that a final text would break the client.
    pub structured: Option<Structured>,
    /// `true` if the answer will report its usage.
    pub usage_requested: bool,
    /// Length of the body in bytes: an upper bound of the tokens in its prompt.
    pub body_bytes: u64,
    /// The response that this request continues.
    pub previous_response: Option<String>,
    /// `true` if the provider answers at once and works on; its result is then asked for by its id.
    pub background: bool,
    /// Ids in the body.
    pub signs: Signs,
    stored: bool,
    body: &'a str,
    messages: Vec<&'a str>,
    /// The messages that were asked for, in the order of `messages`.
    parsed: Vec<OnceCell<Box<Message>>>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The messages may have secrets, and are long.
        f.debug_struct("Request")
            .field("format", &self.format)
            .field("delivery", &self.delivery)
            .field("model", &self.model)
            .field("body_bytes", &self.body_bytes)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// Reads a body, which must be decoded (from gzip or zstd) already.
    ///
    /// # Errors
    /// The route is not a model call, or the body is too large or not in the route's format.
    pub fn read(route: &Route, body: &'a [u8]) -> Result<Request<'a>, Unreadable> {
        let Call::Model { format, delivery } = route.call else {
            return Err(Unreadable::NotAModelCall);
        };
        if body.len() > LARGEST {
            return Err(Unreadable::Large { bytes: body.len() });
        }
        // This estimate needs no memory, unlike the parser.
        bounded_json::check(body, HEAVIEST).map_err(|_| Unreadable::Heavy)?;
        let text = std::str::from_utf8(body).map_err(|e| Unreadable::Json(e.to_string()))?;
        let fields = Fields::of(text).map_err(|e| Unreadable::Json(place(&e)))?;
        let shape = shape(format, &fields)?;
        let top = top(shape, &fields);
        // Ollama streams unless it is asked not to.
        let streamed = top.stream.unwrap_or(format == WireFormat::Ollama);
        let in_body = match (streamed, format) {
            (false, _) => Delivery::Whole,
            (true, WireFormat::Ollama) => Delivery::Lines,
            (true, _) => Delivery::Events,
        };
        let delivery = delivery.unwrap_or(in_body);
        let structured = top.structured();
        let (model, other_model) = route.models(top.model);
        Ok(Request {
            format,
            shape,
            delivery,
            structured,
            model,
            other_model,
            output_cap: top.output_cap,
            choices: top.choices.unwrap_or(1).max(1),
            thinking: top.thinking,
            tools: top.tools,
            usage_requested: delivery == Delivery::Whole || !top.usage_omitted,
            body_bytes: body.len() as u64,
            previous_response: top.previous_response,
            background: top.background,
            signs: top.signs,
            stored: top.stored,
            body: text,
            parsed: top.messages.iter().map(|_| OnceCell::new()).collect(),
            messages: top.messages,
        })
    }

    /// Number of messages in the body. In the Responses format each item is one.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// `true` if a part of the prompt may be stored in a cache for an hour, which has a price of its own.
    pub fn caches_for_an_hour(&self) -> bool {
        // The letters may be escaped; a text with such escapes is then reserved too high.
        self.body.contains("\\u00") || (self.body.contains("\"ttl\"") && self.body.contains("1h"))
    }

    /// `true` if servers may read another model in the body than guard does.
    pub fn has_ambiguous_model(&self) -> bool {
        Fields::of(self.body).map_or(true, |fields| fields.is_ambiguous("model"))
    }

    /// The reason why the cost of the call has no known bound: what the provider adds to it, or what a server may
    /// read otherwise than guard does. `None` if it has one. The size of
    /// [continued conversations](Request::continues) is not looked at.
    pub fn unbounded(&self) -> Option<String> {
        match Fields::of(self.body) {
            Ok(fields) => strict::unbounded(self.shape, &fields),
            Err(_) => Some("the request cannot be read".to_owned()),
        }
    }

    /// `true` if the body has only what is new, because the provider stores the messages before it.
    pub fn continues(&self) -> bool {
        self.stored || self.previous_response.is_some()
    }

    /// Returns a message by its position, from 0. It is parsed the first time only. Images and
    /// documents become a word in brackets. A message of an unknown shape has no parts.
    pub fn message(&self, at: usize) -> Option<&Message> {
        let (text, parsed) = (self.messages.get(at)?, self.parsed.get(at)?);
        Some(parsed.get_or_init(|| Box::new(self.parse(any(text)))))
    }

    /// Returns the last message.
    pub fn last_message(&self) -> Option<&Message> {
        self.message(self.messages.len().checked_sub(1)?)
    }

    fn parse(&self, mut value: Value) -> Message {
        let value = &mut value;
        match self.shape {
            WireFormat::OpenAiResponses => responses::read_message(value),
            WireFormat::Anthropic => anthropic::read_message(value),
            WireFormat::Gemini => gemini::read_message(value),
            WireFormat::BedrockConverse => converse::read_message(value),
            WireFormat::CohereV2 => cohere::read_message(value),
            _ => chat::read_message(value),
        }
    }

    /// The body as it was read.
    pub(crate) fn body(&self) -> &'a str {
        self.body
    }

    /// The places of the messages in the body, in their order.
    pub(crate) fn message_spans(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.messages.iter().map(|message| {
            // Each text was borrowed from the body, so the difference of the addresses is its offset.
            let start = message.as_ptr() as usize - self.body.as_ptr() as usize;
            start..start + message.len()
        })
    }
}

/// Describes an error by its place alone, because serde's text may quote the body.
fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// Returns the format of a body, which inside InvokeModel depends on the model.
fn shape(format: WireFormat, fields: &Fields<'_>) -> Result<WireFormat, Unreadable> {
    if format == WireFormat::CohereV1 {
        return Err(Unreadable::Shape);
    }
    if format != WireFormat::BedrockInvoke {
        return Ok(format);
    }
    match () {
        // Bedrock requires this field of Anthropic's models, and of no others.
        () if fields.raw("anthropic_version").is_some() => Ok(WireFormat::Anthropic),
        () if fields.raw("messages").is_none() => Err(Unreadable::Shape),
        () if fields.raw("inferenceConfig").is_some() => Ok(WireFormat::BedrockConverse),
        () => Ok(WireFormat::OpenAiChat),
    }
}

fn top<'a>(shape: WireFormat, fields: &Fields<'a>) -> Top<'a> {
    match shape {
        WireFormat::OpenAiResponses => responses::read(fields),
        WireFormat::Anthropic => anthropic::read(fields),
        WireFormat::Gemini => gemini::read(fields),
        WireFormat::BedrockConverse => converse::read(fields),
        WireFormat::CohereV2 => cohere::read(fields),
        shape => chat::read(shape, fields),
    }
}
