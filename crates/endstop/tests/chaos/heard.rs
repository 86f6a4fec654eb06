//! The notifications that the observers of a conversation received.
//!
//! ```text
//! builder.on_event(move |event| heard.event(event)).on_busy(move |busy| heard.busy(busy))
//! // … two runs have ended …
//! assert!(heard.busy_and_idle(2) && heard.ended().len() == 2);
//! ```

use endstop::Outcome;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::park::ParkRequest;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The notifications that observers received.
#[derive(Default)]
pub(crate) struct Heard {
    ended: Mutex<Vec<Arc<Outcome>>>,
    parked: Mutex<Vec<ParkRequest>>,
    over: AtomicBool,
    late: AtomicBool,
    busy: Mutex<Vec<bool>>,
}

fn lock<T>(values: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    values.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    pub(crate) fn event(&self, event: &AgentEvent) {
        if self.over.load(Ordering::SeqCst) {
            self.late.store(true, Ordering::SeqCst);
        }
        match &event.kind {
            AgentEventKind::Finished { outcome, .. } => {
                self.over.store(true, Ordering::SeqCst);
                lock(&self.ended).push(Arc::clone(outcome));
            }
            AgentEventKind::Parked { request, .. } => {
                self.over.store(true, Ordering::SeqCst);
                lock(&self.parked).push(ParkRequest::clone(request));
            }
            _ => {}
        }
    }

    pub(crate) fn busy(&self, busy: bool) {
        lock(&self.busy).push(busy);
    }

    /// Expects the events of another run, or of a run that is resumed.
    pub(crate) fn begins(&self) {
        self.over.store(false, Ordering::SeqCst);
    }

    /// Returns `true` if there was an event after an ending or a park.
    pub(crate) fn late(&self) -> bool {
        self.late.load(Ordering::SeqCst)
    }

    pub(crate) fn ended(&self) -> Vec<Arc<Outcome>> {
        lock(&self.ended).clone()
    }

    /// Returns the requests of all parks.
    pub(crate) fn parked(&self) -> Vec<ParkRequest> {
        lock(&self.parked).clone()
    }

    /// Returns `true` if the beginning and the end of each of these runs was reported.
    pub(crate) fn busy_and_idle(&self, runs: usize) -> bool {
        let told = lock(&self.busy);
        // A loop that is terminated while it is idle reports that once more.
        let whole = told.len() == 2 * runs || told.len() == 2 * runs + 1;
        whole
            && told.iter().take(2 * runs).enumerate().all(|(at, busy)| *busy == (at % 2 == 0))
            && told.last() == Some(&false)
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", lock(&self.busy))
    }
}
