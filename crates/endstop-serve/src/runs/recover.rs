//! Takes over the runs that an earlier process left: each is resumed, starts, or is ended with its
//! type.

use super::drive::dispatch;
use super::live::Live;
use super::shared::{Shared, Waiting};
use super::store::{Ending, RunRow, RunState, StoreError};
use crate::clock::wall_ms;
use endstop::Outcome;
use endstop::journal::JournalErrorKind;
use std::sync::Arc;

/// Puts the unfinished runs into the queue, those that had started first. May block.
pub(super) fn recover(shared: &Arc<Shared>) -> Result<(), StoreError> {
    for row in shared.store.unfinished()? {
        let found = found(shared, &row);
        let resume = matches!(found, Found::Part);
        let live = Arc::new(if resume { Live::resumed() } else { Live::default() });
        if let Some(stop) = row.stop {
            live.stop(stop);
        }
        let (id, request) = (row.id.clone(), row.request.clone());
        let waiting = Waiting { id, request, live, resume };
        match found {
            Found::Nothing if row.redacted => {
                // The task as the client wrote it died with the process.
                let why = "the server was restarted before the run started, and its request \
                           contained a secret, which is not stored; start it again";
                shared.end(&waiting, &Ending::interrupted(why));
            }
            Found::Nothing | Found::Part => shared.enqueue(waiting),
            Found::Ended(ending) => shared.store.ended(&row.id, &ending, wall_ms())?,
        }
    }
    dispatch(shared);
    Ok(())
}

/// The part of a run that the journal has.
enum Found {
    Nothing,
    Part,
    Ended(Ending),
}

fn found(shared: &Shared, row: &RunRow) -> Found {
    let recorded = match shared.journal.load(&row.id) {
        Ok(recorded) => recorded,
        Err(error) if error.kind == JournalErrorKind::NotFound => return Found::Nothing,
        Err(error) if row.state == RunState::Queued => {
            (shared.report)(&error.to_string());
            return Found::Nothing;
        }
        Err(error) => return Found::Ended(Ending::interrupted(&error.to_string())),
    };
    let Some(outcome) = recorded.outcome else { return Found::Part };
    match serde_json::from_value::<Outcome>(outcome) {
        Ok(outcome) => Found::Ended(Ending::of(&outcome)),
        Err(error) => {
            Found::Ended(Ending::interrupted(&format!("its outcome cannot be read: {error}")))
        }
    }
}
