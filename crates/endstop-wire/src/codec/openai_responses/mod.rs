//! OpenAI Responses API, and the servers that imitate it.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's events into a turn |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//! | `items` | defines which items the client must answer, and how |
//! | `metadata` | detects the signal of a response that another library parsed |
//!
//! A response is a list of items. Reasoning is stored twice: as plain text in
//! [`endstop_core::Part::Reasoning`], to show and count it, and as the complete item in
//! [`endstop_core::Part::Opaque`], to send it back. Items of the server's own work (searches, code,
//! remote tools) are stored as opaque parts only. An opaque part of type `message` or
//! `function_call` is a mark: it holds the fields (`id`, `phase`, `caller`, `namespace`) that the
//! next message or call carries when it is sent back. Every other call for the client
//! (`custom_tool_call`, `shell_call` and others) is a [`endstop_core::Part::ToolCall`] after its
//! item, which is sent back unchanged.
//!
//! The status inside the last event decides, not the event's name. The server does not store a
//! response that did not end, so its items cannot be referenced and such a turn has no opaque
//! parts.

mod decode;
mod encode;
mod items;
mod metadata;
mod parts;
mod read;
mod wire;
mod write;

use crate::codec::format::{Format, ResponseWriter};
use crate::codec::openai_chat;
use crate::codec::response::write::sse;
use decode::Accumulator;
use encode::Encoder;
pub use metadata::{detect_metadata, detect_xai_metadata};

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|_, spec| Box::new(Encoder::new(spec))),
    read: |_| Some(&read::READER),
    decode: |dialect, _| Box::new(Accumulator::new(dialect)),
    write: Some(&WRITER),
    error: openai_chat::write::error,
    unknown_response: Some(write::unknown_response),
};

static WRITER: ResponseWriter = ResponseWriter {
    body: write::body,
    events: write::events,
    frame: sse,
    watch: write::Following::start,
};
