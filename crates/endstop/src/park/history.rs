//! The requests and decisions in the events of a run.
//!
//! ```text
//! let history = ParkHistory::of(&recorded.events);
//! history.open()          // the request that the run waits for
//! history.decision(id)    // the decision about it
//! ```

use endstop_core::{EffectId, Event, EventKind, ParkDecision, ParkRequest};
use std::collections::BTreeMap;

/// The requests of a run, and the decisions about them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParkHistory {
    requests: BTreeMap<EffectId, ParkRequest>,
    decisions: BTreeMap<EffectId, (ParkDecision, String)>,
    open: Option<EffectId>,
}

impl ParkHistory {
    /// Reads the events of a run, in order. Other events than those of requests are ignored.
    pub(crate) fn of<'e>(events: impl IntoIterator<Item = &'e Event>) -> ParkHistory {
        let mut history = ParkHistory::default();
        for event in events {
            history.saw(&event.kind);
        }
        history
    }

    /// `true` if the run was never parked.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds an event.
    pub(crate) fn saw(&mut self, event: &EventKind) {
        match event {
            EventKind::Parked { request } => {
                self.open = Some(request.id);
                self.requests.insert(request.id, ParkRequest::clone(request));
            }
            EventKind::Decided { id, decision, digest, .. } => {
                // The first decision counts.
                let decided = || (decision.clone(), digest.clone());
                self.decisions.entry(*id).or_insert_with(decided);
            }
            // The run waits for one request at a time, so any ending of the wait closes it.
            EventKind::Answered { id, .. } if self.open == Some(*id) => self.open = None,
            EventKind::Cancel | EventKind::Terminate | EventKind::Fault { .. } => self.open = None,
            _ => {}
        }
    }

    /// Returns the request that the run waits for.
    pub(crate) fn open(&self) -> Option<&ParkRequest> {
        self.requests.get(&self.open?)
    }

    /// Returns the request with this id.
    pub(crate) fn request(&self, id: EffectId) -> Option<&ParkRequest> {
        self.requests.get(&id)
    }

    /// Returns the decision about a request, and the digest that it is for.
    pub(crate) fn decision(&self, id: EffectId) -> Option<(&ParkDecision, &str)> {
        self.decisions.get(&id).map(|(decision, digest)| (decision, digest.as_str()))
    }

    /// `true` if the run was parked for this call of the provider.
    pub(crate) fn has_call(&self, call_id: &str) -> bool {
        self.requests.values().any(|request| request.call_id.as_deref() == Some(call_id))
    }

    /// Returns the record of a request that expired.
    pub(crate) fn expiry(request: &ParkRequest, now_ms: u64) -> EventKind {
        EventKind::Decided {
            id: request.id,
            decision: ParkDecision::Expired,
            digest: request.digest.clone(),
            wall_ms: now_ms,
        }
    }
}
