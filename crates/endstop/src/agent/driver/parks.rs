//! The parks of a run: the request with which it is to be parked, and the decisions that its journal
//! has about earlier ones.
//!
//! ```text
//! approver ─► Park ─► `ready` when nothing is in progress ─► Parked is on disk ─► released
//! resumed  ─► consult ─► `answer`: the journal has a decision ─► Answered
//! ```

use crate::agent::recorder::Recorder;
use crate::clock::wall_ms;
use crate::park::{ParkHistory, Subject};
use endstop_core::{
    ConsultPoint, EffectId, EventKind, HookDecision, Message, ParkDecision, ParkRequest, Role, Run,
    ToolReport, ToolStart, ToolStatus,
};

/// The parks of a run.
#[derive(Default)]
pub(super) struct Parks {
    /// The requests and decisions of a resumed run.
    history: ParkHistory,
    /// The request with which the run is parked as soon as nothing of it is in progress.
    pub(super) request: Option<Box<ParkRequest>>,
}

impl Parks {
    /// Creates the parks of a resumed run.
    pub(super) fn of(history: ParkHistory) -> Parks {
        Parks { history, request: None }
    }

    /// Returns the events that answer a question with the decision that the journal has about it, or
    /// with the expiry of its request; nothing if the question is still open.
    pub(super) fn answer(&self, id: EffectId, subject: Option<&Subject>) -> Vec<EventKind> {
        let Some(request) = self.history.request(id) else { return Vec::new() };
        let fits = |digest: &str| {
            digest == request.digest && subject.is_some_and(|now| now.digest() == digest)
        };
        let (expiry, answer) = match self.history.decision(id) {
            Some((decision, digest)) if fits(digest) => (None, decision.to_hook_decision(request)),
            Some((_, digest)) => {
                let why = format!(
                    "the decision was made about another request (digest {digest}), so it is void"
                );
                (None, ParkDecision::Deny(why).to_hook_decision(request))
            }
            None if request.is_expired(wall_ms()) => {
                let expiry = ParkHistory::expiry(request, wall_ms());
                (Some(expiry), ParkDecision::Expired.to_hook_decision(request))
            }
            None => return Vec::new(),
        };
        expiry.into_iter().chain([EventKind::Answered { id, answer }]).collect()
    }

    /// Returns the earlier request for the same subject, whose expiry stays.
    pub(super) fn earlier(&self, id: EffectId, subject: Option<&Subject>) -> Option<ParkRequest> {
        let request = self.history.request(id)?;
        subject.filter(|now| now.digest() == request.digest).map(|_| request.clone())
    }

    /// Splits off the calls that were approved while the run was parked, as calls that did not run,
    /// because their start could not be journalled: after a death of the process nothing would
    /// prevent them from running again.
    pub(super) fn refuse_unrecorded(&self, calls: &mut Vec<ToolStart>) -> Vec<EventKind> {
        let approved = calls.extract_if(.., |start| self.history.has_call(&start.call.id));
        let refused = approved.map(|start| {
            let why = "not run: the journal could not record that the approved call starts";
            let mut report = ToolReport::new(ToolStatus::Error, why);
            report.started = false;
            EventKind::ToolEnded { tool: start.id, report }
        });
        refused.collect()
    }
}

/// Returns what the question at this point is about, if the run can be parked there.
pub(super) fn subject(
    point: &ConsultPoint,
    recorder: Option<&Recorder>,
    run: Option<&Run>,
) -> Option<Subject> {
    let recorder = recorder.filter(|recorder| recorder.is_recording())?;
    let last_text = || {
        let messages = run?.messages();
        let last = messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.map(Message::plain_text)
    };
    let text = matches!(point, ConsultPoint::Reply).then(last_text).flatten();
    Subject::of(point, text.as_deref(), recorder.secrets())
}

/// Returns the event of an answer to a question: a decision, or the request to park the run.
pub(super) fn event_of(
    id: EffectId,
    answer: HookDecision,
    subject: Option<Subject>,
    earlier: Option<ParkRequest>,
    approval: bool,
) -> EventKind {
    let answer = match (answer, subject, earlier) {
        (HookDecision::Park(_), Some(_), Some(earlier)) => {
            return EventKind::Parked { request: Box::new(earlier) };
        }
        (HookDecision::Park(park), Some(subject), None) => {
            let request = subject.request(id, park, wall_ms());
            return EventKind::Parked { request: Box::new(request) };
        }
        (HookDecision::Park(_), None, _) if approval => HookDecision::Deny(
            "the run cannot be parked: it has no journal, or it works for another run".to_owned(),
        ),
        (answer, ..) => answer,
    };
    EventKind::Answered { id, answer }
}
