//! Decides about each request: places a call in its run, and admits, answers or refuses it.

mod below;
mod metered;
mod other;
mod passing;
#[cfg_attr(not(feature = "bedrock"), path = "unsigned.rs")]
mod resign;
mod stored;

use self::other::{metered_pause, other_request, reads_body};
use self::passing::{Refusal, checked, has_other_charset};
use self::resign::Signed;
use super::calls::{CallFacts, Ticket, Work, lock_call};
use super::ending::answer;
use super::event::GuardEvent;
use super::gate::{CallPrice, Gate, NamedModels, lock};
use super::guarded::{Admitted, Arrival, Guarded};
use super::handle::RunHandle;
use super::observer::{CallObserver, NOT_SENT};
use super::pricing::{TWO_MODELS, dialect_of, port_of, price_of};
use super::shared::Shared;
use super::trace::{header_for, place_of as place_in_trace};
use crate::exchange::answer::{AnswerFormat, bad_request, unknown_response};
use crate::exchange::{
    Attempt, Call, ClientFacts, Delivery, Placed, Request, Route, RouteError, cap_output, route,
};
use crate::proxy::{
    BodyMode, Disposition, End, Forward, Gatekeeper, Notice, RequestBody, RequestHead,
    ResponseObserver, Routed,
};
use bytes::Bytes;
use endstop::telemetry::Operation;
use endstop_core::{Decision, GuestCall, Pause, Price};
use endstop_wire::redact::Redacted;
use endstop_wire::{RequestFacts, WireFormat};
use http::header::ACCEPT_ENCODING;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest wait for the usage of a call whose client already calls again. It follows the finish value.
const USAGE_WAIT: Duration = Duration::from_millis(250);

/// The line of a request, or the reason why it is refused.
pub(crate) type GateLine = Result<Route, RouteError>;

/// A decision about a request.
enum Decided {
    Now(Disposition),
    /// The usage of another call of this run is about to arrive.
    WaitFor(RunHandle),
    /// The run waits for a window of its subscription, or for its rate.
    Pause(RunHandle, Pause, Work),
    /// The turns of the run that are in flight use up the limit, unless they fail.
    WaitForTurns(RunHandle, Pause, Work),
}

/// The body of a model call, as the client sent it and after decompression.
#[derive(Clone, Copy)]
struct Body<'a> {
    raw: &'a Bytes,
    decoded: &'a Bytes,
}

/// Decides about a request. If the usage of another call of its run is about to arrive, it is waited for,
/// because what that call cost decides about this one. So is the reset of a window of the subscription.
pub(crate) async fn decide_about(
    gate: &Gate,
    head: &RequestHead,
    line: &GateLine,
    body: &RequestBody,
) -> Disposition {
    let line = match line {
        Ok(line) => line,
        Err(error) => return gate.refuse(head, &error.to_string()),
    };
    let mut has_waited = false;
    loop {
        match decide_now(gate, head, line, body, has_waited) {
            Decided::Now(decision) => return decision,
            Decided::WaitFor(_) if has_waited => {
                return gate.refuse(head, "the call was not decided");
            }
            Decided::WaitFor(run) => {
                let settled = run.until(|run| !run.0.lock().calls.awaits_usage());
                let _ = tokio::time::timeout(USAGE_WAIT, settled).await;
                has_waited = true;
            }
            Decided::Pause(run, pause, work) => {
                run.wait_for_pause(&pause, work).await;
                has_waited = false;
            }
            Decided::WaitForTurns(run, pause, work) => run.wait_for_turns(&pause, work).await,
        }
    }
}

/// Decides about a request. Does not ask to wait if that `has_waited`.
fn decide_now(
    gate: &Gate,
    head: &RequestHead,
    line: &Route,
    body: &RequestBody,
    has_waited: bool,
) -> Decided {
    let Call::Model { format, .. } = line.call else {
        return match metered_pause(gate, head, line) {
            Some((run, pause)) => Decided::Pause(run, pause, Work::Aside),
            None => Decided::Now(other_request(gate, head, line, body)),
        };
    };
    let (text, reason): (&[u8], _) = match body {
        _ if line.is_respelt => return Decided::Now(other_request(gate, head, line, body)),
        RequestBody::Whole { decoded, .. } if has_other_charset(head) => {
            (decoded, "the body is not labelled as UTF-8")
        }
        RequestBody::Whole { raw, decoded } => {
            return model_call(gate, head, (line, format), Body { raw, decoded }, has_waited);
        }
        RequestBody::TooLarge { .. } => (&[], "the body is too large to be read"),
        RequestBody::Unreadable { .. } => (&[], "the body cannot be decompressed"),
        RequestBody::Streamed => (&[], "the body was not read"),
    };
    Decided::Now(gate.pass(head, (line, format), text, reason))
}

/// Reads the method and the target of a request.
pub(crate) fn line_of(head: &RequestHead) -> GateLine {
    let target = head.target.path_and_query().map_or("/", |target| target.as_str());
    route(head.method.as_str(), target)
}

/// Routes a request at this gate, in the only run if there is one.
pub(crate) fn route_of(gate: &Gate, head: &RequestHead, mut line: GateLine) -> Routed<GateLine> {
    if let (Some(only), Ok(line)) = (&gate.only, &mut line) {
        line.run = Some(only.clone());
    }
    let reads = line.as_ref().is_ok_and(|line| reads_body(gate, head, line));
    Routed { route: if reads { BodyMode::Read } else { BodyMode::Stream }, line }
}

fn model_call(
    gate: &Gate,
    head: &RequestHead,
    (line, format): (&Route, WireFormat),
    body: Body<'_>,
    has_waited: bool,
) -> Decided {
    let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let facts = ClientFacts::read(headers, &line.target, &gate.salt);
    let request = match Request::read(line, body.decoded) {
        Ok(request) => request,
        Err(error) => {
            let reason = error.to_string();
            return Decided::Now(gate.pass(head, (line, format), body.decoded, &reason));
        }
    };
    // Before the call is placed, because the request is decided again after the wait.
    let key = lock(&gate.threads).likely_run(&facts, line, &request);
    let run = key.and_then(|key| match gate.only {
        // Started now, so that calls at the same time are decided about one after the other.
        Some(_) => Some(gate.run_of(&key, place_in_trace(head).as_ref())),
        None => gate.started_run(&key),
    });
    let _turn = run.as_ref().map(|run| run.0.decides());
    if let Some(run) = run.clone() {
        let is_known_agent = facts.client.is_some() || gate.settings().is_agent;
        let offers_tools = !request.tools.is_empty();
        let work = run.0.lock().conversations.work_of_unplaced(offers_tools, is_known_agent);
        if let Some(pause) = run.pause() {
            return Decided::Pause(run, pause, work);
        }
        // Before the call is placed, because the ids in responses place later requests.
        if end_complete_calls(&run, has_waited) && !has_waited {
            return Decided::WaitFor(run);
        }
        let waits = run.0.lock().waits_for_turns(work);
        if let Some(pause) = waits {
            return Decided::WaitForTurns(run, pause, work);
        }
    }
    Decided::Now(place_call(gate, head, line, &facts, &request, body))
}

/// Places a model call in its run, and admits or answers it.
fn place_call(
    gate: &Gate,
    head: &RequestHead,
    line: &Route,
    facts: &ClientFacts,
    request: &Request<'_>,
    body: Body<'_>,
) -> Disposition {
    let settings = gate.settings();
    // Released before the answer, because the listener of events may take any time.
    let placed = lock(&gate.threads).place(facts, line, request);
    let mut placed = match placed {
        Ok(placed) => placed,
        Err(error) => return gate.refuse(head, &error.to_string()),
    };
    if let Some(refused) = gate.refuse_secret_name(head, body.decoded, &placed.seat.run) {
        return refused;
    }
    let url = match gate.url(line, Some(request.format)) {
        Ok(url) => url,
        Err(error) => return gate.refuse(head, &error),
    };
    let signed = match checked(settings.aws.as_ref(), head, &url, Some(body.raw)) {
        Ok(signed) => signed,
        Err(error) => return gate.refuse(head, &error),
    };
    let named = NamedModels {
        format: request.format,
        host: url.host(),
        model: request.model.as_deref(),
        other: request.other_model.as_deref(),
    };
    let mut priced = gate.price(&named, placed.prompt_bytes);
    let run = gate.run_of(&placed.seat.run, place_in_trace(head).as_ref());
    let call = Arc::new(CallFacts {
        seat: placed.seat.clone(),
        kind: placed.kind,
        is_subscription: facts.subscription,
        is_known_agent: facts.client.is_some() || settings.is_agent,
        operation: Operation::Chat,
        is_background: request.background,
        reply: AnswerFormat::to(request, facts),
        request: RequestFacts {
            output_cap: request.output_cap,
            has_alternatives: request.choices > 1,
            ..RequestFacts::default()
        },
        dialect: dialect_of(request.format, url.host()),
        host: url.host().map(str::to_owned),
        port: port_of(&url),
        price: priced.price,
        catalogue: priced.info.take(),
    });
    let shared = &run.0;
    let at = shared.now();
    let mut guarded = shared.lock();
    let work = guarded.conversations.work_of(&call);
    if !placed.prompt_known && guarded.is_counting() {
        if request.previous_response.is_some() {
            drop(guarded);
            let answer = unknown_response(request.shape, UNKNOWN);
            let refusal = Refusal { cause: Decision::Refused, reason: UNKNOWN, answer, work };
            return gate.refuse_call(Some(&run), head, refusal);
        }
        reserve_window(gate, head, &mut guarded, &mut placed, &named);
    }
    if guarded.settings.is_strict() && request.caches_for_an_hour() {
        // Such a cache write costs twice the price of the prompt, and the kernel reserves 1.25 times.
        placed.prompt_bytes = placed.prompt_bytes.saturating_mul(8) / 5;
    }
    let is_only = gate.only.is_some();
    if let Some((cause, reason)) = objection(head, &guarded, request, &placed, &priced, is_only) {
        drop(guarded);
        let answer = bad_request(&reason);
        let refusal = Refusal { cause, reason: &reason, answer, work };
        return gate.refuse_call(Some(&run), head, refusal);
    }
    let attended = guarded.settings.is_attended();
    let guest_call = GuestCall { attended, ..guest_call(request, &mut placed, priced.price) };
    let arrival = Arrival { placed, call: guest_call, facts: &call, head, body: body.decoded };
    match guarded.admit(at, arrival) {
        Admitted::Ended => {
            let answer = answer(&mut guarded, &call);
            drop(guarded);
            shared.changed();
            Disposition::Answer(answer)
        }
        Admitted::Go(ticket) => {
            drop(guarded);
            shared.changed();
            let signed = signed.as_ref();
            send(gate, shared, url, Sent { head, request, body, signed }, ticket, call)
        }
    }
}

/// Reserves a conversation that the provider stores as if it filled the model's window, and reports that once.
fn reserve_window(
    gate: &Gate,
    head: &RequestHead,
    run: &mut Guarded,
    placed: &mut Placed,
    named: &NamedModels<'_>,
) {
    if run.settings.is_strict() {
        return;
    }
    let model = named.model.unwrap_or_default();
    let info = price_of(&run.settings.prices, named.format, named.host, model);
    let window = info.and_then(|info| info.context_window).unwrap_or(DEFAULT_WINDOW);
    // Without a strict ceiling, the kernel estimates a token for four bytes.
    placed.prompt_bytes = placed.prompt_bytes.max(window.saturating_mul(4));
    if !std::mem::replace(&mut run.has_noted_unknown_length, true) {
        let target = head.redacted_target();
        (gate.on_event)(GuardEvent::Passed { target, reason: head.redact(UNKNOWN_LENGTH) });
    }
}

/// Ends the calls of a request's run whose whole message has passed, and notes those of which only usage may
/// follow. Without this, a client that does not wait for the end of the exchange would look like one that
/// gave up.
///
/// Returns `true` if usage of it is about to arrive.
fn end_complete_calls(run: &RunHandle, has_waited: bool) -> bool {
    let readings = run.0.lock().calls.readings();
    if readings.is_empty() {
        return false;
    }
    for (number, reading) in readings {
        let has_finished = lock_call(&reading).end_if_complete(has_waited);
        if has_finished {
            run.0.lock().calls.has_finished(number);
        }
    }
    run.0.lock().calls.awaits_usage()
}

/// Forwards an admitted call, with a lower output cap if that was decided.
fn send(
    gate: &Gate,
    shared: &Arc<Shared>,
    url: Uri,
    Sent { head, request, body, signed }: Sent<'_>,
    ticket: Ticket,
    call: Arc<CallFacts>,
) -> Disposition {
    let line = ticket.line.as_deref().and_then(|line| request.append_line(line));
    let mut changed = line.map(Bytes::from);
    // The kernel's cap is for all choices together, the body's for each.
    let each = ticket.output_cap.map(|cap| cap / request.choices);
    if gate.settings().cap_output && each == Some(0) {
        // Servers read a cap of zero as none.
        let reason = format!("no token is left for each of {} answers", request.choices);
        return not_sent(shared, ticket, call, &reason);
    }
    let lower = each.filter(|cap| request.output_cap.is_none_or(|own| *cap < own));
    if let (true, Some(cap)) = (gate.settings().cap_output, lower) {
        let text = changed.as_ref().unwrap_or(body.decoded);
        match cap_output(request, text, cap, call.dialect.cap_field) {
            Ok(Some(capped)) => changed = Some(Bytes::from(capped)),
            Ok(None) => {}
            // A call whose cap cannot be lowered could cost more than was reserved.
            Err(error) => return not_sent(shared, ticket, call, &error.to_string()),
        }
    }
    let own =
        signed.map(|signed| signed.headers(&url, changed.as_ref().or(Some(body.raw)))).transpose();
    let own = match own {
        Ok(own) => own.unwrap_or_default(),
        Err(error) => return not_sent(shared, ticket, call, &error),
    };
    let abort = ticket.abort.clone();
    let span = shared.lock().calls.span(ticket.number).cloned();
    let streams = request.delivery != Delivery::Whole;
    let observer = CallObserver::new(Arc::clone(shared), ticket, call);
    let mut forward = Forward::unchanged(url, Box::new(observer));
    forward.body = changed;
    forward.abort = abort;
    forward.headers = own;
    if streams {
        forward.headers.extend(readable_encoding(head));
    }
    if let Some(span) = span {
        let settings = &gate.settings().spans;
        if settings.content {
            let keys = shared.lock().keys().clone();
            let newest_first = (0..request.message_count()).rev();
            span.ask(newest_first.filter_map(|at| request.message(at)), &keys);
        }
        // A signature may cover the header.
        if signed.is_none() {
            forward.headers.extend(header_for(&span, head, settings));
        }
    }
    Disposition::Forward(forward)
}

impl Gatekeeper for Gate {
    type Line = GateLine;

    fn route(&self, head: &RequestHead) -> Routed<GateLine> {
        route_of(self, head, line_of(head))
    }

    async fn decide(
        &self,
        head: Arc<RequestHead>,
        line: GateLine,
        body: RequestBody,
    ) -> Disposition {
        decide_about(self, &head, &line, &body).await
    }

    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Refused { status: StatusCode::UPGRADE_REQUIRED, target, .. } => {
                (self.on_event)(GuardEvent::Upgrade { target });
            }
            Notice::Refused { reason, target, .. } => {
                // A constant.
                (self.on_event)(GuardEvent::Refused { target, reason: Redacted::exempt(reason) });
            }
            Notice::Stranger { reason, .. } => {
                let count = self.strangers.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    // A constant.
                    let reason = Redacted::exempt(reason);
                    (self.on_event)(GuardEvent::Stranger { reason, count });
                }
            }
            Notice::BodyCut { .. } | Notice::Accept { .. } => {}
        }
    }
}

/// The context window of a model that the catalogue does not know, in tokens: that of the largest common ones.
const DEFAULT_WINDOW: u64 = 1_048_576;
/// The reason for a refusal of several answers that may call tools.
const MANY_ANSWERS: &str = "the request asks for several answers (`n`), and a limit on tool calls counts those of the first \
     only";
/// The reason for a refusal of a response that guard has not seen.
const UNKNOWN: &str = "guard has not seen the response that this request continues, so that it cannot count the \
     conversation: send it whole";
/// The note about a conversation that the provider stores.
const UNKNOWN_LENGTH: &str = "the provider stores this conversation, whose length guard does not know: each call is \
     reserved as if it filled the model's context window";
/// Refuses a call that was admitted, and ends it in its run.
fn not_sent(
    shared: &Arc<Shared>,
    ticket: Ticket,
    call: Arc<CallFacts>,
    error: &str,
) -> Disposition {
    let work = shared.lock().conversations.work_of(&call);
    let observer = CallObserver::new(Arc::clone(shared), ticket, call);
    Box::new(observer).end(End::NoResponse { error: format!("{NOT_SENT}: {error}"), sent: false });
    shared.lock().rejects(Decision::Refused, error, work);
    Disposition::Answer(bad_request(error))
}

/// Ends of headers that choose a service tier, and values that do not raise the price.
const TIER_HEADERS: &[&str] = &["service-tier", "performanceconfig-latency", "shared-request-type"];
const DEFAULT_TIERS: &[&str] = &["auto", "default", "flex", "standard"];

/// Returns the header by which a call may have another price than that of the list.
fn tier_header(head: &RequestHead) -> Option<&str> {
    let is_tier = |name: &str| TIER_HEADERS.iter().any(|end| name.ends_with(end));
    let is_default = |value: &HeaderValue| {
        value
            .to_str()
            .is_ok_and(|value| DEFAULT_TIERS.contains(&value.trim().to_ascii_lowercase().as_str()))
    };
    let mut headers = head.headers.iter();
    headers
        .find(|(name, value)| is_tier(name.as_str()) && !is_default(value))
        .map(|(name, _)| name.as_str())
}

/// Returns the reason why a ceiling of the run could not be kept with a call.
fn objection(
    head: &RequestHead,
    run: &Guarded,
    request: &Request<'_>,
    placed: &Placed,
    priced: &CallPrice,
    is_only: bool,
) -> Option<(Decision, String)> {
    if run.outcome().is_some() {
        return None;
    }
    if run.settings.counts_calls() && request.has_ambiguous_model() {
        return Some((Decision::Refused, TWO_MODELS.to_owned()));
    }
    if run.settings.limits_tool_calls() && request.choices > 1 && !request.tools.is_empty() {
        return Some((Decision::Refused, MANY_ANSWERS.to_owned()));
    }
    if let Some(reason) = priced.objection(run, request.model.as_deref(), is_only) {
        return Some((Decision::UnknownPrice, reason));
    }
    if !run.settings.is_strict() {
        return None;
    }
    let unbounded: String = if !placed.prompt_known {
        "the request continues a response that guard has not seen, so its size is not known".into()
    } else if let Some(name) = tier_header(head) {
        format!("the header `{name}` may have another price than that of the list")
    } else {
        request.unbounded()?
    };
    Some((Decision::Refused, format!("{unbounded}, and --cap-output cannot keep the ceiling")))
}

/// A model call that is admitted.
struct Sent<'a> {
    head: &'a RequestHead,
    request: &'a Request<'a>,
    body: Body<'a>,
    signed: Option<&'a Signed<'a>>,
}

/// The header that keeps a streamed response readable while it passes: streams in `br` cannot be
/// read, and those in `zstd` only late. `None` if the client asks for neither.
fn readable_encoding(head: &RequestHead) -> Option<(HeaderName, Option<HeaderValue>)> {
    let asked = head.header("accept-encoding")?;
    let has = |name: &str| asked.split(',').any(|part| part.trim().starts_with(name));
    let value = if has("gzip") { "gzip" } else { "identity" };
    (has("br") || has("zstd") || has("*"))
        .then(|| (ACCEPT_ENCODING, Some(HeaderValue::from_static(value))))
}

fn guest_call(request: &Request<'_>, placed: &mut Placed, price: Option<Price>) -> GuestCall {
    GuestCall {
        input: std::mem::take(&mut placed.input),
        prompt_bytes: placed.prompt_bytes,
        output_cap: request.output_cap.map(|cap| cap.saturating_mul(request.choices)),
        thinking_budget: request.thinking.unwrap_or(0),
        model: request.model.clone(),
        price,
        streaming: request.delivery != Delivery::Whole,
        attempt_of_previous: placed.attempt != Attempt::First,
        ..GuestCall::default()
    }
}
