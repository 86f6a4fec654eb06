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
use endstop_wire::{Eof, RequestFacts, StreamDecoder, windows};
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

/// The wait for the rest of a response that has its finish value and its usage. Only content extends it, so that a server
/// that keeps the connection open, perhaps with pings, does not cost a complete answer.
const REST_WAIT: Duration = Duration::from_secs(2);
/// The same wait for a response that has no usage yet, or that continued after a finish value.
const USAGE_WAIT: Duration = Duration::from_secs(10);
/// The time by which the wait ends before the run's `stall_timeout`, at most.
const STALL_MARGIN: Duration = Duration::from_millis(250);

/// The times that decide when a response is complete although its connection is open.
struct Rest {
    stall_timeout: Option<Duration>,
    last_content: Option<Instant>,
    /// The time of the finish value, or of the last content after it.
    quiet_since: Option<Instant>,
    /// `true` if content followed the finish value. Some servers send one with each event.
    has_resumed: bool,
    /// Boxed, because few calls wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    fn new() -> Rest {
        Rest {
            stall_timeout: None,
            last_content: None,
            quiet_since: None,
            has_resumed: false,
            timer: None,
        }
    }

    /// Notes a chunk that has arrived.
    fn note(&mut self, now: Instant, decoder: &mut StreamDecoder, has_content: bool) {
        match (self.due(now, decoder, has_content), &mut self.timer) {
            (Some(due), Some(timer)) => timer.as_mut().reset(due),
            (Some(due), None) => self.timer = Some(Box::pin(sleep_until(due))),
            (None, _) => self.timer = None,
        }
    }

    /// Returns the time at which the response is complete if nothing follows; `None` if it is not known to have ended.
    fn due(
        &mut self,
        now: Instant,
        decoder: &mut StreamDecoder,
        has_content: bool,
    ) -> Option<Instant> {
        if has_content {
            self.last_content = Some(now);
            self.has_resumed |= self.quiet_since.is_some();
            self.quiet_since = None;
        }
        if !decoder.has_ended_turn() {
            return None;
        }
        let since = *self.quiet_since.get_or_insert(now);
        let is_whole = decoder.has_usage() && !self.has_resumed;
        let due = since + if is_whole { REST_WAIT } else { USAGE_WAIT };
        let stalls = self.last_content.zip(self.stall_timeout).and_then(|(last, timeout)| {
            last.checked_add(timeout.saturating_sub(STALL_MARGIN.min(timeout / 10)))
        });
        Some(stalls.map_or(due, |stalls| due.min(stalls)))
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
        self.rest.stall_timeout = timeout;
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
                            self.rest.note(Instant::now(), decoder, has_content);
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

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_wire::Headers;
    use endstop_wire::dialect::OPENAI_CHAT;

    const TEXT: &str = r#"{"choices":[{"delta":{"content":"Hi"}}]}"#;
    const FINISH: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    const BOTH: &str = r#"{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    const UNKNOWN: &str = r#"{"choices":[{"delta":{},"finish_reason":"banana"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    const ZEROS: &str = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    const PING: &str = r#"{"choices":[]}"#;

    /// Returns the time in milliseconds at which the response of these events is complete.
    fn due(events: &[(u64, &str)], stall_timeout: Option<u64>) -> Option<u64> {
        let facts = RequestFacts::default();
        let mut decoder = StreamDecoder::new(OPENAI_CHAT, 200, Headers::new(), facts);
        let stall_timeout = stall_timeout.map(Duration::from_millis);
        let mut rest = Rest { stall_timeout, ..Rest::new() };
        let began = Instant::now();
        let mut due = None;
        for (at, event) in events {
            let mut has_content = false;
            let event = format!("data: {event}\n\n");
            decoder.push(event.as_bytes(), &mut |_| has_content = true).unwrap();
            due = rest.due(began + Duration::from_millis(*at), &mut decoder, has_content);
        }
        due.map(|due| (due - began).as_millis() as u64)
    }

    #[test]
    fn finish_value_ends_the_wait() {
        for (events, stall_timeout, want) in [
            (&[(0, TEXT)][..], None, None),
            (&[(0, TEXT), (1, USAGE)], None, None),
            (&[(0, TEXT), (100, FINISH)], None, Some(10_100)),
            (&[(0, TEXT), (100, FINISH), (300, USAGE)], None, Some(2_100)),
            (&[(0, TEXT), (100, USAGE), (300, FINISH)], None, Some(2_300)),
            (&[(0, TEXT), (100, FINISH), (300, ZEROS)], None, Some(10_100)),
            (&[(0, TEXT), (100, FINISH), (5_000, USAGE)], None, Some(2_100)),
            (&[(0, TEXT), (100, UNKNOWN), (300, USAGE)], None, None),
            (&[(0, TEXT), (100, FINISH), (300, UNKNOWN)], None, None),
            // Only content extends the wait.
            (&[(0, TEXT), (100, FINISH), (200, USAGE), (1_900, PING)], None, Some(2_100)),
            (&[(0, TEXT), (100, FINISH), (200, FINISH)], None, Some(10_100)),
            (&[(0, TEXT), (100, FINISH), (200, USAGE), (1_900, TEXT)], None, Some(11_900)),
            // A finish value with each event.
            (&[(0, USAGE), (100, BOTH)], None, Some(2_100)),
            (&[(0, USAGE), (100, BOTH), (200, BOTH)], None, Some(10_200)),
            // The run must not find a stall first.
            (&[(0, TEXT), (100, FINISH)], Some(60_000), Some(10_100)),
            (&[(0, TEXT), (100, FINISH)], Some(5_000), Some(4_750)),
            (&[(0, TEXT), (100, FINISH), (200, USAGE)], Some(1_000), Some(900)),
            (&[(0, FINISH)], Some(1_000), Some(10_000)),
        ] {
            assert_eq!(due(events, stall_timeout), want, "{events:?} {stall_timeout:?}");
        }
    }
}
