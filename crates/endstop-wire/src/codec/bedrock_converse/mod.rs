//! Amazon Bedrock `Converse` and `ConverseStream`.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's messages into a turn |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//!
//! The URL names the model and asks for a stream. A stream consists of binary frames
//! ([`crate::stream::eventstream`]); their payloads are also accepted as JSON, one object per line. A
//! stream ends with `messageStop`, which carries the finish value, and `metadata`, which carries
//! the usage. A turn is complete once it has the first, and reading stops once both have arrived.
//!
//! Reasoning is stored twice: as plain text in [`endstop_core::Part::Reasoning`], to show and count
//! it, and, if it is signed or redacted, as a complete block in [`endstop_core::Part::Opaque`], to
//! send it back. Blocks of the server's own work (a tool of `type` `server_tool_use` and its
//! result, citations) are stored as opaque parts only.

mod decode;
mod encode;
pub(super) mod read;
mod wire;
pub(super) mod write;

use crate::codec::format::{Format, ResponseWriter};
use crate::codec::response::write::event_frame;
pub(super) use decode::Accumulator;
use encode::Encoder;

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|_, spec| Box::new(Encoder::new(spec))),
    read: |_| Some(&read::READER),
    decode: |_, _| Box::new(Accumulator::new()),
    write: Some(&WRITER),
    error: write::error,
    unknown_response: None,
};

static WRITER: ResponseWriter = ResponseWriter {
    body: write::body,
    events: write::events,
    frame: event_frame,
    watch: write::Following::start,
};
