//! Google `generateContent`, of the Gemini API and of Vertex AI.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `decode` | collects a body or a stream's chunks into a turn |
//! | `arguments` | assembles the arguments of a call that is streamed in fragments |
//! | `wire` | JSON shapes of responses |
//! | `metadata` | detects the signal of a response that another library parsed |
//!
//! Only candidate 0 is read. A stream consists of events (`alt=sse`) or of one JSON array whose
//! elements arrive over time. It has no end marker, so only a finish value makes it complete.
//!
//! `STOP` also ends a turn that requests tools, so the presence of a call decides. A call without
//! an id receives one that is never sent back. Thoughts are stored as plain text in
//! [`endstop_core::Part::Reasoning`], to show and count them; only signed ones are sent back. A
//! `thoughtSignature` is stored as an [`endstop_core::Part::Opaque`] before the text or call that
//! carries it, and is inserted into that part again in the next request. Signed thoughts, signed
//! empty texts and parts of any other kind are stored as opaque parts unchanged.

mod arguments;
mod decode;
mod encode;
mod metadata;
mod wire;

pub(crate) use decode::Accumulator;
pub(crate) use encode::Encoder;
pub use metadata::detect_metadata;
