//! OpenAI Chat Completions, and the many servers that imitate it.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's chunks into a turn |
//! | `partial_call` | collects the fragments of a tool call |
//! | `usage` | reads a chunk with its usage |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//!
//! Only choice 0 is read. `function_call`, the old form of a single call, becomes a tool call, and
//! a call without a name is a placeholder that is ignored. A call without an id receives one. Of
//! two calls with the same id the later receives another, because results refer to calls by id.

mod decode;
mod encode;
mod partial_call;
pub(super) mod read;
mod usage;
mod wire;
pub(super) mod write;

use crate::codec::format::{Format, ResponseWriter};
use crate::codec::response::write::sse;
pub(super) use decode::Accumulator;
use encode::Encoder;

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|dialect, spec| Box::new(Encoder::new(dialect, spec))),
    read: |_| Some(&read::READER),
    decode: |dialect, facts| Box::new(Accumulator::new(dialect, facts.has_alternatives)),
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
