//! The state of a run that waits or works, which its readers and its controllers share.

use super::feed::Feed;
use crate::backend::Stop;
use endstop::agent::{Approvals, Steering};
use endstop::core::Park;
use endstop::{AgentEvent, AgentEventKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The progress of a live run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) turns: u32,
    pub(crate) cost_usd: Option<f64>,
    /// `true` while a model call is in flight.
    pub(crate) calling: bool,
    /// Number of calls that wait for approval.
    pub(crate) approvals: u32,
}

/// A run that waits or works.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) feed: Feed,
    /// The stop that was asked for.
    stop: watch::Sender<Option<Stop>>,
    progress: Mutex<Progress>,
    approvals: Mutex<Option<Approvals>>,
    steering: Mutex<Option<Steering>>,
    /// `true` until a resumed run has reported its first event.
    resuming: AtomicBool,
    /// `true` from the request to park until the run is parked.
    parking: AtomicBool,
}

impl Live {
    /// Returns a run that began before the process was restarted.
    pub(crate) fn resumed() -> Live {
        Live { feed: Feed::of_resumed(), resuming: true.into(), ..Live::default() }
    }

    /// `true` until a resumed run has reported its first event. Its open questions are asked again
    /// under the same ids, before anything else, but a moment after readers can see the old ones.
    pub(crate) fn is_resuming(&self) -> bool {
        self.resuming.load(Ordering::Acquire)
    }

    /// Asks the run to park, if requests for approval are open. Returns `false` if there are none.
    pub(crate) fn ask_to_park(&self, park: &Park) -> bool {
        // Set first: an answer that finds its request taken must know why.
        let Some(approvals) = self.approvals() else { return false };
        let before = self.parking.swap(true, Ordering::AcqRel);
        let asked = approvals.park(park);
        if !asked && !before {
            self.parking.store(false, Ordering::Release);
        }
        asked
    }

    /// `true` if the run was asked to park and has not parked yet.
    pub(crate) fn is_parking(&self) -> bool {
        self.parking.load(Ordering::Acquire)
    }

    /// Forgets the handles of a run that is parked now.
    pub(crate) fn park(&self) {
        *self.approvals.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.steering.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.parking.store(false, Ordering::Release);
    }

    /// Prepares for the events of a parked run that continues.
    pub(crate) fn resume(&self) {
        self.resuming.store(true, Ordering::Release);
    }

    /// Sets the number of requests for approval that are open.
    pub(crate) fn set_open_requests(&self, count: u32) {
        self.progress_mut().approvals = count;
    }

    /// Asks for a stop. A weaker one than before changes nothing.
    pub(crate) fn stop(&self, stop: Stop) {
        self.stop.send_if_modified(|asked| {
            // A terminate must not become a cancel again.
            let stronger = asked.is_none_or(|asked| asked < stop);
            if stronger {
                *asked = Some(stop);
            }
            stronger
        });
    }

    /// Returns the stop that was asked for.
    pub(crate) fn stop_asked(&self) -> Option<Stop> {
        *self.stop.borrow()
    }

    /// Returns a receiver of the stops that are asked for.
    pub(crate) fn stops(&self) -> watch::Receiver<Option<Stop>> {
        self.stop.subscribe()
    }

    fn progress_mut(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the run has done so far.
    pub(crate) fn progress(&self) -> Progress {
        *self.progress_mut()
    }

    /// Begins with the turns before a restart.
    pub(crate) fn begin_with_turns(&self, turns: u32) {
        self.progress_mut().turns = turns;
    }

    /// Notes an event of the run.
    pub(crate) fn note(&self, event: &AgentEvent) {
        // Before the check of the path, because an event of a nested run shows as well that the run
        // works.
        self.resuming.store(false, Ordering::Release);
        if !event.path().is_empty() {
            return;
        }
        let mut progress = self.progress_mut();
        match event.kind {
            AgentEventKind::Usage { cost, .. } => {
                progress.cost_usd = cost.map(endstop::NanoUsd::to_usd);
            }
            AgentEventKind::TurnFinished { .. } => {
                progress.turns = progress.turns.saturating_add(1);
                progress.calling = false;
            }
            AgentEventKind::ApprovalRequested { .. } => progress.approvals += 1,
            AgentEventKind::AttemptFailed { .. } => progress.calling = false,
            // A new turn waits for nothing of the turn before.
            AgentEventKind::TurnStarted { .. } => {
                (progress.approvals, progress.calling) = (0, true);
            }
            _ => {}
        }
    }

    /// Notes that a request for approval was answered.
    pub(crate) fn note_answer(&self) {
        let mut progress = self.progress_mut();
        // A new turn may have set the count to zero already.
        progress.approvals = progress.approvals.saturating_sub(1);
    }

    /// Sets the requests for approval of the run.
    pub(crate) fn set_approvals(&self, approvals: Approvals) {
        *self.approvals.lock().unwrap_or_else(PoisonError::into_inner) = Some(approvals);
    }

    /// Sets the handle that sends messages and limits to the run.
    pub(crate) fn set_steering(&self, steering: Steering) {
        *self.steering.lock().unwrap_or_else(PoisonError::into_inner) = Some(steering);
    }

    /// Returns the handle that sends messages and limits, if the run has started.
    pub(crate) fn steering(&self) -> Option<Steering> {
        self.steering.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the requests for approval, if the run has started.
    pub(crate) fn approvals(&self) -> Option<Approvals> {
        self.approvals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
