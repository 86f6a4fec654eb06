//! The interface of a journal: what a loop asks of it.
//!
//! ```text
//! let mut log = journal.begin(&header)?;
//! log.append(&records)?; // before their effects are performed
//! log.ended(&outcome, &text)?;
//! ```

use super::error::JournalError;
use super::recorded::{RecordedRun, RunHeader};
use endstop_core::{Message, Outcome};
use endstop_wire::redact::KnownKeys;
use std::any::Any;
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
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError>;

    /// Returns the secrets that the journal itself removes from its records. A loop does not split
    /// them over two records, because they would not be recognised in parts.
    fn hidden(&self) -> KnownKeys {
        KnownKeys::default()
    }

    /// Returns the journal as one that writes several runs together (default: it does not).
    fn batch(&self) -> Option<&dyn BatchJournal> {
        None
    }
}

/// A journal that writes several runs together, which costs less than one after the other. What
/// [`Journal::batch`] returns.
pub trait BatchJournal: Journal {
    /// Stores what several runs have to write, in one transaction: either all of it, or nothing.
    /// Returns `false` if nothing was stored; the caller then writes each run separately, which also
    /// shows the run that failed and the reason.
    fn write_together(&self, writes: &mut [RunWrite<'_>]) -> bool;
}

/// The unwritten part of one run, for [`BatchJournal::write_together`].
#[non_exhaustive]
pub struct RunWrite<'w> {
    /// The header of a run that begins with this write, as for [`Journal::begin`].
    pub header: Option<&'w RunHeader>,
    /// The record of the run. It is `None` if the run begins; the journal then sets it.
    pub log: &'w mut Option<Box<dyn RunJournal>>,
    /// The records that follow, as for [`RunJournal::append`].
    pub records: &'w [Record],
    /// The end of the run, after these records.
    pub end: Option<RunEnd<'w>>,
}

/// The end of a run, for [`BatchJournal::write_together`].
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct RunEnd<'w> {
    /// The outcome, without its messages.
    pub outcome: &'w Outcome,
    /// The same as JSON, as for [`RunJournal::ended`].
    pub text: &'w str,
    /// The messages that the run ended with, as for [`BatchRunJournal::messages`].
    pub messages: &'w [Message],
    /// The secrets that the stored messages must not contain.
    pub keys: &'w KnownKeys,
}

/// The record of one run.
pub trait RunJournal: Send {
    /// Appends these records, all or none of them. They are stored when this returns: the process
    /// may be killed afterwards without losing them.
    ///
    /// # Errors
    /// None of them is stored. The caller may pass them again together with the next ones.
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError>;

    /// Releases a run that is [parked](crate::park), so that another process can decide its request
    /// and resume it. Nothing follows. The default implementation does nothing; the journal is then
    /// dropped.
    ///
    /// # Errors
    /// The run is not released before this process ends.
    fn parked(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Records that the run has ended; nothing follows. `text` is the outcome as JSON, without the
    /// known keys. Its list of messages is empty if [`BatchRunJournal::messages`] took them.
    ///
    /// # Errors
    /// The outcome is not stored. It can still be derived from the records.
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError>;

    /// Returns the record as one that saves time or space in other ways (default: it does not).
    fn batch(&mut self) -> Option<&mut dyn BatchRunJournal> {
        None
    }
}

/// A record of a run that saves time or space: what [`RunJournal::batch`] returns. A
/// [`BatchJournal`] recognises its own by their type.
pub trait BatchRunJournal: RunJournal + Any {
    /// Appends the records only if that needs no waiting: neither for a disk, nor for another
    /// process, nor for another run. Returns `None` if nothing was written; the caller then calls
    /// [`append`](RunJournal::append) on a thread that may block.
    fn try_append(&mut self, records: &[Record]) -> Option<Result<(), JournalError>>;

    /// Stores the messages that the run ended with, without `keys` and apart from its outcome, so
    /// that runs of one conversation share them. Called right before [`ended`](RunJournal::ended),
    /// which may write them in the same transaction. If it returns `false`, the messages stay in the
    /// text of the outcome.
    fn messages(&mut self, messages: &[Message], keys: &KnownKeys) -> bool;
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
