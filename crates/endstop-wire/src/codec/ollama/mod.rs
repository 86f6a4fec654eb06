//! Ollama's own format: `/api/chat`.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's objects into a turn |
//! | `wire` | the shapes on the wire |
//!
//! A stream is a JSON object a line; the last one says `done`, and only that makes it complete. A
//! whole answer is one such object. The answers of `/api/generate` are read too.
//!
//! `stop` also ends a turn that asks for tools: a call makes it one. A call without an id gets one,
//! which is never sent back. `load` and `unload` end a request that nobody was asked to answer. A
//! server without `done_reason` says by `done` alone that the answer is whole.
//!
//! Left to itself, the server drops the oldest messages of a conversation that is longer than its
//! context, and says nothing. So a request asks it not to (`truncate`), and tells the context window
//! where it is known (`options.num_ctx`).

mod decode;
mod encode;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
