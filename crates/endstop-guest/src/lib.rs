//! The part of the bindings for Python and Node.js that does not depend on the language: a guest's
//! run with its prices and notes, responses in an unknown format, and values of the kernel by name.
//!
//! ```
//! use endstop_core::{Message, RunSpec};
//! use endstop_guest::pricing::Pricing;
//! use endstop_guest::run_state::{Ask, Handle, RunState};
//! use std::time::Duration;
//! let spec = RunSpec::new(vec![Message::user("Fix the failing test.")]);
//! let mut run = RunState::new(spec, Pricing::new(None, Some("openai/gpt-5")), None);
//! assert!(run.ask(Duration::ZERO, &Handle::default(), Ask::default()), "the model may be called");
//! ```

pub mod choice;
mod conversation;
mod declared;
pub mod describe;
pub mod fields;
pub mod limits;
pub mod park;
pub mod pricing;
pub mod response;
pub mod run_state;
pub mod slot;
pub mod stream;
mod ticket;
