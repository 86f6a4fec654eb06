//! Converse and `ConverseStream` of Amazon Bedrock.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's messages into a turn |
//! | `wire` | the shapes on the wire |
//!
//! The address says the model and whether to stream. A stream is one of binary frames
//! ([`crate::stream::eventstream`]); what they carry is also read as JSON, an object a line. It ends with
//! `messageStop`, which has the finish value, and `metadata`, which has the usage: complete is what
//! has the first, and nothing more is read once both are there.
//!
//! Reasoning is kept twice: in clear as [`endstop_core::Part::Reasoning`], to show and count, and
//! where it is signed or redacted whole as [`endstop_core::Part::Opaque`], to send back. Blocks of
//! the server's own work (a tool of `type` `server_tool_use` and its result, citations) are opaque
//! alone.

mod decode;
mod encode;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
