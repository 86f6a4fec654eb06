//! Looks for a run in the journal.

use super::row::Ending;
use super::shared::Shared;
use crate::backend::RunState;
use endstop::Outcome;
use endstop::journal::JournalErrorKind;

/// The part of a run that the journal has.
pub(super) enum Found {
    Nothing,
    Part,
    Ended(Ending),
}

/// Returns the part of a run that the journal has. `state` is that of the store. May block.
pub(super) fn found(shared: &Shared, id: &str, state: RunState) -> Found {
    let recorded = match shared.journal.load(id) {
        Ok(recorded) => recorded,
        Err(error) if error.kind == JournalErrorKind::NotFound => return Found::Nothing,
        Err(error) if state == RunState::Queued => {
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
