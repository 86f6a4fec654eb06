//! Termination policies, which decide if a run stops after a step or while a step is streamed.
//!
//! The kernel shows every step to the policy exactly once. A policy may also read the text while
//! the model generates it ([`TerminationPolicy::on_delta`]); a stop from there aborts the generation.
//! Between runs the kernel calls `reset`.
//!
//! ```
//! use endstop_core::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
//!
//! /// Stops as soon as a step says DONE.
//! #[derive(Clone)]
//! struct Done;
//! impl TerminationPolicy for Done {
//!     fn name(&self) -> &str { "done" }
//!     fn should_terminate(&mut self, step: &StepResult, _: &StepContext) -> Verdict {
//!         if step.output.as_deref().is_some_and(|o| o.contains("DONE")) {
//!             Verdict::Stop(Stop::submitted("done", "the text says DONE").answer("DONE"))
//!         } else {
//!             Verdict::Continue
//!         }
//!     }
//!     fn reset(&mut self) {}
//! }
//! ```
//!
//! Source: the termination policies of RLM Code.

mod combinators;
mod composite;
mod confidence;
pub(crate) mod config;
pub mod final_pattern;
mod reward_threshold;
mod verdict;

pub use combinators::k_of;
pub use composite::Composite;
pub use confidence::Confident;
pub use config::PolicyError;

pub use final_pattern::FinalPattern;

pub use reward_threshold::RewardThreshold;
pub use verdict::{
    BoxPolicy, ClonePolicy, ClosedVerdict, PolicyEnd, PolicyFault, StepCall, StepContext,
    StepOutput, StepResult, Stop, TerminationPolicy, Verdict,
};
