//! The agent loop: an [`Agent`] starts any number of concurrent runs, each with one outcome, and a
//! [`Session`] holds a conversation of several runs.
//!
//! ```
//! use endstop::{Agent, Termination};
//! use endstop::testkit::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([Turn::text("The capital of France is Paris.")]);
//! let agent = Agent::builder(model).system("Be brief.").build()?;
//! let outcome = agent.run("What is the capital of France?")?.outcome().await;
//! assert_eq!(outcome.termination, Termination::Stop);
//! # Ok(()) }
//! ```
//!
//! A run, a session and an agent can each be cancelled and terminated. [`cancel`](Agent::cancel)
//! stops the runs in progress, and others can start afterwards; [`terminate`](Agent::terminate) is
//! final. Both return at once, can be called from any thread, never fail, and also stop open streams
//! and the processes of tools.

mod agent_tool;
mod approvals;
mod branch;
mod build_error;
mod builder;
mod cancel_parked;
mod config;
mod consult;
mod conversation;
mod driver;
mod end_interrupted;
mod ending;
mod guest_journal;
mod handle;
#[cfg(all(test, endstop_loom))]
mod loom_tests;
mod off_thread;
mod pending;
mod policy;
mod recorder;
mod resume;
mod retold;
mod run_hooks;
mod run_setup;
mod session;
mod session_state;
mod shared;
mod start_error;
mod steering;
mod streams;
mod typed;
mod user_code;

pub use agent_tool::AgentTool;
pub use approvals::{AnswerError, Approval, Approvals};
pub use branch::Branch;
pub use build_error::BuildError;
pub use builder::AgentBuilder;
pub use cancel_parked::cancel_parked;
pub use conversation::RunInput;
pub use end_interrupted::end_interrupted;
pub use guest_journal::{GuestJournal, GuestRecord};
pub use handle::RunHandle;
pub use resume::Resume;
pub use session::{Session, SessionSnapshot};
pub use shared::{Agent, Lifecycle};
pub use start_error::StartError;
pub use steering::{SteerError, Steering, check_text};
pub use streams::{EventBytes, OwnEvents, TextStream};
pub use typed::{NoValue, TypedHandle, TypedOutcome};

/// Returns a new id for a run, for [`RunInput::id`]: ten lower-case letters and digits.
pub fn new_run_id() -> String {
    crate::clock::run_id()
}
