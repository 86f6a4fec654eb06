//! Cohere chat API, version 2 (`/v2/chat`).
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `decode` | collects a body or a stream's events into a turn |
//! | `wire` | JSON shapes of responses |
//!
//! Thinking, and the plan at the start of a turn with tool calls, are stored twice: as plain text
//! in [`endstop_core::Part::Reasoning`], to show and count them, and as
//! [`endstop_core::Part::Opaque`], to send them back in their original place. Citations are
//! ignored. Token counts are those that the model read and wrote, of which Cohere bills only a
//! part, so a cost computed from them is an upper bound. A call without an id receives one, and the
//! later of two calls with the same id receives another.

mod decode;
mod encode;
mod wire;

pub(crate) use decode::Accumulator;
pub(crate) use encode::Encoder;
pub(crate) use wire::{FINISH, count};
