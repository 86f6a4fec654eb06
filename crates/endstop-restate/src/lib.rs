//! Durable, distributed runs: one run is one workflow of [Restate](https://restate.dev), and any
//! worker can continue it after another one has died.
//!
//! An [`Attempt`] drives a run in this process, one [`Step`] at a time. The engine stores each step
//! before the run continues; after a crash, another attempt resumes the run from the stored steps, as
//! a local journal does. Work whose result is stored is never repeated.
//!
//! ```
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::{Agent, Limits};
//! use endstop_restate::{AgentSource, Attempt, BuiltAgent, Past, RunPlan, StepEnd, Task};
//! use std::sync::Arc;
//!
//! struct Greeter;
//! impl AgentSource for Greeter {
//!     fn limits(&self) -> Limits {
//!         Limits::default()
//!     }
//!     fn build(&self, plan: &RunPlan) -> Result<BuiltAgent, String> {
//!         let agent = Agent::builder(ScriptedModel::new([Turn::text("Hello.")]))
//!             .limits(plan.limits.clone())
//!             .journal(plan.journal.clone())
//!             .build()
//!             .map_err(|error| error.to_string())?;
//!         Ok(BuiltAgent { agent, secrets: Default::default(), resources: Box::new(()) })
//!     }
//! }
//!
//! # #[tokio::main] async fn main() {
//! let task = Task {
//!     id: "r1".to_owned(),
//!     task: "Greet.".to_owned(),
//!     limits: Limits::default(),
//!     source: Arc::new(Greeter),
//!     fork: None,
//!     trace_parent: None,
//! };
//! let mut past = Past::default();
//! let mut attempt = Attempt::begin(task, Arc::new(past.clone()), None, None);
//! let outcome = loop {
//!     let step = attempt.next().await;
//!     past.take(&step); // an engine stores it here
//!     attempt.stored();
//!     if let Some(StepEnd::Ended { outcome }) = step.end {
//!         break outcome;
//!     }
//! };
//! assert!(outcome.contains(r#""termination":"stop""#));
//! # }
//! ```
//!
//! With the feature `engine` the crate has the services of a worker: the workflow of a run, an object
//! that ends killed runs, and shared budgets.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod agents;
mod attempt;
mod bridge;
mod catalog;
#[cfg(feature = "engine")]
mod clock;
mod ending;
#[cfg(feature = "engine")]
pub mod engine;
mod export;
mod files;
mod fork;
mod letter;
mod letterbox;
mod report;
mod request;
#[cfg(feature = "serve")]
pub mod serve;
mod step;
mod store;

pub use agents::{AgentSource, Agents, BudgetCeiling, BuiltAgent, RunPlan};
pub use attempt::{Attempt, Stopper, Task};
pub use bridge::EngineJournal;
pub use catalog::{Accepted, Began, Catalog, Decision, Entry, Head, HeadState, Summary};
pub use ending::{Cause, end_run};
pub use export::{ExportError, export_run};
pub use fork::Fork;
pub use letter::{Content, Letter, Refusal, RefusalKind, Steered};
pub use letterbox::Steerer;
pub use report::RunReport;
pub use request::{Origin, RunRequest, Stop, check_run_id};
pub use step::{Past, Step, StepEnd, StoredRecord};
pub use store::{Kept, MOST_INLINE, Store, StoreError, Tip};
