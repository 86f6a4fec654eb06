//! Cohere chat API, version 2 (`/v2/chat`).
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's events into a turn |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//!
//! Thinking, and the plan at the start of a turn with tool calls, are stored twice: as plain text
//! in [`endstop_core::Part::Reasoning`], to show and count them, and as
//! [`endstop_core::Part::Opaque`], to send them back in their original place. Citations are
//! ignored. Token counts are those that the model read and wrote, of which Cohere bills only a
//! part, so a cost computed from them is an upper bound. A call without an id receives one, and the
//! later of two calls with the same id receives another.

mod decode;
mod encode;
mod read;
mod wire;
pub(super) mod write;

use crate::codec::format::{Format, ResponseWriter};
use crate::codec::response::write::sse;
use decode::Accumulator;
use encode::Encoder;
pub(crate) use wire::{FINISH, count};

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|_, spec| Box::new(Encoder::new(spec))),
    read: |_| Some(&read::READER),
    decode: |_, _| Box::new(Accumulator::default()),
    write: Some(&WRITER),
    error: write::error,
    unknown_response: None,
};

static WRITER: ResponseWriter = ResponseWriter {
    body: write::body,
    events: write::events,
    frame: sse,
    watch: write::Following::start,
};
