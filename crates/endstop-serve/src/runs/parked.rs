//! Parked runs of a server: a run whose requests for approval wait long, or that waits when the
//! server shuts down, is released in its journal and gives up its place. It continues when a client
//! of this server or `endstop answer` has decided, or when its request has expired.
//!
//! ```text
//! running ─► open requests for `park_after`, or a shutdown ─► parked ─► decided or expired ─► queued
//! ```

use super::drive::dispatch;
use super::found::{Found, found};
use super::shared::{Parked, Shared, Waiting};
use super::store::StoreError;
use crate::backend::RunState;
use crate::clock::wall_ms;
use endstop::Approval;
use endstop::event::RequestId;
use endstop::journal::DecideError;
use endstop::park::{Answer, ParkedRun};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval at which decisions of other processes, and expired requests, are looked for.
const CHECKED_EVERY: Duration = Duration::from_secs(2);

/// The reason why a parked run was not decided.
#[derive(Debug)]
pub(crate) enum Undecided {
    /// The run is not parked; it may work again.
    NotParked,
    /// The run is parked with another request.
    AnotherRequest,
    /// Only a live run can take this answer, so the run was put into the queue, and asks again.
    AsksAgain,
    Refused(DecideError),
    Store(StoreError),
}

impl Shared {
    /// Puts a parked run into the queue, before the runs that have not started.
    pub(super) fn unpark(self: &Arc<Self>, id: &str) -> Result<(), StoreError> {
        // First, because a run whose state cannot be stored must stay parked.
        self.store.unparked(id)?;
        let mut state = self.state();
        if let Some(parked) = state.parked.remove(id) {
            parked.waiting.live.resume();
            // Ahead of new runs, because it has started already.
            state.queue.push_front(parked.waiting);
        }
        drop(state);
        dispatch(self);
        Ok(())
    }

    /// Decides the request of a parked run, and puts the run into the queue. May block.
    pub(super) fn decide_parked(
        self: &Arc<Self>,
        id: &str,
        request: RequestId,
        approval: &Approval,
    ) -> Result<(), Undecided> {
        let parked = self.state().parked.get(id).map(|parked| Arc::clone(&parked.request));
        let parked = parked.ok_or(Undecided::NotParked)?;
        if RequestId::of_parked(id, &parked) != request {
            return Err(Undecided::AnotherRequest);
        }
        let answer = match approval {
            Approval::Allow => Answer::approve(),
            Approval::Deny(reason) => Answer::deny(reason),
            // The journal's decisions have no arguments.
            Approval::AllowChanged(_) => {
                self.unpark(id).map_err(Undecided::Store)?;
                return Err(Undecided::AsksAgain);
            }
        };
        // In the journal first, so that a decision that was accepted survives a crash.
        self.journal.answer(id, &answer.digest(&parked.digest)).map_err(Undecided::Refused)?;
        self.unpark(id).map_err(Undecided::Store)
    }

    /// Puts the parked runs that were decided elsewhere, or whose request has expired, into the
    /// queue, and records the endings of those that another process has ended. May block.
    fn check_parked(self: &Arc<Self>) {
        let parked: Vec<Parked> = self.state().parked.values().cloned().collect();
        if parked.is_empty() {
            return;
        }
        let pending = match self.journal.pending() {
            Ok(pending) => pending,
            Err(error) => return (self.report)(&error.to_string()),
        };
        for Parked { waiting, .. } in parked {
            match pending.iter().find(|pending| pending.run_id == waiting.id) {
                Some(pending) if is_decided(pending) => {
                    if let Err(error) = self.unpark(&waiting.id) {
                        (self.report)(&error.to_string());
                    }
                }
                Some(_) => {}
                None => self.check_absent(&waiting),
            }
        }
    }

    /// Checks a parked run that the journal no longer lists as parked.
    fn check_absent(self: &Arc<Self>, waiting: &Waiting) {
        // It may have been continued here since the list was read.
        if !self.state().parked.contains_key(&waiting.id) {
            return;
        }
        match found(self, &waiting.id, RunState::Parked) {
            Found::Ended(ending) => {
                self.state().parked.remove(&waiting.id);
                self.end(waiting, &ending);
                self.forget(waiting);
            }
            // Another process drives it, and it will end or park there.
            Found::Part | Found::Nothing => {}
        }
    }
}

/// `true` if the run can continue.
pub(super) fn is_decided(parked: &ParkedRun) -> bool {
    parked.decision.is_some() || parked.expired || parked.request.is_expired(wall_ms())
}

/// Looks for decisions of other processes until a shutdown begins or the server is gone.
pub(super) async fn watch_parked(shared: Weak<Shared>, shutdown: CancellationToken) {
    let mut interval = tokio::time::interval(CHECKED_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = interval.tick() => {}
        }
        let Some(shared) = shared.upgrade() else { return };
        // A panic is that of a journal; the next check tries again.
        let _ = tokio::task::spawn_blocking(move || shared.check_parked()).await;
    }
}
