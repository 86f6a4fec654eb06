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
mod driver;
mod guest_journal;
mod handle;
mod recorder;
mod session;
mod setup;
mod shared;
mod start;
mod stored;
mod typed;
mod user_code;

pub use agent_tool::AgentTool;
pub use guest_journal::{GuestJournal, GuestRecord};
pub use handle::RunHandle;
pub use handle::approvals::{AnswerError, Approval, Approvals};
pub use handle::steering::{SteerError, Steering, check_text};
pub use handle::streams::{EventBytes, OwnEvents, TextStream};
pub use session::{Session, SessionSnapshot};
pub use setup::build_error::BuildError;
pub use setup::builder::AgentBuilder;
pub use shared::{Agent, Lifecycle};
pub use start::conversation::RunInput;
pub use start::start_error::StartError;
pub use stored::branch::Branch;
pub use stored::cancel_parked::cancel_parked;
pub use stored::end_interrupted::end_interrupted;
pub use stored::resume::Resume;
pub use typed::{NoValue, TypedHandle, TypedOutcome};

/// Returns a new id for a run, for [`RunInput::id`]: ten lower-case letters and digits.
pub fn new_run_id() -> String {
    crate::clock::run_id()
}
