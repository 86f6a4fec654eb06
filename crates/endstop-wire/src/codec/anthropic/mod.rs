//! Anthropic's messages.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's events into a turn |
//! | `wire` | the shapes on the wire |
//! | `metadata` | the signal of a message that someone else parsed |
//!
//! Thinking is kept twice: in clear as [`endstop_core::Part::Reasoning`], to show and count, and
//! whole with its signature as [`endstop_core::Part::Opaque`], to send back. Blocks of the server's
//! own work (server tools and their results, compaction, fallback) are opaque alone. A `tool_use`
//! block that server-side code called (`caller.type` = `code_execution_…`) is the client's work only
//! where the turn stopped with `tool_use`, that is, where the API waits for it.

mod call_ids;
mod decode;
mod encode;
mod metadata;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
pub use metadata::detect_metadata;
