//! The journal: records what a run does while it does it, so that the run can be resumed after its
//! process died, replayed, and explained later.
//!
//! ```
//! # #[cfg(feature = "journal")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use endstop::AgentLoop;
//! use endstop::journal::SqliteJournal;
//! use endstop::testkit::{ScriptedModel, Turn};
//!
//! # let dir = tempfile::tempdir()?;
//! let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
//! let model = ScriptedModel::new([Turn::text("Paris.")]);
//! let agent = AgentLoop::builder(model).journal(journal.clone()).build()?;
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
//! ([`AgentLoop::resume`]).
//!
//! [`AgentLoop::resume`]: crate::AgentLoop::resume

mod brief;
mod recorded;
mod redaction;
#[cfg(feature = "journal")]
mod sqlite;

pub use brief::brief;
pub(crate) use brief::briefs;
pub use recorded::{Change, RecordedRun, RunHeader};
pub(crate) use redaction::without_secrets;
#[cfg(feature = "journal")]
pub use sqlite::{PruneSpec, Pruned, RunSummary, SqliteJournal};

use endstop_core::{Message, Outcome};
use endstop_wire::redact::KnownKeys;
use std::fmt;
use std::time::Duration;

/// A store for runs.
pub trait Journal: Send + Sync {
    /// Starts the record of a new run, before anything of the run was done.
    ///
    /// # Errors
    /// The run cannot be stored.
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError>;

    /// Loads one complete run.
    ///
    /// # Errors
    /// There is no run with this id, or none of it can be read.
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError>;

    /// Resumes the record of a run that has not ended: new records follow its last event.
    ///
    /// # Errors
    /// There is no run with this id, it has ended, or another process drives it.
    fn go_on(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError>;
}

/// The record of one run.
pub trait RunJournal: Send {
    /// Appends these records, all or none of them. They are stored when this returns: the process
    /// may be killed afterwards without losing them.
    ///
    /// # Errors
    /// None of them is stored. The caller may pass them again together with the next ones.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Appends the records only if that needs no waiting: neither for a disk, nor for another
    /// process, nor for another run. Returns `None` if nothing was written; the caller then calls
    /// [`append`](Self::append) on a thread that may block. The default implementation never tries.
    fn try_append(&mut self, records: &[Record]) -> Option<Result<(), JournalError>> {
        let _ = records;
        None
    }

    /// Stores the messages that the run ended with, without `keys` and apart from its outcome, so
    /// that runs of one conversation share them. Called right before [`ended`](Self::ended), which
    /// may write them in the same transaction. The default implementation returns `false`; the
    /// messages then stay in the text of the outcome.
    fn messages(&mut self, messages: &[Message], keys: &KnownKeys) -> bool {
        let _ = (messages, keys);
        false
    }

    /// Records that the run has ended; nothing follows. `text` is the outcome as JSON, without the
    /// known keys. Its list of messages is empty if [`messages`](Self::messages) took them.
    ///
    /// # Errors
    /// The outcome is not stored. It can still be derived from the records.
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError>;
}

/// One step of a run: an event, and the effects that the kernel requested in response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time since the run began, on the run's clock.
    pub at: Duration,
    /// Wall-clock time in Unix milliseconds.
    pub wall_ms: u64,
    /// Name of the event as in its JSON, for example `turn_ended`.
    pub name: String,
    /// The event as JSON. The events alone determine the run.
    pub event: String,
    /// The requested effects as a JSON array; they are about to be performed. They follow from the
    /// events and are stored for human readers, and so that a replay notices a kernel that decides
    /// differently.
    pub effects: Option<String>,
}

/// Error of a journal operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalError {
    /// Path of the journal's file.
    pub journal: String,
    /// Description of the problem and of how to fix it.
    pub problem: String,
    /// Category of the problem, for programs.
    pub kind: JournalErrorKind,
}

/// Category of a [`JournalError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// The file cannot be opened, read or written: no such folder, no permission, a full disk.
    Io,
    /// Another process has locked the file or drives the run.
    Busy,
    /// The file is damaged, or it is not a journal.
    Damaged,
    /// The file was written by a later version of Endstop.
    Newer,
    /// The journal has no such run.
    NotFound,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.journal, self.problem)
    }
}

impl std::error::Error for JournalError {}
