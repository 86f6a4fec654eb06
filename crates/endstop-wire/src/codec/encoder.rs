//! What is asked of a model, the same for every format, and its encoding, which only ever appends.
//!
//! ```
//! use endstop_core::{Message, MessageId, Role};
//! use endstop_wire::{Encoder, RequestSpec, dialect};
//! let spec = RequestSpec { model: "gpt-5".into(), ..RequestSpec::default() };
//! let mut encoder = Encoder::new(dialect::OPENAI_CHAT, &spec);
//! let mut messages = vec![Message::text(MessageId(1), Role::User, "Hello")];
//! let first = encoder.body(&messages, 0, Some(256)).to_vec();
//! messages.push(Message::text(MessageId(2), Role::Assistant, "Hi."));
//! let second = encoder.body(&messages, 0, Some(128)); // encodes the new message alone
//! assert!(second.len() > first.len());
//! ```
//!
//! A history is append-only within an epoch: what was encoded stays encoded, and a turn costs its
//! new messages. Another epoch, or a history that is not the old one with more at its end, is
//! encoded anew.

use super::request::RequestSpec;
use super::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use crate::dialect::{Dialect, Family};
use endstop_core::Message;

/// Encodes requests of one conversation.
#[derive(Clone, Debug)]
pub enum Encoder {
    /// OpenAI's chat completions.
    OpenAiChat(openai_chat::Encoder),
    /// Anthropic's messages.
    Anthropic(anthropic::Encoder),
    /// Google's `generateContent`.
    Gemini(gemini::Encoder),
    /// OpenAI's Responses.
    OpenAiResponses(openai_responses::Encoder),
    /// Cohere's `/v2/chat`.
    CohereV2(cohere_v2::Encoder),
    /// A format that is only read: nothing is sent.
    ReadOnly,
    /// Ollama's `/api/chat`.
    Ollama(ollama::Encoder),
    /// Bedrock's Converse.
    BedrockConverse(bedrock_converse::Encoder),
    /// Bedrock's InvokeModel, for Anthropic's models.
    BedrockInvoke(bedrock_invoke::Encoder),
}

impl Encoder {
    /// An encoder for this dialect. That of a format that is only read ([`Family::read_only`])
    /// makes empty bodies, which no server takes: look before you ask.
    pub fn new(dialect: &Dialect, spec: &RequestSpec) -> Encoder {
        match dialect.family {
            Family::OpenAiChat => Encoder::OpenAiChat(openai_chat::Encoder::new(dialect, spec)),
            Family::Anthropic => Encoder::Anthropic(match dialect.version_in_body {
                Some(version) => anthropic::Encoder::addressed(spec, version, spec.stream),
                None => anthropic::Encoder::new(spec),
            }),
            Family::Gemini => Encoder::Gemini(gemini::Encoder::new(spec)),
            Family::OpenAiResponses => {
                Encoder::OpenAiResponses(openai_responses::Encoder::new(spec))
            }
            Family::CohereV2 => Encoder::CohereV2(cohere_v2::Encoder::new(spec)),
            Family::CohereV1 => Encoder::ReadOnly,
            Family::Ollama => Encoder::Ollama(ollama::Encoder::new(spec)),
            Family::BedrockConverse => {
                Encoder::BedrockConverse(bedrock_converse::Encoder::new(spec))
            }
            Family::BedrockInvoke => Encoder::BedrockInvoke(bedrock_invoke::Encoder::new(spec)),
        }
    }

    /// The body of the next call. `output_cap` lowers (or raises) the spec's cap for this call.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        match self {
            Encoder::OpenAiChat(e) => e.body(messages, epoch, output_cap),
            Encoder::Anthropic(e) => e.body(messages, epoch, output_cap),
            Encoder::Gemini(e) => e.body(messages, epoch, output_cap),
            Encoder::OpenAiResponses(e) => e.body(messages, epoch, output_cap),
            Encoder::CohereV2(e) => e.body(messages, epoch, output_cap),
            Encoder::ReadOnly => &[],
            Encoder::Ollama(e) => e.body(messages, epoch, output_cap),
            Encoder::BedrockConverse(e) => e.body(messages, epoch, output_cap),
            Encoder::BedrockInvoke(e) => e.body(messages, epoch, output_cap),
        }
    }
}
