//! A call over HTTP: sends the request and decodes the response as it arrives.
//!
//! ```text
//! let mut call = HttpCall::new(tap, prepared, address, facts);
//! call.send(Unsent { headers, body }, &transport); // now a stream of events
//! ```

use super::super::record::Tap;
use super::super::recording::Ended;
use super::super::transport::{Address, Body, ConnectionReset, Sending, Transport};
use super::super::{CallEvent, Response};
use super::deltas::take_delta;
use super::prepared::Prepared;
use bytes::Bytes;
use endstop_core::{ErrorClass, ModelError, ModelTurn, Part, SignalReason, TerminationSignal};
use endstop_wire::dialect::Dialect;
use endstop_wire::{Eof, RequestFacts, RestClock, StreamDecoder, windows};
use futures_core::Stream;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes of a body that are read before other tasks on the thread get a turn. A buffered or
/// compressed body is available at once and may be endless, and stops and timers must not wait for
/// it.
const TURN_BYTES: usize = 256 << 10;

/// A request that may have to wait for its key.
pub(super) struct Unsent {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The rest of a response whose connection may stay open.
struct Rest {
    began: Instant,
    clock: RestClock,
    /// Boxed, because few calls wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    fn new() -> Rest {
        Rest { began: Instant::now(), clock: RestClock::default(), timer: None }
    }

    /// Notes a chunk that has arrived.
    fn note(&mut self, decoder: &mut StreamDecoder, has_content: bool) {
        let due = self.clock.note(self.began.elapsed(), decoder, has_content);
        match (due.map(|due| self.began + due), &mut self.timer) {
            (Some(due), Some(timer)) => timer.as_mut().reset(due),
            (Some(due), None) => self.timer = Some(Box::pin(sleep_until(due))),
            (None, _) => self.timer = None,
        }
    }
}

type Key = Pin<Box<dyn Future<Output = Result<HeaderValue, ModelError>> + Send>>;

enum State {
    /// The key is being fetched.
    Asking {
        key: Key,
        request: Unsent,
        transport: Transport,
    },
    Sending(Sending),
    Reading(Body, Box<StreamDecoder>),
    Done,
}

/// A call in progress; dropping it closes the connection.
pub(super) struct HttpCall {
    state: State,
    /// The recorder of this call, if it is recorded.
    tap: Option<Box<Tap>>,
    prepared: Arc<Prepared>,
    address: Arc<Address>,
    facts: RequestFacts,
    /// `true` if reasoning and arguments are reported as text.
    details: bool,
    ready: VecDeque<CallEvent>,
    /// Bytes read since other tasks had a turn.
    read: usize,
    rest: Rest,
}

impl HttpCall {
    pub(super) fn new(
        tap: Option<Tap>,
        prepared: Arc<Prepared>,
        address: Arc<Address>,
        facts: RequestFacts,
    ) -> HttpCall {
        HttpCall {
            state: State::Done,
            tap: tap.map(Box::new),
            prepared,
            address,
            facts,
            details: false,
            ready: VecDeque::new(),
            read: 0,
            rest: Rest::new(),
        }
    }

    /// Sets the time without content after which the run aborts the call.
    pub(super) fn stall_timeout(mut self, timeout: Option<Duration>) -> HttpCall {
        self.rest.clock.stall_timeout = timeout;
        self
    }

    /// Reports reasoning and arguments as text if `details` is `true`.
    pub(super) fn details(mut self, details: bool) -> HttpCall {
        self.details = details;
        self
    }

    /// Sends the request, after its key was fetched.
    pub(super) fn send(&mut self, request: Unsent, transport: &Transport) {
        let Some(keys) = self.prepared.keys.clone() else {
            let Unsent { headers, body } = request;
            self.state = State::Sending(transport.send(&self.address, headers, body));
            return;
        };
        let key = Box::pin(async move { keys.header().await });
        self.state = State::Asking { key, request, transport: transport.clone() };
    }

    /// Reads and decodes the next chunk of the body. Returns how the body ended, or `None` if more
    /// of it is expected.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Eof>> {
        let State::Reading(body, decoder) = &mut self.state else {
            return Poll::Ready(None);
        };
        if self.read >= TURN_BYTES {
            // Wake the task at once: there may be more data, and no new I/O event announces it.
            self.read = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Poll::Ready(next) = body.poll_next(cx) else {
            self.read = 0;
            let Some(timer) = &mut self.rest.timer else { return Poll::Pending };
            return timer.as_mut().poll(cx).map(|()| Some(Eof::Clean));
        };
        Poll::Ready(match next {
            Some(Ok(chunk)) => {
                self.read += chunk.len();
                if let Some(tap) = &mut self.tap {
                    tap.chunk(&chunk);
                }
                // `ready` is empty here, so only deltas of this chunk are merged.
                let (ready, details) = (&mut self.ready, self.details);
                let pushed = decoder.push(&chunk, &mut |delta| take_delta(ready, delta, details));
                match pushed {
                    Ok(()) if !decoder.is_complete() => {
                        // A recorded response ends as it did when it was recorded.
                        if matches!(body, Body::Network(_)) {
                            let has_content = !self.ready.is_empty();
                            self.rest.note(decoder, has_content);
                        }
                        None
                    }
                    // The decoder has seen the end of the message. Ignore the rest of the
                    // connection: some servers keep it open, and waiting would delay the turn.
                    _ => Some(Eof::Clean),
                }
            }
            Some(Err(ConnectionReset)) => Some(Eof::Reset),
            None => Some(Eof::Clean),
        })
    }

    /// Ends the call with the response that was decoded.
    fn finish(&mut self, eof: Eof) {
        if let Some(tap) = self.tap.take() {
            tap.ended(match eof {
                Eof::Clean => Ended::Clean,
                Eof::Reset => Ended::Reset,
            });
        }
        if let State::Reading(_, decoder) = std::mem::replace(&mut self.state, State::Done) {
            let mut decoded = decoder.finish(eof);
            if let Some(error) = &mut decoded.error {
                name_address(error, || self.prepared.asked(&self.address));
            }
            decoded.price_service_tier(self.prepared.catalogue.as_ref());
            self.ready.push_back(ended(decoded, self.prepared.dialect));
        }
    }

    /// Ends the call without a response.
    pub(super) fn fail(&mut self, error: ModelError) {
        self.state = State::Done;
        if let Some(tap) = self.tap.take() {
            tap.failed(&error);
        }
        self.ready.push_back(CallEvent::Failed(error, None));
    }
}

impl Stream for HttpCall {
    type Item = CallEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            match &mut this.state {
                State::Done => return Poll::Ready(None),
                State::Asking { key, request, transport } => match ready!(key.as_mut().poll(cx)) {
                    Ok(key) => {
                        // The recorder must know the fetched key before anything of this request is
                        // written.
                        request.headers.insert(AUTHORIZATION, key);
                        if let Some(tap) = &mut this.tap {
                            tap.keyed(&this.address.url, &request.headers);
                        }
                        let body = request.body.clone();
                        let headers = std::mem::take(&mut request.headers);
                        let sending = transport.send(&this.address, headers, body);
                        this.state = State::Sending(sending);
                    }
                    Err(error) => this.fail(error),
                },
                State::Sending(sending) => match ready!(sending.poll(cx)) {
                    Ok(head) => {
                        if let Some(tap) = &mut this.tap {
                            tap.head(head.status, &head.headers);
                        }
                        let windows = windows::of(&head.headers);
                        if !windows.is_empty() {
                            this.ready.push_back(CallEvent::Windows(windows));
                        }
                        let decoder = StreamDecoder::new(
                            this.prepared.dialect,
                            head.status,
                            head.headers,
                            this.facts,
                        );
                        // Deltas of a chunk are merged, so most chunks give one event.
                        this.ready.reserve_exact(1);
                        this.state = State::Reading(head.body, Box::new(decoder));
                    }
                    Err(error) => this.fail(error),
                },
                State::Reading(..) => {
                    if let Some(eof) = ready!(this.poll_body(cx)) {
                        this.finish(eof);
                    }
                }
            }
        }
    }
}

/// Appends the request's URL and model to an error that means "not found", because either the
/// address or the model name may be wrong.
fn name_address(error: &mut ModelError, asked: impl Fn() -> String) {
    let Some(status) = error.status else { return };
    let elsewhere = matches!(status, 300..400 | 404 | 405 | 410 | 501);
    if elsewhere || error.class == ErrorClass::NotFound {
        error.message = format!("{} (HTTP {status} for {})", error.message, asked());
    }
}

fn ended(decoded: endstop_wire::Decoded, dialect: &Dialect) -> CallEvent {
    let signal = decoded.signal;
    match (decoded.error, decoded.turn) {
        (Some(error), mut turn) => {
            // These formats report the output count twice: a preliminary value at the start of the
            // stream and the final one at its end. The preliminary count of a truncated stream must
            // not be charged as usage.
            let early = dialect.family.has_preliminary_output();
            let raw = &signal.provider_specific;
            let ended = raw.original_field == "stop_reason" && !raw.original_value.is_empty();
            if let Some(turn) = turn.as_mut().filter(|_| early && !ended) {
                turn.usage.output_tokens = None;
            }
            CallEvent::Failed(error, turn.map(|turn| Box::new(response(turn, signal))))
        }
        (None, Some(turn)) => CallEvent::Ended(Box::new(response(turn, signal))),
        (None, None) => CallEvent::Failed(
            ModelError::new(ErrorClass::IncompleteStream, "the response has no turn in it"),
            None,
        ),
    }
}

fn response(turn: ModelTurn, signal: TerminationSignal) -> Response {
    debug_assert!(signal.reason != SignalReason::InProgress || !signal.should_terminate);
    let parts: Vec<Part> = turn.parts;
    Response {
        parts,
        usage: turn.usage,
        model: turn.model,
        id: turn.response_id,
        cost: turn.cost,
        output_cap: turn.output_cap,
        confidence: turn.confidence,
        metadata: serde_json::Map::new(),
        signal: Some(signal),
        unparseable: turn.unparseable,
        finish_missing: turn.finish_missing,
        call_missing: turn.call_missing,
    }
}
