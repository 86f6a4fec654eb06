//! The answers to calls of a run that has ended: once a text for each conversation, then refusals.

use super::calls::{CallFacts, Place};
use super::event::GuardEvent;
use super::guarded::Guarded;
use super::settings::OnLimit;
use crate::exchange::answer::{Answer, Stamp, bad_request, final_turn, refusal, stop_message};
use crate::proxy;
use bytes::Bytes;
use endstop_core::Outcome;
use http::{HeaderName, HeaderValue, StatusCode};

/// The answer to a call of an ended run.
pub(super) fn answer(run: &mut Guarded, place: &Place, facts: &CallFacts) -> proxy::Answer {
    let Some(outcome) = run.outcome().cloned() else {
        // Not reached: only ended runs are answered. A refusal is the safe answer.
        return to_proxy(refusal(&facts.reply, "the run cannot continue", stamp("0", run)));
    };
    let message = message(run, &outcome);
    let id = format!("endstop{}", run.counts.finals + run.counts.refusals + 1);
    // A text would break a program that parses the answer, and a conversation that has one must be refused, or it
    // would continue for ever.
    let may_get_text = run.settings.on_limit == OnLimit::Final && facts.reply.structured.is_none();
    let text = (may_get_text && run.after_end.takes_text(place, facts.kind))
        .then(|| final_turn(&facts.reply, &message, stamp(&id, run)))
        .flatten();
    let (of, thread) = (run.key().id().to_owned(), run.after_end.name(place));
    let Some(text) = text else {
        run.counts.refusals += 1;
        run.meter().refused();
        run.notify(GuardEvent::CallRefused { run: of, thread });
        return to_proxy(refusal(&facts.reply, &message, stamp(&id, run)));
    };
    run.counts.finals += 1;
    run.meter().final_text();
    run.notify(GuardEvent::LimitTold { run: of, thread });
    to_proxy(text)
}

/// Refuses a request of an ended run that cannot be answered like a model call. `None` if the run
/// has not ended.
pub(super) fn refuse_late(run: &Guarded) -> Option<proxy::Answer> {
    let outcome = run.outcome()?;
    run.meter().refused();
    Some(to_proxy(bad_request(&message(run, outcome))))
}

/// The sentence that every client shows.
pub(super) fn message(run: &Guarded, outcome: &Outcome) -> String {
    stop_message(outcome.termination, &outcome.decided_by.evidence, run.id())
}

fn stamp<'a>(id: &'a str, run: &Guarded) -> Stamp<'a> {
    Stamp { id, unix_seconds: run.wall_ms() / 1000 }
}

/// Converts an answer to the proxy's form.
pub(super) fn to_proxy(answer: Answer) -> proxy::Answer {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_REQUEST);
    let mut headers = http::HeaderMap::with_capacity(answer.headers.len());
    for (name, value) in answer.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    proxy::Answer { status, headers, chunks: vec![Bytes::from(answer.body)], streamed: false }
}
