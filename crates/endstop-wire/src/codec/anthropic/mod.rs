//! Anthropic Messages API.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `decode` | collects a body or a stream's events into a turn |
//! | `wire` | JSON shapes of responses |
//! | `metadata` | detects the signal of a message that another library parsed |
//!
//! Thinking is stored twice: as plain text in [`endstop_core::Part::Reasoning`], to show and count
//! it, and as the complete signed block in [`endstop_core::Part::Opaque`], to send it back. Blocks
//! of the server's own work (server tools and their results, compaction, fallback) are stored as
//! opaque parts only. A `tool_use` block that server-side code called (`caller.type` =
//! `code_execution_…`) is the client's work only if the turn stopped with `tool_use`, because only
//! then the API waits for its result.

mod call_ids;
mod decode;
mod encode;
mod metadata;
mod wire;

pub(crate) use decode::Accumulator;
pub(crate) use encode::Encoder;
pub use metadata::detect_metadata;
