//! Termination policies: user code that decides after a step, or while a step is streamed, if the
//! run stops.
//!
//! ```
//! use endstop::policy::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::{Agent, Termination};
//!
//! /// Stops as soon as a step says DONE.
//! #[derive(Clone)]
//! struct Done;
//! impl TerminationPolicy for Done {
//!     fn name(&self) -> &str { "done" }
//!     fn should_terminate(&mut self, step: &StepResult, _: &StepContext) -> Verdict {
//!         if step.output.as_deref().is_some_and(|output| output.contains("DONE")) {
//!             Verdict::Stop(Stop::submitted("done", "the text says DONE").answer("DONE"))
//!         } else {
//!             Verdict::Continue
//!         }
//!     }
//!     fn reset(&mut self) {}
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder(ScriptedModel::new([Turn::text("DONE: 42")])).policy(Done).build()?;
//! let outcome = agent.run("What is six times seven?")?.outcome().await;
//! assert_eq!(outcome.termination, Termination::Submitted);
//! # Ok(()) }
//! ```

pub use endstop_core::policy::{
    BoxPolicy, ClonePolicy, Composite, Confident, FinalPattern, PolicyEnd, PolicyError,
    RewardThreshold, StepCall, StepContext, StepOutput, StepResult, Stop, TerminationPolicy,
    Verdict, final_pattern, k_of,
};
pub use endstop_core::registry::{PolicyInfo, Registry};
