//! Decides about each request: places a call in its run, and admits, answers or refuses it.

use super::answers::to_proxy;
use super::call::{CallFacts, Place, Ticket, lock_call};
use super::calls::Admitted;
use super::event::GuardEvent;
use super::gate::{CallPrice, Gate, NamedModels, lock};
use super::guarded::Guarded;
use super::observer::{CallObserver, NOT_SENT};
use super::passing::{checked, has_other_charset};
use super::pricing::{TWO_MODELS, dialect_of, no_price, price_of};
use super::resign::Signed;
use super::runs::{RunHandle, Shared};
use crate::exchange::answer::{Reply, bad_request, unknown_response};
use crate::exchange::{
    Attempt, Call, ClientFacts, Delivery, Placed, Request, Route as Line, cap_output, route,
};
use crate::proxy::{
    Decision, End, Forward, Gatekeeper, Notice, RequestBody, RequestHead, ResponseObserver, Route,
};
use bytes::Bytes;
use endstop_core::{Decision as Cause, GuestCall, Price};
use endstop_wire::redact::Redacted;
use endstop_wire::{RequestFacts, WireFormat};
use http::header::ACCEPT_ENCODING;
use http::{HeaderName, HeaderValue, Uri};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest wait for the usage of a call whose client already calls again. It follows the finish value.
const USAGE_WAIT: Duration = Duration::from_millis(250);

impl Gate {
    /// Decides about a request. If the usage of another call of its run is about to arrive, it is waited for,
    /// because what that call cost decides about this one.
    pub(crate) async fn decide_about(&self, head: &RequestHead, body: &RequestBody) -> Decision {
        let run = match self.decide_now(head, body, true) {
            Ok(decision) => return decision,
            Err(run) => run,
        };
        let settled = run.until(|run| !run.0.lock().awaits_usage());
        let _ = tokio::time::timeout(USAGE_WAIT, settled).await;
        match self.decide_now(head, body, false) {
            Ok(decision) => decision,
            Err(_) => self.refuse(head, "the call was not decided"),
        }
    }

    /// Decides about a request. With `may_wait`, a request that must wait returns the run that it waits for, as the error.
    fn decide_now(
        &self,
        head: &RequestHead,
        body: &RequestBody,
        may_wait: bool,
    ) -> Result<Decision, RunHandle> {
        let target = head.target.path_and_query().map_or("/", |target| target.as_str());
        let line = match route(head.method.as_str(), target) {
            Ok(line) => self.in_only_run(line),
            Err(error) => return Ok(self.refuse(head, &error.to_string())),
        };
        let (raw, decoded) = match (line.call, body) {
            _ if line.is_respelt => return Ok(self.other_request(head, &line, body)),
            (Call::Model { format, .. }, RequestBody::Whole { decoded, .. })
                if has_other_charset(head) =>
            {
                let reason = "the body is not labelled as UTF-8";
                return Ok(self.pass(head, (&line, format), decoded, reason));
            }
            (Call::Model { .. }, RequestBody::Whole { raw, decoded }) => (raw, decoded),
            (Call::Model { format, .. }, body) => {
                let reason = match body {
                    RequestBody::TooLarge { .. } => "the body is too large to be read",
                    RequestBody::Unreadable { .. } => "the body cannot be decompressed",
                    _ => "the body was not read",
                };
                return Ok(self.pass(head, (&line, format), &[], reason));
            }
            _ => return Ok(self.other_request(head, &line, body)),
        };
        self.model_call(head, &line, (raw, decoded), may_wait)
    }

    /// Puts a request into the only run, if there is one.
    fn in_only_run(&self, mut line: Line) -> Line {
        if let Some(only) = &self.only {
            line.run = Some(only.clone());
        }
        line
    }

    fn model_call(
        &self,
        head: &RequestHead,
        line: &Line,
        (raw, decoded): (&Bytes, &Bytes),
        may_wait: bool,
    ) -> Result<Decision, RunHandle> {
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, &line.target, &self.salt);
        let request = match Request::read(line, decoded) {
            Ok(request) => request,
            Err(error) => {
                let Call::Model { format, .. } = line.call else {
                    return Ok(self.forward(head, line, None));
                };
                return Ok(self.pass(head, (line, format), decoded, &error.to_string()));
            }
        };
        // Before the call is placed, because the ids in responses place later requests.
        if let Some(run) = self.end_complete_calls(&facts, line, &request, !may_wait)
            && may_wait
        {
            return Err(run);
        }
        Ok(self.place_call(head, line, &facts, &request, (raw, decoded)))
    }

    /// Places a model call in its run, and admits or answers it.
    fn place_call(
        &self,
        head: &RequestHead,
        line: &Line,
        facts: &ClientFacts,
        request: &Request<'_>,
        (raw, decoded): (&Bytes, &Bytes),
    ) -> Decision {
        let settings = self.settings();
        // Released before the answer, because the listener of events may take any time.
        let placed = lock(&self.threads).place(facts, line, request);
        let mut placed = match placed {
            Ok(placed) => placed,
            Err(error) => return self.refuse(head, &error.to_string()),
        };
        if let Some(refused) = self.refuse_secret_name(head, decoded, &placed.seat.run) {
            return refused;
        }
        let url = match self.url(line, Some(request.format)) {
            Ok(url) => url,
            Err(error) => return self.refuse(head, &error),
        };
        let signed = match checked(settings.aws.as_ref(), head, &url, Some(raw)) {
            Ok(signed) => signed,
            Err(error) => return self.refuse(head, &error),
        };
        let named = NamedModels {
            format: request.format,
            host: url.host(),
            model: request.model.as_deref(),
            other: request.other_model.as_deref(),
        };
        let CallPrice { price, info: catalogue, other_unknown } =
            self.price(&named, placed.prompt_bytes);
        let run = self.run_of(&placed.seat.run);
        let reply = Reply::to(request, facts);
        let call = Arc::new(CallFacts {
            seat: placed.seat.clone(),
            kind: placed.kind,
            is_subscription: facts.subscription,
            is_known_agent: facts.client.is_some() || settings.is_agent,
            is_metered: false,
            is_background: request.background,
            reply,
            request: RequestFacts {
                output_cap: request.output_cap,
                has_alternatives: request.choices > 1,
                ..RequestFacts::default()
            },
            dialect: dialect_of(spoken(request), url.host()),
            host: url.host().map(str::to_owned),
            price,
            catalogue,
        });
        let shared = &run.0;
        let place = place_of(&placed);
        let at = shared.now();
        let mut guarded = shared.lock();
        let is_turn = guarded.counts_as_turn(&place, &call);
        let is_unknown = !placed.prompt_known && guarded.is_counting();
        if let (true, Some(_)) = (is_unknown, &request.previous_response) {
            drop(guarded);
            let answer = unknown_response(request.shape, UNKNOWN);
            let answer = (answer, is_turn);
            return self.refuse_call(Some(&run), head, (Cause::Refused, UNKNOWN), answer);
        }
        // A conversation that the provider stores may fill the model's window.
        if is_unknown && !guarded.is_strict() {
            let model = request.model.as_deref().unwrap_or_default();
            let info = price_of(request.format, url.host(), model);
            let window = info.and_then(|info| info.context_window).unwrap_or(USUAL_WINDOW);
            // Without a strict ceiling, the kernel estimates a token for four bytes.
            placed.prompt_bytes = placed.prompt_bytes.max(window.saturating_mul(4));
            if !std::mem::replace(&mut guarded.has_told_unknown, true) {
                let target = head.redacted_target();
                (self.hear)(GuardEvent::Passed { target, reason: head.redact(UNKNOWN_LENGTH) });
            }
        }
        if guarded.is_strict() && request.caches_for_an_hour() {
            // Such a cache write costs twice the price of the prompt, and the kernel reserves 1.25 times.
            placed.prompt_bytes = placed.prompt_bytes.saturating_mul(8) / 5;
        }
        if let Some((cause, reason)) =
            objection(head, &guarded, request, &placed, (price, other_unknown, self.only.is_some()))
        {
            drop(guarded);
            let answer = (bad_request(&reason), is_turn);
            return self.refuse_call(Some(&run), head, (cause, &reason), answer);
        }
        let guest_call = guest_call(request, &mut placed, price);
        match guarded.admit(at, placed, guest_call, &call, (head, decoded)) {
            Admitted::Ended => {
                let answer = guarded.answer(&place, &call);
                drop(guarded);
                shared.changed();
                Decision::Answer(answer)
            }
            Admitted::Go(ticket) => {
                drop(guarded);
                shared.changed();
                let signed = signed.as_ref();
                self.send(shared, url, Sent { head, request, raw, decoded, signed }, ticket, call)
            }
        }
    }

    /// Ends the calls of a request's run whose whole message has passed, and notes those of which only usage may
    /// follow. Without this, a client that does not wait for the end of the exchange would look like one that
    /// gave up.
    ///
    /// Returns the run if usage of it is about to arrive.
    fn end_complete_calls(
        &self,
        facts: &ClientFacts,
        line: &Line,
        request: &Request<'_>,
        has_waited: bool,
    ) -> Option<RunHandle> {
        let key = lock(&self.threads).likely_run(facts, line, request)?;
        let run = lock(&self.runs).by_key.get(&key).cloned()?;
        let readings = run.0.lock().readings();
        if readings.is_empty() {
            return None;
        }
        for (number, reading) in readings {
            let has_finished = lock_call(&reading).end_if_complete(has_waited);
            if has_finished {
                run.0.lock().has_finished(number);
            }
        }
        let awaits = run.0.lock().awaits_usage();
        awaits.then_some(run)
    }

    /// Forwards an admitted call, with a lower output cap if that was decided.
    fn send(
        &self,
        shared: &Arc<Shared>,
        url: Uri,
        Sent { head, request, raw, decoded, signed }: Sent<'_>,
        ticket: Ticket,
        call: Arc<CallFacts>,
    ) -> Decision {
        let mut body = None;
        // The kernel's cap is for all choices together, the body's for each.
        let each = ticket.output_cap.map(|cap| cap / request.choices);
        if self.settings().cap_output && each == Some(0) {
            // Servers read a cap of zero as none.
            let reason = format!("no token is left for each of {} answers", request.choices);
            return not_sent(shared, ticket, call, &reason);
        }
        let lower = each.filter(|cap| request.output_cap.is_none_or(|own| *cap < own));
        if let (true, Some(cap)) = (self.settings().cap_output, lower) {
            match cap_output(request, decoded, cap, call.dialect.cap_field) {
                Ok(Some(changed)) => body = Some(Bytes::from(changed)),
                Ok(None) => {}
                // A call whose cap cannot be lowered could cost more than was reserved.
                Err(error) => return not_sent(shared, ticket, call, &error.to_string()),
            }
        }
        let own =
            signed.map(|signed| signed.headers(&url, body.as_ref().or(Some(raw)))).transpose();
        let own = match own {
            Ok(own) => own.unwrap_or_default(),
            Err(error) => return not_sent(shared, ticket, call, &error),
        };
        let abort = ticket.abort.clone();
        let streams = request.delivery != Delivery::Whole;
        let observer = CallObserver::new(Arc::clone(shared), ticket, call);
        let mut forward = Forward::unchanged(url, Box::new(observer));
        forward.body = body;
        forward.abort = abort;
        forward.headers = own;
        if streams {
            forward.headers.extend(readable_encoding(head));
        }
        Decision::Forward(forward)
    }
}

impl Gatekeeper for Gate {
    fn route(&self, head: &RequestHead) -> Route {
        let target = head.target.path_and_query().map_or("/", |target| target.as_str());
        match route(head.method.as_str(), target) {
            Ok(line) if self.reads_body(head, &self.in_only_run(line.clone())) => Route::Read,
            _ => Route::Stream,
        }
    }

    async fn decide(&self, head: Arc<RequestHead>, body: RequestBody) -> Decision {
        self.decide_about(&head, &body).await
    }

    fn notice(&self, notice: Notice) {
        match notice {
            Notice::Refused { reason, target, .. } => {
                // A constant.
                (self.hear)(GuardEvent::Refused { target, reason: Redacted::exempt(reason) });
            }
            Notice::Stranger { reason, .. } => {
                let count = self.strangers.fetch_add(1, Ordering::Relaxed) + 1;
                if count.is_power_of_two() {
                    // A constant.
                    let reason = Redacted::exempt(reason);
                    (self.hear)(GuardEvent::Stranger { reason, count });
                }
            }
            Notice::BodyCut { .. } | Notice::Accept { .. } => {}
        }
    }
}

/// The context window of a model that the catalogue does not know, in tokens: that of the largest usual ones.
const USUAL_WINDOW: u64 = 1_048_576;
/// The reason for a refusal of a response that guard has not seen.
const UNKNOWN: &str = "guard has not seen the response that this request continues, so that it cannot count the \
     conversation: send it whole";
/// The note about a conversation that the provider stores.
const UNKNOWN_LENGTH: &str = "the provider stores this conversation, whose length guard does not know: each call is \
     reserved as if it filled the model's context window";
/// Refuses a call that was admitted, and ends it in its run.
fn not_sent(shared: &Arc<Shared>, ticket: Ticket, call: Arc<CallFacts>, error: &str) -> Decision {
    let is_turn = shared.lock().counts_as_turn(&ticket.place, &call);
    let observer = CallObserver::new(Arc::clone(shared), ticket, call);
    Box::new(observer).end(End::NoResponse { error: format!("{NOT_SENT}: {error}"), sent: false });
    shared.lock().rejects(Cause::Refused, error, is_turn);
    Decision::Answer(to_proxy(bad_request(error)))
}

/// Ends of headers that choose a service tier, and values that do not raise the price.
const TIER_HEADERS: &[&str] = &["service-tier", "performanceconfig-latency", "shared-request-type"];
const USUAL_TIERS: &[&str] = &["auto", "default", "flex", "standard"];

/// Returns the header by which a call may have another price than that of the list.
fn tier_header(head: &RequestHead) -> Option<&str> {
    let is_tier = |name: &str| TIER_HEADERS.iter().any(|end| name.ends_with(end));
    let is_usual = |value: &HeaderValue| {
        value
            .to_str()
            .is_ok_and(|value| USUAL_TIERS.contains(&value.trim().to_ascii_lowercase().as_str()))
    };
    let mut headers = head.headers.iter();
    headers
        .find(|(name, value)| is_tier(name.as_str()) && !is_usual(value))
        .map(|(name, _)| name.as_str())
}

/// Returns the reason why a ceiling of the run could not be kept with a call.
fn objection(
    head: &RequestHead,
    run: &Guarded,
    request: &Request<'_>,
    placed: &Placed,
    (price, other_unknown, is_only): (Option<Price>, Option<String>, bool),
) -> Option<(Cause, String)> {
    if run.outcome().is_some() {
        return None;
    }
    if run.counts_calls() && request.has_ambiguous_model() {
        return Some((Cause::Refused, TWO_MODELS.to_owned()));
    }
    if price.is_none() && run.needs_price() {
        return Some((Cause::UnknownPrice, no_price(request.model.as_deref(), is_only)));
    }
    if !run.is_strict() {
        return None;
    }
    if let Some(model) = other_unknown.filter(|_| run.needs_price()) {
        return Some((Cause::UnknownPrice, no_price(Some(&model), is_only)));
    }
    let unbounded: String = if !placed.prompt_known {
        "the request continues a response that guard has not seen, so its size is not known".into()
    } else if let Some(name) = tier_header(head) {
        format!("the header `{name}` may have another price than that of the list")
    } else {
        request.unbounded()?
    };
    Some((Cause::Refused, format!("{unbounded}, and --cap-output cannot keep the ceiling")))
}

/// A model call that is admitted.
struct Sent<'a> {
    head: &'a RequestHead,
    request: &'a Request<'a>,
    /// The body as the client sent it.
    raw: &'a Bytes,
    decoded: &'a Bytes,
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

fn place_of(placed: &Placed) -> Place {
    if placed.kind.is_turn() {
        Place::Thread(placed.seat.thread.clone())
    } else {
        // Only threads get a text, so the number does not matter.
        Place::Auxiliary(u64::MAX)
    }
}

/// Returns the format of the response. InvokeModel has a framing of its own around the format of the
/// model, which is that of the request's body.
fn spoken(request: &Request<'_>) -> WireFormat {
    match request.format {
        WireFormat::BedrockInvoke => WireFormat::BedrockInvoke,
        _ => request.shape,
    }
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
