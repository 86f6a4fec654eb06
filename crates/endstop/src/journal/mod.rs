//! The journal: records what a run does while it does it, so that the run can be resumed after its
//! process died, replayed, and explained later.
//!
//! ```
//! # #[cfg(feature = "journal")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use endstop::Agent;
//! use endstop::journal::SqliteJournal;
//! use endstop::testkit::{ScriptedModel, Turn};
//!
//! # let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
//! let model = ScriptedModel::new([Turn::text("Paris.")]);
//! let agent = Agent::builder(model).journal(journal.clone()).build()?;
//! let outcome = agent.run("What is the capital of France?")?.outcome().await;
//!
//! let run = journal.load(outcome.run_id.as_deref().unwrap_or_default())?;
//! // The same events give the same outcome, byte for byte.
//! let again = run.replay(None)?;
//! assert_eq!(serde_json::to_string(again.outcome().unwrap())?, serde_json::to_string(&outcome)?);
//! # Ok(()) }
//! # #[cfg(not(feature = "journal"))] fn main() {}
//! ```
//!
//! A record holds an event and the effects that the kernel requested in response. It is written
//! before those effects are performed, because a process that is killed in between must know on
//! resume what may already have happened. The kernel decides from its events alone, so the list of
//! events is the run: it is enough to explain it, to replay it, and to resume it
//! ([`Agent::resume`]).
//!
//! [`Agent::resume`]: crate::Agent::resume

mod brief;
mod error;
mod interface;
mod prefix;
mod recorded;
mod redaction;
#[cfg(feature = "journal")]
mod sqlite;
mod stored;

pub use brief::brief;
pub(crate) use brief::briefs;
pub use error::{DecideError, JournalError, JournalErrorKind};
pub use interface::{BatchJournal, BatchRunJournal, Journal, Record, RunEnd, RunJournal, RunWrite};
pub use prefix::{Prefix, PrefixError};
pub use recorded::{Change, RecordedRun, RunHeader};
pub(crate) use redaction::{with_one_more, without_secrets};
#[cfg(feature = "journal")]
pub use sqlite::{
    BranchSummary, Period, PruneSpec, Pruned, RunSpending, RunSummary, SpendBooks, SpendBudget,
    SpendCeilings, SqliteJournal,
};
