//! The agent loop: holds a conversation and starts runs on it, one at a time, each with one
//! outcome.
//!
//! ```
//! use endstop::{AgentLoop, Termination};
//! use endstop::testkit::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([Turn::text("The capital of France is Paris.")]);
//! let agent = AgentLoop::builder(model).system("Be brief.").build()?;
//! let outcome = agent.run("What is the capital of France?")?.outcome().await;
//! assert_eq!(outcome.termination, Termination::Stop);
//! # Ok(()) }
//! ```
//!
//! [`cancel`](AgentLoop::cancel) stops the current run; the loop can run again afterwards.
//! [`terminate`](AgentLoop::terminate) stops the loop for good. Both return at once, can be called
//! from any thread, never fail, and also stop open streams and the processes of tools.

mod agent_loop;
mod agent_tool;
mod builder;
mod config;
mod consult;
mod conversation;
mod driver;
mod ending;
mod handle;
#[cfg(all(test, endstop_loom))]
mod loom_tests;
mod pending;
mod policy;
mod recorder;
mod resume;
mod run_setup;
mod shared;
mod start_error;
mod user_code;

pub use crate::compaction::COMPACTION_SHARE;
pub use agent_loop::AgentLoop;
pub use agent_tool::AgentTool;
pub use builder::AgentBuilder;
pub use handle::{AgentEvent, RunHandle, WarningEvent};
pub use resume::Resume;
pub use shared::Lifecycle;
pub use start_error::StartError;
