//! Cancels a parked run, which no process drives.
//!
//! ```text
//! let outcome = cancel_parked(&journal, "4k2v9x0abc")?; // cancelled, and in the journal
//! ```

use crate::agent::recorder::Recorder;
use crate::journal::{DecideError, Journal};
use crate::park::{AnswerRefused, ParkHistory};
use endstop_core::{Event, EventKind, Outcome};
use endstop_wire::redact::KnownKeys;

/// Cancels a [parked](crate::park) run. It ends as `cancelled`, and its journal has the outcome; the
/// call that waits for a decision does not run. Blocks the thread while it reads and writes.
///
/// A run that a process drives is cancelled there ([`RunHandle::cancel`](crate::RunHandle::cancel)).
///
/// # Errors
/// The run is not parked, has ended, or is driven by a live process; its policy was built in code,
/// so it has to be resumed and cancelled with that code; the journal cannot be read or written.
pub fn cancel_parked(journal: &dyn Journal, run: &str) -> Result<Outcome, DecideError> {
    // Dropping the log on an error releases the run again.
    let log = journal.resume(run)?;
    let recorded = journal.load(run)?;
    let not_parked = || AnswerRefused::NotParked { run: run.to_owned() };
    if ParkHistory::of(&recorded.events).open().is_none() {
        return Err(not_parked().into());
    }
    let mut replay = recorded.replay(None)?;
    let event = Event::new(replay.at(), EventKind::Cancel);
    let effects = replay.feed(event.clone()).to_vec();
    let mut outcome = replay.into_outcome().ok_or_else(not_parked)?;
    // The records that were read have no secrets, so none can be in the new ones.
    let mut recorder = Recorder::new(journal, log, KnownKeys::default());
    recorder.keep(&event, &effects, None);
    recorder.ended(&mut outcome);
    match recorder.failure() {
        Some(problem) => Err(problem.into()),
        None => Ok(*outcome),
    }
}
