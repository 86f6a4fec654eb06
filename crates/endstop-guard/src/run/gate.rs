//! The gatekeeper of guard: places each call in its run, and admits, answers or refuses it.

use super::answers::to_proxy;
use super::call::Place;
use super::call::{CallFacts, Ticket};
use super::event::{GuardEvent, Hear};
use super::guarded::Admitted;
use super::journal::keys_of;
use super::observer::{CallObserver, NOT_SENT};
use super::pricing::{dialect_of, price_of};
use super::runs::{RunHandle, Shared};
use super::settings::Settings;
use crate::exchange::answer::{Reply, bad_request};
use crate::exchange::{
    Attempt, Call, ClientFacts, Delivery, Placed, Request, Route as Line, RunKey, RunName, Salt,
    Threads, cap_output, owner, route,
};
use crate::proxy::{
    Decision, End, Forward, Gatekeeper, Notice, RequestBody, RequestHead, ResponseObserver, Route,
    UpstreamMap,
};
use bytes::Bytes;
use endstop_core::{GuestCall, Price};
use endstop_wire::catalog::prices::ModelInfo;
use endstop_wire::{RequestFacts, WireFormat};
use http::header::ACCEPT_ENCODING;
use http::{HeaderName, HeaderValue, Uri};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Runs that are remembered after their end, so that late calls are still refused.
const MOST_RUNS: usize = 10_000;

/// The answer to a request with a signature of Amazon Web Services.
const SIGNED: &str = "this request is signed for the address of the proxy, and Amazon Bedrock would \
     reject it; use a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK), which passes unchanged";

/// Receives each run that starts, on the task of its first request.
pub type OnStart = Box<dyn Fn(&RunHandle) + Send + Sync>;

/// Puts the calls of agents under the kernel.
pub struct Gate {
    settings: RwLock<Arc<Settings>>,
    upstreams: UpstreamMap,
    salt: Salt,
    threads: Arc<Mutex<Threads>>,
    runs: Mutex<Runs>,
    /// The run of every call, if the guard has started the only program that it serves.
    only: Option<RunName>,
    hear: Hear,
    on_start: Option<OnStart>,
}

#[derive(Default)]
struct Runs {
    by_key: HashMap<RunKey, RunHandle>,
    /// Keys in the order in which the runs started.
    order: std::collections::VecDeque<RunKey>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("settings", &self.settings()).finish_non_exhaustive()
    }
}

impl Gate {
    /// Creates a gate. The salt must be random: with it, keys of clients become fingerprints.
    pub fn new(settings: Settings, upstreams: UpstreamMap, salt: [u8; 32], hear: Hear) -> Gate {
        let salt = Salt::new(salt);
        Gate {
            settings: RwLock::new(Arc::new(settings)),
            upstreams,
            threads: Arc::new(Mutex::new(Threads::new(salt.clone()))),
            salt,
            runs: Mutex::default(),
            only: None,
            hear,
            on_start: None,
        }
    }

    /// Reports each run that starts.
    #[must_use]
    pub fn on_start(mut self, on_start: OnStart) -> Gate {
        self.on_start = Some(on_start);
        self
    }

    /// Changes the settings of runs that start from now on.
    pub fn renew(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Settings::clone(&settings);
        change(&mut new);
        *settings = Arc::new(new);
    }

    /// Forgets a run: the next call with its name starts another one.
    pub fn forget(&self, handle: &RunHandle) {
        let key = handle.key();
        let mut runs = lock(&self.runs);
        // The name may belong to a later run by now.
        if runs.by_key.get(&key).is_some_and(|known| Arc::ptr_eq(&known.0, &handle.0)) {
            runs.by_key.remove(&key);
            runs.order.retain(|known| *known != key);
        }
        drop(runs);
        lock(&self.threads).forget(&key);
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts every call into one run, whatever the client says, and starts that run now.
    pub fn only(mut self, name: RunName) -> (Gate, RunHandle) {
        let handle = self.run_of(&RunKey::of_prefix(&name));
        self.only = Some(name);
        (self, handle)
    }

    /// The runs, in the order in which they started.
    pub fn runs(&self) -> Vec<RunHandle> {
        let runs = lock(&self.runs);
        runs.order.iter().filter_map(|key| runs.by_key.get(key).cloned()).collect()
    }

    fn run_of(&self, key: &RunKey) -> RunHandle {
        let mut runs = lock(&self.runs);
        if let Some(handle) = runs.by_key.get(key) {
            return handle.clone();
        }
        if runs.order.len() >= MOST_RUNS {
            // An ended run first: a live one would lose its budget.
            let ended =
                |key: &RunKey| runs.by_key.get(key).is_none_or(|handle| handle.outcome().is_some());
            let at = runs.order.iter().position(ended).unwrap_or(0);
            if let Some(old) = runs.order.remove(at)
                && let Some(handle) = runs.by_key.remove(&old)
            {
                handle.close(false, "the guard serves too many runs");
            }
        }
        let handle = RunHandle(Shared::start(
            key.clone(),
            &self.settings(),
            &self.threads,
            Arc::clone(&self.hear),
        ));
        runs.order.push_back(key.clone());
        runs.by_key.insert(key.clone(), handle.clone());
        drop(runs);
        if let Some(on_start) = &self.on_start {
            on_start(&handle);
        }
        (self.hear)(GuardEvent::RunStarted { run: key.id().to_owned() });
        handle
    }

    /// Decides about a request.
    pub(crate) fn decide_now(&self, head: &RequestHead, body: &RequestBody) -> Decision {
        let target = head.target.path_and_query().map_or("/", |target| target.as_str());
        let mut line = match route(head.method.as_str(), target) {
            Ok(line) => line,
            Err(error) => return self.refuse(head, &error.to_string()),
        };
        if let Some(only) = &self.only {
            line.run = Some(only.clone());
        }
        let decoded = match (line.call, body) {
            (Call::Model { .. }, RequestBody::Whole { decoded, .. }) => decoded,
            (Call::Model { format, .. }, body) => {
                let reason = match body {
                    RequestBody::TooLarge { .. } => "the body is too large to be read",
                    RequestBody::Unreadable { .. } => "the body cannot be decompressed",
                    _ => "the body was not read",
                };
                return self.pass(head, &line, Some(format), reason);
            }
            _ => return self.forward(head, &line, None),
        };
        self.model_call(head, &line, decoded)
    }

    fn model_call(&self, head: &RequestHead, line: &Line, decoded: &Bytes) -> Decision {
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, &line.target, &self.salt);
        let request = match Request::read(line, decoded) {
            Ok(request) => request,
            Err(error) => {
                let Call::Model { format, .. } = line.call else {
                    return self.forward(head, line, None);
                };
                return self.pass(head, line, Some(format), &error.to_string());
            }
        };
        // Released before the answer, because the listener of events may take any time.
        let placed = lock(&self.threads).place(&facts, line, &request);
        let placed = match placed {
            Ok(placed) => placed,
            Err(error) => return self.refuse(head, &error.to_string()),
        };
        let url = match self.url(line, Some(request.format)) {
            Ok(url) => url,
            Err(error) => return self.refuse(head, &error),
        };
        if is_signed(head) {
            return self.refuse(head, SIGNED);
        }
        let (price, catalogue) = self.price(&request, url.host());
        let run = self.run_of(&placed.seat.run);
        let reply = Reply::to(&request, &facts);
        let call = Arc::new(CallFacts {
            seat: placed.seat.clone(),
            kind: placed.kind,
            reply,
            request: RequestFacts { output_cap: request.output_cap, ..RequestFacts::default() },
            dialect: dialect_of(spoken(&request), url.host()),
            catalogue,
        });
        let guest_call = guest_call(&request, &placed, price);
        let shared = &run.0;
        let at = shared.now();
        let mut guarded = shared.lock();
        if price.is_none() && guarded.needs_price() && guarded.outcome().is_none() {
            let model = request.model.as_deref().unwrap_or("unknown");
            let reason = format!(
                "no price is known for the model `{model}`, so the cost limit cannot be enforced; \
                 give one with --price"
            );
            drop(guarded);
            return self.refuse(head, &reason);
        }
        if guarded.outcome().is_none() && guarded.is_strict() && !placed.prompt_known {
            drop(guarded);
            let reason = "the request continues a response that guard has not seen, so its size is \
                          not known and --cap-output cannot keep the ceiling";
            return self.refuse(head, reason);
        }
        let place = place_of(&placed);
        match guarded.admit(at, placed, guest_call, &call, keys_of(head)) {
            Admitted::Ended => {
                let answer = guarded.answer(&place, &call);
                drop(guarded);
                shared.changed();
                Decision::Answer(answer)
            }
            Admitted::Go(ticket) => {
                drop(guarded);
                shared.changed();
                self.send(shared, url, (head, &request, decoded), ticket, call)
            }
        }
    }

    /// Forwards an admitted call, with a lower output cap if that was decided.
    fn send(
        &self,
        shared: &Arc<Shared>,
        url: Uri,
        (head, request, decoded): (&RequestHead, &Request<'_>, &Bytes),
        ticket: Ticket,
        call: Arc<CallFacts>,
    ) -> Decision {
        let mut body = None;
        // The kernel's cap is for all choices together, the body's for each.
        let each = ticket.output_cap.map(|cap| cap / request.choices);
        let lower = each.filter(|cap| request.output_cap.is_none_or(|own| *cap < own));
        if let (true, Some(cap)) = (self.settings().cap_output, lower) {
            match cap_output(request, decoded, cap, call.dialect.cap_field) {
                Ok(Some(changed)) => body = Some(Bytes::from(changed)),
                Ok(None) => {}
                Err(error) => {
                    // A call whose cap cannot be lowered could cost more than was reserved.
                    let observer = CallObserver::new(Arc::clone(shared), ticket, call);
                    let error_at_end = format!("{NOT_SENT}: {error}");
                    Box::new(observer).end(End::NoResponse { error: error_at_end });
                    return Decision::Answer(to_proxy(bad_request(&error.to_string())));
                }
            }
        }
        let abort = ticket.abort.clone();
        let streams = request.delivery != Delivery::Whole;
        let observer = CallObserver::new(Arc::clone(shared), ticket, call);
        let mut forward = Forward::unchanged(url, Box::new(observer));
        forward.body = body;
        forward.abort = abort;
        if streams {
            forward.headers.extend(readable_encoding(head));
        }
        Decision::Forward(forward)
    }

    /// Passes a model call that cannot be judged. A run that has ended gets nothing more.
    fn pass(
        &self,
        head: &RequestHead,
        line: &Line,
        format: Option<WireFormat>,
        reason: &str,
    ) -> Decision {
        if let Some(run) = self.named_run(head, line) {
            let mut guarded = run.0.lock();
            if let Some(outcome) = guarded.outcome().cloned() {
                guarded.counts.refusals += 1;
                guarded.meter().refused();
                let message = guarded.message(&outcome);
                drop(guarded);
                run.0.changed();
                return Decision::Answer(to_proxy(bad_request(&message)));
            }
            if guarded.needs_price() || guarded.has_limits() {
                drop(guarded);
                let reason = format!("{reason}, so the limits of this run cannot be enforced");
                return self.refuse(head, &reason);
            }
            guarded.counts.unread += 1;
        } else if self.settings().has_limits() {
            // No call of its run has been read yet, so its run is not known.
            let reason = format!("{reason}, so the limits of its run cannot be enforced");
            return self.refuse(head, &reason);
        }
        let target = head.redacted_target();
        (self.hear)(GuardEvent::Passed { target, reason: reason.to_owned() });
        self.forward(head, line, format)
    }

    /// Returns the run that the request line or a header names, if it has started.
    fn named_run(&self, head: &RequestHead, line: &Line) -> Option<RunHandle> {
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, &line.target, &self.salt);
        let key = lock(&self.threads).run_in_headers(&facts, line).ok().flatten()?;
        lock(&self.runs).by_key.get(&key).cloned()
    }

    fn forward(&self, head: &RequestHead, line: &Line, format: Option<WireFormat>) -> Decision {
        let format = format.or_else(|| owner(&line.target, |name| head.header(name)));
        match self.url(line, format) {
            Ok(url) => Decision::Forward(Forward::unchanged(url, Box::new(Unread))),
            Err(error) => self.refuse(head, &error),
        }
    }

    fn refuse(&self, head: &RequestHead, reason: &str) -> Decision {
        let target = head.redacted_target();
        self.settings().meter.refused();
        (self.hear)(GuardEvent::Refused { target, reason: reason.to_owned() });
        Decision::Answer(to_proxy(bad_request(reason)))
    }

    fn url(&self, line: &Line, format: Option<WireFormat>) -> Result<Uri, String> {
        let (path, query) = match line.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (line.target.as_str(), None),
        };
        self.upstreams.url(format, path, query).map_err(|error| error.to_string())
    }

    /// Returns the price of a call, and its source if that is the catalogue.
    fn price(
        &self,
        request: &Request<'_>,
        host: Option<&str>,
    ) -> (Option<Price>, Option<ModelInfo>) {
        if let Some(price) = self.settings().price {
            return (Some(price), None);
        }
        let model = request.model.as_deref();
        let info = model.and_then(|model| price_of(request.format, host, model));
        (info.as_ref().map(|info| info.price), info)
    }
}

impl Gatekeeper for Gate {
    fn route(&self, head: &RequestHead) -> Route {
        let target = head.target.path_and_query().map_or("/", |target| target.as_str());
        match route(head.method.as_str(), target) {
            Ok(line) if matches!(line.call, Call::Model { .. }) => Route::Read,
            _ => Route::Stream,
        }
    }

    async fn decide(&self, head: Arc<RequestHead>, body: RequestBody) -> Decision {
        self.decide_now(&head, &body)
    }

    fn notice(&self, notice: Notice) {
        if let Notice::Refused { reason, target, .. } = notice {
            (self.hear)(GuardEvent::Refused { target, reason: reason.to_owned() });
        }
    }
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

/// Observes a response that belongs to no model call.
struct Unread;

impl ResponseObserver for Unread {
    fn end(self: Box<Self>, _end: End) {}
}

/// Returns whether a request has a signature that covers its host, which a proxy changes.
fn is_signed(head: &RequestHead) -> bool {
    head.header("authorization").is_some_and(|value| value.starts_with("AWS4-HMAC-"))
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

fn guest_call(request: &Request<'_>, placed: &Placed, price: Option<Price>) -> GuestCall {
    GuestCall {
        input: placed.input.clone(),
        prompt_bytes: placed.prompt_bytes,
        output_cap: request.output_cap.map(|cap| cap.saturating_mul(request.choices)),
        thinking_budget: request.thinking.unwrap_or(0),
        model: request.model.clone(),
        price,
        streaming: request.delivery != Delivery::Whole,
        attempt_of_previous: placed.attempt != Attempt::First,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
