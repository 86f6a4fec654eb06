//! Cohere's second chat, `/v2/chat`.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request, incrementally |
//! | `decode` | gathers a body or a stream's events into a turn |
//! | `wire` | the shapes on the wire |
//!
//! Thinking, and the plan that a turn with tool calls begins with, are kept twice: in clear as
//! [`endstop_core::Part::Reasoning`], to show and count, and as [`endstop_core::Part::Opaque`], to
//! send back in their own place. Citations are passed over. The tokens are those that the model
//! read and wrote, of which Cohere bills only a part: a cost that is made from them is an upper
//! bound. A call without an id gets one; of two calls with one id the later gets another.

mod decode;
mod encode;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
pub(crate) use wire::{FINISH, count};
