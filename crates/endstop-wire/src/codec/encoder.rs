//! Provider-neutral requests ([`RequestSpec`]) and their append-only encoding ([`Encoder`]).
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
//! A history is append-only within an epoch, so encoded bytes are reused and each turn costs only
//! its new messages. If the epoch changes, or if the history does not continue the previous one,
//! the encoder starts again.

use super::request::RequestSpec;
use super::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use crate::dialect::{Dialect, WireFormat};
use endstop_core::Message;

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub struct Encoder(Format);

/// The encoder of each wire format. The large ones are boxed, so that a run of another format does not hold their
/// room.
#[derive(Clone, Debug)]
enum Format {
    /// OpenAI Chat Completions.
    OpenAiChat(openai_chat::Encoder),
    /// Anthropic Messages.
    Anthropic(Box<anthropic::Encoder>),
    /// Google `generateContent`.
    Gemini(Box<gemini::Encoder>),
    /// OpenAI Responses.
    OpenAiResponses(openai_responses::Encoder),
    /// Cohere `/v2/chat`.
    CohereV2(cohere_v2::Encoder),
    /// A format that can only be decoded. Every body is empty.
    ReadOnly,
    /// Ollama `/api/chat`.
    Ollama(ollama::Encoder),
    /// Amazon Bedrock Converse.
    BedrockConverse(Box<bedrock_converse::Encoder>),
    /// Amazon Bedrock InvokeModel, for Anthropic's models.
    BedrockInvoke(Box<bedrock_invoke::Encoder>),
}

impl Encoder {
    /// Creates an encoder for this dialect. If the format can only be decoded
    /// ([`WireFormat::read_only`]), every body is empty and no server accepts it, so check before
    /// sending.
    pub fn new(dialect: &Dialect, spec: &RequestSpec) -> Encoder {
        Encoder(match dialect.family {
            WireFormat::OpenAiChat => Format::OpenAiChat(openai_chat::Encoder::new(dialect, spec)),
            WireFormat::Anthropic => Format::Anthropic(Box::new(match dialect.version_in_body {
                Some(version) => anthropic::Encoder::addressed(spec, version, spec.stream),
                None => anthropic::Encoder::new(spec),
            })),
            WireFormat::Gemini => Format::Gemini(Box::new(gemini::Encoder::new(spec))),
            WireFormat::OpenAiResponses => {
                Format::OpenAiResponses(openai_responses::Encoder::new(spec))
            }
            WireFormat::CohereV2 => Format::CohereV2(cohere_v2::Encoder::new(spec)),
            WireFormat::CohereV1 => Format::ReadOnly,
            WireFormat::Ollama => Format::Ollama(ollama::Encoder::new(spec)),
            WireFormat::BedrockConverse => {
                Format::BedrockConverse(Box::new(bedrock_converse::Encoder::new(spec)))
            }
            WireFormat::BedrockInvoke => {
                Format::BedrockInvoke(Box::new(bedrock_invoke::Encoder::new(spec)))
            }
        })
    }

    /// Returns the body of the next call. `output_cap` overrides the spec's cap for this call only.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        match &mut self.0 {
            Format::OpenAiChat(e) => e.body(messages, epoch, output_cap),
            Format::Anthropic(e) => e.body(messages, epoch, output_cap),
            Format::Gemini(e) => e.body(messages, epoch, output_cap),
            Format::OpenAiResponses(e) => e.body(messages, epoch, output_cap),
            Format::CohereV2(e) => e.body(messages, epoch, output_cap),
            Format::ReadOnly => &[],
            Format::Ollama(e) => e.body(messages, epoch, output_cap),
            Format::BedrockConverse(e) => e.body(messages, epoch, output_cap),
            Format::BedrockInvoke(e) => e.body(messages, epoch, output_cap),
        }
    }

    /// Moves the bytes of the last body out, so that a client can send them without a copy. If they
    /// are not [given back](Self::give_back) before the next body, that one is encoded from its start.
    ///
    /// ```
    /// # use endstop_core::{Message, MessageId, Role};
    /// # use endstop_wire::{Encoder, RequestSpec, dialect};
    /// let mut encoder = Encoder::new(dialect::OPENAI_CHAT, &RequestSpec::default());
    /// let messages = [Message::text(MessageId(1), Role::User, "Hello")];
    /// let first = encoder.body(&messages, 0, None).to_vec();
    /// let sent = encoder.take_body();
    /// assert_eq!(sent, first);
    /// encoder.give_back(sent);
    /// assert_eq!(encoder.body(&messages, 0, None), first);
    /// ```
    pub fn take_body(&mut self) -> Vec<u8> {
        self.bytes().map(std::mem::take).unwrap_or_default()
    }

    /// Returns the bytes of [`take_body`](Self::take_body), which must be unchanged.
    pub fn give_back(&mut self, body: Vec<u8>) {
        if let Some(bytes) = self.bytes() {
            *bytes = body;
        }
    }

    /// Returns the bytes of the last body.
    fn bytes(&mut self) -> Option<&mut Vec<u8>> {
        Some(match &mut self.0 {
            Format::OpenAiChat(e) => e.bytes(),
            Format::Anthropic(e) => e.bytes(),
            Format::Gemini(e) => e.bytes(),
            Format::OpenAiResponses(e) => e.bytes(),
            Format::CohereV2(e) => e.bytes(),
            Format::ReadOnly => return None,
            Format::Ollama(e) => e.bytes(),
            Format::BedrockConverse(e) => e.bytes(),
            Format::BedrockInvoke(e) => e.bytes(),
        })
    }
}
