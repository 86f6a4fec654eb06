//! Google's `generateContent`, of the Gemini API and of Vertex AI.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's chunks into a turn |
//! | `arguments` | puts together the arguments of a call that is streamed in pieces |
//! | `wire` | the shapes on the wire |
//! | `metadata` | the signal of a response that someone else parsed |
//!
//! Candidate 0 alone is read. A stream is one of events (`alt=sse`) or one JSON array whose elements
//! come over time; it has no end of its own, so that only a finish value makes it complete.
//!
//! `STOP` also ends a turn that asks for tools: a call makes it one. A call without an id gets one,
//! which is never sent back. Thoughts are kept in clear as [`endstop_core::Part::Reasoning`], to show
//! and count; only a signed one is sent back. A `thoughtSignature` is an
//! [`endstop_core::Part::Opaque`] before the text or the call that bears it, and is put into that
//! part again when it is sent; signed thoughts, signed empty texts and parts of any other kind are
//! opaque as they came.

mod arguments;
mod decode;
mod encode;
mod metadata;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
pub use metadata::detect_metadata;
