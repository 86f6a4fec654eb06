//! Takes over the runs that an earlier process left: each is resumed, starts, or is ended with its
//! type.

use super::drive::dispatch;
use super::found::{Found, found};
use super::live::Live;
use super::parked::is_decided;
use super::row::Ending;
use super::shared::{Parked, Shared, Waiting};
use super::store::StoreError;
use crate::backend::RunState;
use crate::clock::wall_ms;
use endstop::core::ParkRequest;
use endstop::park::ParkedRun;
use std::sync::Arc;

/// Puts the unfinished runs into the queue, those that had started first; parked runs stay parked
/// unless they were decided. May block.
pub(super) fn recover(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let rows = shared.store.unfinished()?;
    let any_parked = rows.iter().any(|row| row.state == RunState::Parked);
    let parked = if any_parked { pending(shared) } else { Vec::new() };
    for row in rows {
        let found = found(shared, &row.id, row.state);
        let resume = matches!(found, Found::Part);
        let live = Arc::new(if resume { Live::resumed() } else { Live::default() });
        if let Some(stop) = row.stop {
            live.stop(stop);
        }
        let (id, request) = (row.id.clone(), row.request.clone());
        let client = row.client.as_str().into();
        let waiting = Waiting { id, client, request, live, resume, is_started: false };
        match found {
            Found::Nothing if row.redacted => {
                // The task as the client wrote it died with the process.
                let why = "the server was restarted before the run started, and its request \
                           contained a secret, which is not stored; start it again";
                shared.end(&waiting, &Ending::interrupted(why));
            }
            Found::Part if row.stop.is_none() && row.state == RunState::Parked => {
                let request = parked.iter().find(|parked| parked.run_id == row.id);
                match request.filter(|parked| !is_decided(parked)) {
                    Some(parked) => stay_parked(shared, waiting, &parked.request),
                    None => shared.enqueue(waiting),
                }
            }
            Found::Nothing | Found::Part => shared.enqueue(waiting),
            // The last process died after the journal had the ending, and before the store had it.
            Found::Ended(ending) => shared.store.ended(&row.id, &ending, wall_ms())?,
        }
    }
    dispatch(shared);
    Ok(())
}

fn pending(shared: &Shared) -> Vec<ParkedRun> {
    shared.journal.pending().unwrap_or_else(|error| {
        // The runs are resumed, and ask again.
        (shared.report)(&error.to_string());
        Vec::new()
    })
}

/// Keeps a run parked, with its events for readers.
fn stay_parked(shared: &Shared, waiting: Waiting, request: &ParkRequest) {
    let frames = match shared.story(&waiting.id) {
        Ok(story) => {
            waiting.live.begin_with_turns(story.turns);
            story.frames.clone()
        }
        Err(error) => {
            (shared.report)(&error.to_string());
            Vec::new()
        }
    };
    waiting.live.feed.continue_with(frames);
    waiting.live.set_open_requests(1);
    let mut state = shared.state();
    state.live.insert(waiting.id.clone(), Arc::clone(&waiting.live));
    let request = Arc::new(request.clone());
    state.parked.insert(waiting.id.clone(), Parked { waiting, request });
}
