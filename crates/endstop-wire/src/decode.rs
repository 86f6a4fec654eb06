//! Decoding of a model response into a turn: content, stop reason, usage, or a classified error.
//!
//! ```
//! use endstop_wire::{Delta, Eof, Headers, RequestFacts, StreamDecoder, api};
//! let mut stream = StreamDecoder::new(api::OPENAI_CHAT, 200, Headers::new(), RequestFacts::default());
//! let mut shown = String::new();
//! for chunk in ["data: {\"choices\":[{\"delta\":{\"content\":\"Hel", "lo\"},\"finish_reason\":\"stop\"}]}\n\n"] {
//!     stream.push(chunk.as_bytes(), &mut |delta| {
//!         if let Delta::Text(text) = delta {
//!             shown.push_str(text);
//!         }
//!     })?;
//! }
//! let decoded = stream.finish(Eof::Clean);
//! assert_eq!(shown, "Hello");
//! assert_eq!(decoded.signal.reason.as_str(), "natural_completion");
//! # Ok::<(), endstop_core::ModelError>(())
//! ```
//!
//! The decoder ignores the content type, because servers and proxies often send a wrong one. The
//! first bytes distinguish a stream from a JSON body, an HTML page and compressed data. Any input
//! produces a [`Decoded`]; input that is not understood is an error, never a success. A stream is
//! complete if it contained a finish value or the protocol's end marker.

mod conclude;
mod elements;
mod stream;

pub(crate) use conclude::{Broken, Common, Said};
pub use stream::{StreamDecoder, decode_body};

use crate::api::{Dialect, Family};
use crate::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v1, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use endstop_core::{ModelError, ModelTurn, TerminationSignal};

/// Facts about the request that decoding needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// `true` if the request listed stop strings.
    pub stop_strings: bool,
    /// Output cap of the request, in tokens.
    pub output_cap: Option<u64>,
}

/// An increment of a streamed turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<'a> {
    /// Visible text.
    Text(&'a str),
    /// Reasoning in plain text.
    Reasoning(&'a str),
    /// Text of a refusal, if the provider reports refusals separately from text.
    Refusal(&'a str),
    /// Start of a tool call.
    ToolCallStarted {
        /// Position of the call among the turn's calls, from 0.
        index: usize,
        /// Name of the tool.
        name: &'a str,
    },
    /// A fragment of a tool call's arguments.
    ToolArguments {
        /// Position of the call.
        index: usize,
        /// Fragment of JSON text.
        json: &'a str,
    },
}

impl Delta<'_> {
    /// Number of bytes of generated text in this delta.
    fn bytes(&self) -> u64 {
        let text = match self {
            Delta::Text(text) | Delta::Reasoning(text) | Delta::Refusal(text) => text,
            Delta::ToolCallStarted { name, .. } => name,
            Delta::ToolArguments { json, .. } => json,
        };
        text.len() as u64
    }
}

/// The way a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The server closed it.
    Clean,
    /// The connection was reset.
    Reset,
}

/// A decoded response.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Content and usage. In addition to an error, this holds what arrived before the error.
    pub turn: Option<ModelTurn>,
    /// The error that the response is or contains, or that ended it.
    pub error: Option<ModelError>,
    /// Reason why generation stopped. Always `error_termination` if `error` is set.
    pub signal: TerminationSignal,
    /// `true` if the response was a stream of events.
    pub streamed: bool,
    /// `true` if a finish value or the protocol's end marker arrived.
    pub complete: bool,
    /// `true` if the deciding field was missing or null. An empty string counts as a value.
    pub value_missing: bool,
    /// The provider's own statement about retrying, if it sent one.
    pub should_retry: Option<bool>,
}

pub(crate) type DeltaSink<'s> = &'s mut dyn FnMut(Delta<'_>);

/// State machine that collects a response in one wire format. Each format's folder implements it.
pub(crate) trait Accumulate: Send {
    /// Takes one event of a stream. Returns an error if its JSON cannot be parsed.
    fn event(
        &mut self,
        name: &str,
        data: &str,
        sink: DeltaSink<'_>,
    ) -> Result<(), serde_json::Error>;
    /// Takes a complete JSON body.
    fn body(&mut self, json: &str) -> Result<(), serde_json::Error>;
    /// Returns the state that all formats share.
    fn common(&mut self) -> &mut Common;
    /// Returns the collected content after the last event.
    fn conclude(self: Box<Self>, facts: &RequestFacts) -> (Common, Said);
}

pub(crate) fn accumulator(dialect: &'static Dialect) -> Box<dyn Accumulate> {
    match dialect.family {
        Family::OpenAiChat => Box::new(openai_chat::Accumulator::new(dialect)),
        Family::Anthropic => Box::new(anthropic::Accumulator::new()),
        Family::Gemini => Box::new(gemini::Accumulator::new()),
        Family::OpenAiResponses => Box::new(openai_responses::Accumulator::new(dialect)),
        Family::CohereV2 => Box::new(cohere_v2::Accumulator::default()),
        Family::CohereV1 => Box::new(cohere_v1::Accumulator::default()),
        Family::Ollama => Box::new(ollama::Accumulator::new()),
        Family::BedrockConverse => Box::new(bedrock_converse::Accumulator::new()),
        Family::BedrockInvoke => Box::new(bedrock_invoke::Accumulator::new()),
    }
}
