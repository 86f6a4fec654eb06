//! Copies a run from the store of the workers into a journal, where `endstop explain` reads it.

use crate::store::{Store, StoreError};
use endstop::Outcome;
use endstop::core::bounded_json;
use endstop::journal::{Journal, JournalError, JournalErrorKind};

/// The reason why a run cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store has a problem.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal does not take the run, for example because it has it already.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The store has no such run.
    #[error("the store has no run {0}; the workers name the folder of theirs with --store")]
    Unknown(String),
    /// The run has not ended. A journal that had it could resume it, and then two processes would
    /// drive it.
    #[error("run {0} has not ended; export it when it has")]
    Running(String),
}

/// Copies a run that has ended into a journal. Blocks.
///
/// # Errors
/// The store has no such run, or the run has not ended; or the journal cannot store it.
pub fn export_run(store: &Store, run: &str, journal: &dyn Journal) -> Result<(), ExportError> {
    let past = store.past(run)?;
    if past.steps() == 0 {
        return Err(ExportError::Unknown(run.to_owned()));
    }
    let Some(outcome) = past.outcome() else {
        return Err(ExportError::Running(run.to_owned()));
    };
    let mut log = journal.begin(&past.recorded()?.header)?;
    log.append(past.records())?;
    let read: Outcome = bounded_json::from_str(outcome).map_err(|error| {
        let problem = format!("the outcome of run {run} cannot be read: {error}");
        JournalError::new("store", problem, JournalErrorKind::Damaged)
    })?;
    log.ended(&read, outcome)?;
    Ok(())
}
