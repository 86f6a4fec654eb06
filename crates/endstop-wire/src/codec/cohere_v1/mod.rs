//! Cohere's first chat, `/v1/chat`: read, not asked.
//!
//! | file | what it does |
//! |---|---|
//! | `decode` | gathers a body or a stream's events into a turn |
//! | `wire` | the shapes on the wire |
//!
//! Recorded responses are understood; requests are made for [`crate::codec::cohere_v2`]. A stream is one
//! of JSON objects, a line each. There is no value for tools: `COMPLETE` with calls is a turn of
//! tools. The calls have no ids, so that each gets one.

mod decode;
mod wire;

pub(crate) use decode::Accumulator;
