//! Parked runs: a run that needs a decision is written to its journal and released, so that its
//! process may exit. The decision comes later, from any process, and the run is then resumed.
//!
//! ```
//! # #[cfg(feature = "journal")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use endstop::hook::ParkApprovals;
//! use endstop::journal::SqliteJournal;
//! use endstop::park::{Answer, RunStatus};
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::tool::{ToolOutput, tool_fn};
//! use endstop::{Agent, Permission, Resume};
//! use serde_json::{Value, json};
//!
//! # let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
//! let agent = |script: Vec<Turn>| {
//!     let remove = tool_fn("remove", "Removes.", |_: Value, _| async { ToolOutput::ok("removed") });
//!     Agent::builder(ScriptedModel::new(script))
//!         .tool(remove)
//!         .permission("remove", Permission::Ask)
//!         .approver(ParkApprovals::new())
//!         .journal(journal.clone())
//!         .build()
//! };
//! let run = agent(vec![Turn::call("remove", &json!({"path": "a"}))])?.run("Clean up.")?;
//! let id = run.run_id().to_owned();
//! let RunStatus::Parked(request) = run.wait_for_status().await else { panic!("it asks") };
//! assert_eq!(request.subject, r#"{"path":"a"}"#);
//!
//! // Maybe hours later, in another process:
//! let answer = Answer::approve().digest(&request.digest);
//! let run = agent(vec![Turn::text("Done.")])?.resume(Resume::new(id).answer(answer))?;
//! assert!(run.outcome().await.is_success());
//! # Ok(()) }
//! # #[cfg(not(feature = "journal"))] fn main() {}
//! ```
//!
//! The journal holds three records for a request, in this order:
//!
//! | record | written by | when |
//! |---|---|---|
//! | `parked` | the process of the run | before it releases the run |
//! | `decided` | [`SqliteJournal::answer`], [`Resume::answer`], or the resumed run if the request has expired | once; the first one counts |
//! | `answered` | the resumed run | before the call starts |
//!
//! A process that dies before `answered` is written has not started the call. One that dies after
//! it may have: the resumed run reports the call as one that may have run, and does not repeat it,
//! even if its tool is repeatable.
//!
//! [`SqliteJournal::answer`]: crate::journal::SqliteJournal::answer
//! [`Resume::answer`]: crate::Resume::answer

mod answer;
mod history;
mod request;
mod status;

pub(crate) use answer::decided;
pub use answer::{Answer, AnswerRefused};
pub use endstop_core::{Park, ParkDecision, ParkRequest, RequestKind};
pub(crate) use history::ParkHistory;
pub(crate) use request::Subject;
pub use status::{ParkedRun, RunStatus};
