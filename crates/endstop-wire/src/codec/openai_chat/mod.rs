//! OpenAI's chat completions, and the many servers that speak it.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's chunks into a turn |
//! | `wire` | the shapes on the wire |
//! | `call_id` | ids of calls that a strict server takes |
//!
//! Choice 0 alone is read. `function_call`, the old single form, is a tool call; a call without a
//! name is a placeholder and no call. A call without an id gets one; of two calls with one id the
//! later gets another, since results name calls by it.

mod call_id;
mod decode;
mod encode;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
