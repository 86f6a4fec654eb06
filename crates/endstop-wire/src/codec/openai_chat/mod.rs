//! OpenAI Chat Completions, and the many servers that imitate it.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `decode` | collects a body or a stream's chunks into a turn |
//! | `partial_call` | collects the fragments of a tool call |
//! | `usage` | reads a chunk with its usage |
//! | `wire` | JSON shapes of responses |
//! | `call_id` | derives call ids that a strict server accepts |
//!
//! Only choice 0 is read. `function_call`, the old form of a single call, becomes a tool call, and
//! a call without a name is a placeholder that is ignored. A call without an id receives one. Of
//! two calls with the same id the later receives another, because results refer to calls by id.

mod call_id;
mod decode;
mod encode;
mod partial_call;
mod usage;
mod wire;

pub(crate) use decode::Accumulator;
pub(crate) use encode::Encoder;
