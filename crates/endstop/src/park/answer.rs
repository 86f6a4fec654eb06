//! Decides a request: checks that a decision is possible, and returns the record of it.
//!
//! ```text
//! let event = decided(run, &history, &answer, now_ms)?; // appended to the run's events
//! ```

use super::history::ParkHistory;
use endstop_core::{EventKind, ParkDecision, ParkRequest, RequestKind};
use serde_json::{Map, Value};

/// A decision about the request of a parked run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Answer {
    pub(super) decision: ParkDecision,
    pub(super) digest: Option<String>,
}

impl Answer {
    /// Approves the call.
    pub fn approve() -> Answer {
        Answer { decision: ParkDecision::Approve, digest: None }
    }

    /// Approves the call with these arguments instead of those that the model wrote. A
    /// [digest](Self::digest) is still that of the request, with the arguments of the model.
    pub fn approve_changed(arguments: Map<String, Value>) -> Answer {
        let arguments = Value::Object(arguments).to_string();
        Answer { decision: ParkDecision::ApproveChanged(arguments), digest: None }
    }

    /// Denies the call. The model reads the reason.
    pub fn deny(reason: impl Into<String>) -> Answer {
        Answer { decision: ParkDecision::Deny(reason.into()), digest: None }
    }

    /// Answers a question with this text.
    pub fn text(text: impl Into<String>) -> Answer {
        Answer { decision: ParkDecision::Text(text.into()), digest: None }
    }

    /// Sets the digest of the request that the decision is for ([`ParkRequest::digest`]), or the
    /// beginning of it, at least eight digits. The decision is refused if the run waits for another
    /// one by now. Without it the decision is for the request that the run has.
    pub fn digest(mut self, digest: impl Into<String>) -> Answer {
        self.digest = Some(digest.into());
        self
    }
}

/// The reason why a decision was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerRefused {
    /// The run has ended, so its request is void.
    #[error("run {run} has ended as {termination}: its request is void")]
    Ended {
        /// The run.
        run: String,
        /// The name of its termination.
        termination: String,
    },
    /// A live process drives the run, so the run is not parked.
    #[error(
        "run {run} is not parked: a live process drives it; answer there, or wait until it parks"
    )]
    Live {
        /// The run.
        run: String,
    },
    /// The run has no open request.
    #[error("run {run} waits for no decision; a run whose process died is resumed without one")]
    NotParked {
        /// The run.
        run: String,
    },
    /// The request was decided before. The first decision counts.
    #[error(
        "the request of run {run} was decided before ({decision}), and the first decision counts; resume the run to continue it"
    )]
    AlreadyDecided {
        /// The run.
        run: String,
        /// The name of the decision that counts.
        decision: &'static str,
    },
    /// The request has expired. It counts as denied by timeout.
    #[error(
        "the request of run {run} expired at {expires_ms} (Unix milliseconds) and counts as denied by timeout; resume the run to continue it"
    )]
    Expired {
        /// The run.
        run: String,
        /// The time from which on no decision was possible.
        expires_ms: u64,
    },
    /// The run waits for a decision about another call than the one that was decided.
    #[error(
        "the decision is for the request {given}, but run {run} waits for {digest}; look at the request again"
    )]
    Digest {
        /// The run.
        run: String,
        /// The digest of the decision.
        given: String,
        /// The digest of the request.
        digest: String,
    },
    /// The decision does not answer this kind of request.
    #[error("the request of run {run} is of the kind `{}`: expected {}", kind.as_str(), expected(*kind))]
    Kind {
        /// The run.
        run: String,
        /// The kind of the request.
        kind: RequestKind,
    },
}

fn expected(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Approval => "an approval or a denial",
        _ => "a text or a denial",
    }
}

/// Shortest beginning of a digest that names it.
const LEAST_DIGITS: usize = 8;

/// Returns the record of a decision about the open request of a run.
///
/// # Errors
/// No decision is possible. For [`AnswerRefused::Expired`] the record to write is
/// [`ParkHistory::expiry`].
pub(crate) fn decided(
    run: &str,
    history: &ParkHistory,
    answer: &Answer,
    now_ms: u64,
) -> Result<EventKind, AnswerRefused> {
    let run = || run.to_owned();
    let Some(request) = history.open() else {
        return Err(AnswerRefused::NotParked { run: run() });
    };
    if let Some((decision, _)) = history.decision(request.id) {
        return Err(AnswerRefused::AlreadyDecided { run: run(), decision: decision.name() });
    }
    if let Some(given) = &answer.digest
        && !names(given, request)
    {
        let (given, digest) = (given.clone(), request.digest.clone());
        return Err(AnswerRefused::Digest { run: run(), given, digest });
    }
    if let Some(expires_ms) = request.expires_ms.filter(|_| request.is_expired(now_ms)) {
        return Err(AnswerRefused::Expired { run: run(), expires_ms });
    }
    if !answer.decision.fits(request.kind) {
        return Err(AnswerRefused::Kind { run: run(), kind: request.kind });
    }
    let (id, digest) = (request.id, request.digest.clone());
    Ok(EventKind::Decided { id, decision: answer.decision.clone(), digest, wall_ms: now_ms })
}

fn names(given: &str, request: &ParkRequest) -> bool {
    let given = given.to_ascii_lowercase();
    given.len() >= LEAST_DIGITS && request.digest.starts_with(&given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_core::{EffectId, Event};
    use std::time::Duration;

    fn history(kind: RequestKind) -> ParkHistory {
        let request = ParkRequest {
            id: EffectId(4),
            kind,
            tool: Some("rm".to_owned()),
            call_id: Some("c1".to_owned()),
            subject: "{}".to_owned(),
            digest: "0123456789abcdef".to_owned(),
            reason: None,
            asked_ms: 1_000,
            expires_ms: Some(2_000),
        };
        let kind = EventKind::Parked { request: Box::new(request) };
        ParkHistory::of([&Event::new(Duration::ZERO, kind)])
    }

    #[test]
    fn digest_prefix_must_fit_and_be_long() {
        let history = history(RequestKind::Approval);
        let with = |digest: &str| decided("r", &history, &Answer::approve().digest(digest), 1_500);
        assert!(with("01234567").is_ok() && with("0123456789ABCDEF").is_ok());
        for wrong in ["", "0123456", "0123456f", "0123456789abcdef0"] {
            assert!(matches!(with(wrong), Err(AnswerRefused::Digest { .. })), "{wrong}");
        }
    }

    #[test]
    fn expiry_is_exact_to_the_millisecond() {
        let history = history(RequestKind::Approval);
        assert!(decided("r", &history, &Answer::approve(), 1_999).is_ok());
        let late = decided("r", &history, &Answer::approve(), 2_000);
        assert_eq!(late, Err(AnswerRefused::Expired { run: "r".to_owned(), expires_ms: 2_000 }));
    }

    #[test]
    fn decision_must_fit_the_kind() {
        let of = |kind, answer: Answer| decided("r", &history(kind), &answer, 1_500);
        assert!(of(RequestKind::Question, Answer::text("yes")).is_ok());
        assert!(of(RequestKind::Approval, Answer::deny("no")).is_ok());
        let wrong = of(RequestKind::Approval, Answer::text("yes"));
        assert!(matches!(wrong, Err(AnswerRefused::Kind { .. })), "{wrong:?}");
        for approval in [Answer::approve(), Answer::approve_changed(Map::new())] {
            assert!(of(RequestKind::Approval, approval.clone()).is_ok());
            let wrong = of(RequestKind::Question, approval);
            assert!(matches!(wrong, Err(AnswerRefused::Kind { .. })), "{wrong:?}");
        }
    }
}
