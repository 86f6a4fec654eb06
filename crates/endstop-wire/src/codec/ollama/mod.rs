//! Ollama's native format, `/api/chat`.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's objects into a turn |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//!
//! A stream has one JSON object per line. The last one contains `done`, and only that makes the
//! stream complete. A complete answer is a single such object. Answers of `/api/generate` are
//! decoded too.
//!
//! `stop` also ends a turn that requests tools, so the presence of a call decides. A call without
//! an id receives one that is never sent back. `load` and `unload` end a request that asked for no
//! answer. If a server sends no `done_reason`, `done` alone marks the answer as complete.
//!
//! By default, the server silently drops the oldest messages of a conversation that exceeds its
//! context. Requests therefore disable this (`truncate`) and set the context window if it is known
//! (`options.num_ctx`).

mod decode;
mod encode;
mod read;
mod wire;
mod write;

use crate::codec::format::{Format, ResponseWriter};
use decode::Accumulator;
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
    frame: write::frame,
    watch: write::Following::start,
};
