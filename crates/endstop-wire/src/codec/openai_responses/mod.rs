//! OpenAI Responses API, and the servers that imitate it.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `decode` | collects a body or a stream's events into a turn |
//! | `wire` | JSON shapes of responses |
//! | `items` | defines which items the client must answer, and how |
//! | `metadata` | detects the signal of a response that another library parsed |
//! | `xai` | detects the signal of an xAI response that another library parsed |
//!
//! A response is a list of items. Reasoning is stored twice: as plain text in
//! [`endstop_core::Part::Reasoning`], to show and count it, and as the complete item in
//! [`endstop_core::Part::Opaque`], to send it back. Items of the server's own work (searches, code,
//! remote tools) are stored as opaque parts only. An opaque part of type `message` or
//! `function_call` is a mark: it holds the fields (`id`, `phase`, `caller`, `namespace`) that the
//! next message or call carries when it is sent back. Every other call for the client
//! (`custom_tool_call`, `shell_call` and others) is a [`endstop_core::Part::ToolCall`] after its
//! item, which is sent back unchanged.
//!
//! The status inside the last event decides, not the event's name. The server does not store a
//! response that did not end, so its items cannot be referenced and such a turn has no opaque
//! parts.

mod decode;
mod encode;
mod items;
mod media;
mod metadata;
mod parts;
mod wire;
mod xai;

pub(crate) use decode::Accumulator;
pub(crate) use encode::Encoder;
pub use metadata::detect_metadata;
pub use xai::detect_xai_metadata;
