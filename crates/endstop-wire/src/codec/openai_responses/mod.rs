//! OpenAI's Responses, and the servers that speak it.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's events into a turn |
//! | `wire` | the shapes on the wire |
//! | `items` | which items are the client's to answer, and with what |
//! | `metadata` | the signal of a response that someone else parsed |
//! | `xai` | the same of xAI's |
//!
//! A response is a list of items. Reasoning is kept twice: in clear as
//! [`endstop_core::Part::Reasoning`], to show and count, and whole as
//! [`endstop_core::Part::Opaque`], to send back. Items of the server's own work (searches, code,
//! remote tools) are opaque alone. An opaque part of type `message` or `function_call` is a mark: it
//! has the fields (`id`, `phase`, `caller`, `namespace`) that the next message or call goes back
//! with. Every other call that waits for the client (`custom_tool_call`, `shell_call` …) is a
//! [`endstop_core::Part::ToolCall`] behind its item, which goes back as it came.
//!
//! The status inside the last event decides, not the event's name. A response that came to no end
//! is not stored, so none of its items can be named again: it has no opaque parts.

mod decode;
mod encode;
mod items;
mod metadata;
mod wire;
mod xai;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
pub use metadata::detect_metadata;
pub use xai::detect_xai_metadata;
