//! Ollama's native format, `/api/chat`.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `decode` | collects a body or a stream's objects into a turn |
//! | `wire` | JSON shapes of responses |
//!
//! A stream has one JSON object per line. The last one contains `done`, and only that makes the
//! stream complete. A complete answer is a single such object. Answers of `/api/generate` are
//! decoded too.
//!
//! `stop` also ends a turn that requests tools, so the presence of a call decides. A call without
//! an id receives one that is never sent back. `load` and `unload` end a request that asked for no
//! answer. If a server sends no `done_reason`, `done` alone marks the answer as complete.
//!
//! By default, the server silently drops the oldest messages of a conversation that exceeds its
//! context. Requests therefore disable this (`truncate`) and set the context window if it is known
//! (`options.num_ctx`).

mod decode;
mod encode;
mod wire;

pub(crate) use decode::Accumulator;
pub(crate) use encode::Encoder;
