//! Cohere chat API, version 1 (`/v1/chat`). Decoding only.
//!
//! | file | purpose |
//! |---|---|
//! | `decode` | collects a body or a stream's events into a turn |
//! | `wire` | JSON shapes of responses |
//!
//! Recorded responses are decoded; requests are encoded for [`crate::codec::cohere_v2`] instead. A stream
//! consists of JSON objects, one per line. The format has no finish value for tools, so `COMPLETE`
//! with calls is a turn that requests tools. The calls have no ids, so each receives a generated
//! one.

mod decode;
mod wire;

use crate::codec::cohere_v2;
use crate::codec::format::Format;
use decode::Accumulator;

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: None,
    read: |_| None,
    decode: |_, _| Box::new(Accumulator::default()),
    write: None,
    error: cohere_v2::write::error,
    unknown_response: None,
};
