//! The agent loop that always knows why it stopped.

pub mod schema;
pub mod simulate;

pub use endstop_core as core;
pub use endstop_core::*;
pub use endstop_wire as wire;
