//! The journal: what a run did, kept as it does it, so that it goes on after its process died and
//! anybody can say later why it ended.
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
//! // The same events give the same outcome, to the byte.
//! let again = run.replay(None)?;
//! assert_eq!(serde_json::to_string(again.outcome().unwrap())?, serde_json::to_string(&outcome)?);
//! # Ok(()) }
//! # #[cfg(not(feature = "journal"))] fn main() {}
//! ```
//!
//! A record is written before what it asks for is done: the event that came, and the effects that
//! the kernel wants performed. The kernel decides by its events alone, so that the list of them is
//! the run: to explain it, to replay it, and to go on with it ([`AgentLoop::resume`]).
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

/// Where runs are kept.
pub trait Journal: Send + Sync {
    /// A run begins. Nothing of it was done yet.
    ///
    /// # Errors
    /// It cannot be kept.
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError>;

    /// A run that is kept, whole.
    ///
    /// # Errors
    /// There is none of this id, or nothing of it can be read.
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError>;

    /// Goes on with a run that has not ended, behind its last event.
    ///
    /// # Errors
    /// There is none of this id, it has ended, or another process drives it.
    fn go_on(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError>;
}

/// Where one run is kept.
pub trait RunJournal: Send {
    /// Keeps these, all or none, behind those before. They are kept when this returns: a process
    /// that is killed then does not lose them.
    ///
    /// # Errors
    /// They are not kept, and may be given again with what comes next.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// As [`append`](Self::append), if that needs no waiting: neither for a disk, nor for another
    /// process, nor for another run. `None`: nothing was written, and `append` is called on a thread
    /// that may block. The default never tries.
    fn try_append(&mut self, records: &[Record]) -> Option<Result<(), JournalError>> {
        let _ = records;
        None
    }

    /// Stores the messages that the run ended with, without `keys` and apart from its outcome, so that
    /// runs of one conversation share them. Called right before [`ended`](Self::ended), with which they
    /// may be written. The default does not: it returns `false`, and the outcome's text contains them.
    fn messages(&mut self, messages: &[Message], keys: &KnownKeys) -> bool {
        let _ = (messages, keys);
        false
    }

    /// The run has ended; nothing comes after it. `text` is the outcome as JSON, without the keys that
    /// are known; its list of messages is empty if [`messages`](Self::messages) took them.
    ///
    /// # Errors
    /// The outcome is not kept; it follows from the records.
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError>;
}

/// One step of a run: what the kernel was told, and what it asked for then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When, on the run's clock.
    pub at: Duration,
    /// When, in Unix milliseconds.
    pub wall_ms: u64,
    /// The event's name, as its JSON has it: `turn_ended`.
    pub name: String,
    /// The event as JSON. The events are the run.
    pub event: String,
    /// What the kernel asked for then, as a JSON array: it is about to be done. It follows from the
    /// events, and is kept for whoever reads, and to notice a kernel that decides otherwise.
    pub effects: Option<String>,
}

/// What is wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalError {
    /// The journal: its file.
    pub journal: String,
    /// What is wrong, and what to do.
    pub problem: String,
    /// Why, as far as a program may want to know.
    pub kind: JournalErrorKind,
}

/// Why a journal does not do what was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// It cannot be opened, read or written: no such folder, no permission, a full disk.
    Io,
    /// Another process holds it, or the run.
    Busy,
    /// It is damaged, or no journal.
    Damaged,
    /// A later version of Endstop made it.
    Newer,
    /// There is no such run.
    NotFound,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.journal, self.problem)
    }
}

impl std::error::Error for JournalError {}
