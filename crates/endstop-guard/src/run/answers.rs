//! The answers to calls of a run that has ended: once a text for each thread, then refusals.

use super::call::{CallFacts, Place};
use super::guarded::Guarded;
use super::settings::OnLimit;
use crate::exchange::Kind;
use crate::exchange::answer::{Answer, Stamp, bad_request, final_turn, refusal, stop_message};
use crate::proxy;
use bytes::Bytes;
use endstop_core::Outcome;
use http::{HeaderName, HeaderValue, StatusCode};

impl Guarded {
    /// The answer to a call of an ended run.
    pub(super) fn answer(&mut self, place: &Place, facts: &CallFacts) -> proxy::Answer {
        let Some(outcome) = self.outcome().cloned() else {
            // Not reached: only ended runs are answered. A refusal is the safe answer.
            return to_proxy(refusal(&facts.reply, "the run cannot continue", stamp("0", self)));
        };
        let message = self.message(&outcome);
        let id = format!("endstop{}", self.counts.finals + self.counts.refusals + 1);
        if self.gets_text(place, facts)
            && let Some(text) = final_turn(&facts.reply, &message, stamp(&id, self))
        {
            self.counts.finals += 1;
            self.meter().told();
            self.answered(place, false);
            return to_proxy(text);
        }
        self.counts.refusals += 1;
        self.meter().refused();
        self.answered(place, true);
        to_proxy(refusal(&facts.reply, &message, stamp(&id, self)))
    }

    /// Refuses a request of an ended run that cannot be answered like a model call. `None` if the run
    /// has not ended.
    pub(super) fn refuse_late(&mut self) -> Option<proxy::Answer> {
        let outcome = self.outcome()?.clone();
        self.meter().refused();
        Some(to_proxy(bad_request(&self.message(&outcome))))
    }

    /// The sentence that every client shows.
    pub(super) fn message(&self, outcome: &Outcome) -> String {
        stop_message(outcome.termination, &outcome.decided_by.evidence, self.id())
    }

    /// `true` if this call gets a text. A text would break a program that parses the answer, and a
    /// thread that was already told has to be refused, or it would go on for ever.
    fn gets_text(&mut self, place: &Place, facts: &CallFacts) -> bool {
        if self.on_limit() != OnLimit::Final || facts.reply.structured.is_some() {
            return false;
        }
        // A title or a summary after the end has no thread to tell.
        if self.tell(place) {
            if facts.kind == Kind::Sub {
                self.more_finals += 1;
            }
            return true;
        }
        // The main agent is called again for each sub-agent that was stopped in its background.
        let again = facts.kind == Kind::Main && self.more_finals > 0;
        if again {
            self.more_finals -= 1;
        }
        again
    }
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
