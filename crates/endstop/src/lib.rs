//! The agent loop that always knows why it stopped.

pub mod process;
pub mod provider;
pub mod schema;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod tool;

pub use endstop_core as core;
pub use endstop_core::*;
pub use endstop_wire as wire;
