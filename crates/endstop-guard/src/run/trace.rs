//! The spans of a run: one for the run, and one for each call that is forwarded.
//!
//! ```text
//! invoke_agent        from the first call, or the start of the program, to the ending
//! └── chat MODEL      from the decision to the end of the response
//! ```

use super::calls::CallFacts;
use super::pricing::provider_of;
use crate::proxy::RequestHead;
use endstop::telemetry::{self, Answer, CallSpan, RunFacts, RunSpan, SpanSettings, TraceParent};
use endstop_core::{ModelError, ModelTurn, Outcome, Part};
use endstop_wire::redact::KnownKeys;
use endstop_wire::route::Delivery;
use http::{HeaderName, HeaderValue};

/// The header with the place of a request in a trace.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns the place of a request in the trace of its client.
pub(super) fn place_of(head: &RequestHead) -> Option<TraceParent> {
    TraceParent::read(head.header(TRACE_PARENT.as_str())?)
}

/// The span of a run, while it has not ended.
#[derive(Default)]
pub(super) struct RunTrace {
    span: RunSpan,
    /// `true` once the span names a model.
    is_named: bool,
}

/// A call that begins.
pub(super) struct Begun<'a> {
    pub(super) facts: &'a CallFacts,
    pub(super) head: &'a RequestHead,
    /// The model that is asked for, or an empty text.
    pub(super) model: &'a str,
    pub(super) run_id: &'a str,
    /// The name of its conversation.
    pub(super) thread: Option<&'a str>,
    /// The number of its turn; `None` if it is not a turn.
    pub(super) turn: Option<u32>,
    pub(super) output_cap: Option<u64>,
    pub(super) keys: &'a KnownKeys,
}

impl RunTrace {
    pub(super) fn begin(settings: &SpanSettings, id: &str) -> RunTrace {
        let agent = settings.agent.as_deref();
        let facts = RunFacts { agent, id: Some(id), ..RunFacts::default() };
        RunTrace { span: RunSpan::begin(&facts), is_named: false }
    }

    /// Opens the span of a call.
    pub(super) fn call(&mut self, call: &Begun<'_>) -> Option<CallSpan> {
        if self.span.is_disabled() {
            return None;
        }
        let Begun { facts, head, model, run_id, thread, turn, output_cap, keys } = *call;
        let provider = provider_of(facts.dialect.family, facts.host.as_deref());
        // The client chooses it, and could put a key there.
        let model = keys.out_of_text(model);
        if !std::mem::replace(&mut self.is_named, true) {
            self.span.name(provider, &model);
        }
        let server = facts.host.as_deref().map(|host| (host, facts.port));
        let span = self.span.call(&telemetry::CallFacts {
            operation: facts.operation,
            provider,
            model: &model,
            server,
            run_id: Some(run_id),
            thread,
            streaming: facts.reply.delivery != Delivery::Whole,
            output_cap,
            turn,
            attempt: None,
        });
        if let Some(place) = place_of(head) {
            span.link(&place);
        }
        Some(span)
    }

    /// Closes the span with the ending.
    pub(super) fn close(&mut self, outcome: &Outcome) {
        let RunTrace { span, .. } = std::mem::take(self);
        span.end(outcome);
    }
}

/// Records the response of a call, with its content if that is shown.
pub(super) fn responded(
    span: &CallSpan,
    (turn, error): (Option<&ModelTurn>, Option<&ModelError>),
    content: bool,
    keys: &KnownKeys,
) {
    if let Some(turn) = turn {
        let parts: &[Part] = if content { &turn.parts } else { &[] };
        span.answer(&Answer { parts, ..Answer::of(turn) }, keys);
    }
    if let Some(error) = error {
        span.fail(error.class.as_str());
    }
}

/// Returns the header that tells the upstream the place of a call: instead of one of the same trace, or if each
/// request is to have it. A request is not moved into another trace.
pub(super) fn header_for(
    span: &CallSpan,
    head: &RequestHead,
    settings: &SpanSettings,
) -> Option<(HeaderName, Option<HeaderValue>)> {
    let is_there = head.headers.contains_key(TRACE_PARENT);
    if !is_there && !settings.propagate {
        return None;
    }
    let place = span.place()?;
    let is_same = place_of(head).is_some_and(|given| given.trace_id() == place.trace_id());
    let value = HeaderValue::from_str(place.as_str()).ok();
    (!is_there || is_same).then_some((TRACE_PARENT, value))
}
