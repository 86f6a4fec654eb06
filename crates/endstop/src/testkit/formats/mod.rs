//! Encodes a scripted turn in each wire format: one file per format, each with a complete `body`
//! and the `events` of a stream.

pub(super) mod anthropic;
mod bedrock_converse;
mod bedrock_invoke;
pub(super) mod cohere_v2;
pub(super) mod gemini;
pub(super) mod ollama;
pub(super) mod openai_chat;
pub(super) mod openai_responses;
mod parts;
mod reply;
