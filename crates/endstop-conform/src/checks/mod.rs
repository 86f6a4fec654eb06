//! The checks: one table with the id, the level, the sentence of "How a run
//! ends", and the function that judges the evidence.
//!
//! ```
//! use endstop_conform::{CHECKS, Level};
//! assert!(CHECKS.iter().filter(|check| check.level == Level::Ends).count() > 10);
//! ```
//!
//! - A check does not pass because its situation did not arise: that is [`Verdict::NotReached`].
//! - It is [`Verdict::NotApplicable`] only if the profile declares that the program lacks a capability.

mod accountable;
mod clean;
mod ends;
mod honest;
mod judging;
mod protocol;
mod results;
mod table;
mod verdict;

pub use judging::Observed;
pub use table::{CHECKS, Check, find};
pub(crate) use verdict::not_reached;
pub use verdict::{EDITION, Finding, Level, Severity, Verdict};
