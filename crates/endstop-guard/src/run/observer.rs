//! Reads the copy of a response: deltas go to the kernel while they pass, the decoded response at
//! the end.

use super::call::{CallFacts, OpenCall, Ticket};
use super::calls::Response;
use super::runs::Shared;
use crate::exchange::answer::{Ending, Stamp, Tail};
use crate::proxy::{End, Flow, ReadOn, ResponseHead, ResponseObserver, Unreadable};
use bytes::Bytes;
use endstop_core::{ErrorClass, ModelError, ModelTurn, TurnDelta};
use endstop_wire::{Decoded, Delta, Eof, Headers, StreamDecoder, WireFormat};
use http::{HeaderName, HeaderValue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The response header with the warnings of a thread.
const WARNING: &str = "x-endstop-warning";
/// The longest text in that header, in characters.
const LONGEST_WARNING: usize = 400;

/// The error of a request that was not sent.
pub(super) const NOT_SENT: &str = "the request was not sent";

/// Observes one call. Its state is shared with the run: a client calls again as soon as it has the end of a
/// message, which can be before the exchange ends.
pub(super) struct CallObserver(Arc<Mutex<Reading>>);

impl CallObserver {
    pub(super) fn new(shared: Arc<Shared>, ticket: Ticket, facts: Arc<CallFacts>) -> CallObserver {
        let (run, number) = (Arc::clone(&shared), ticket.number);
        let reading = Arc::new(Mutex::new(Reading::new(shared, ticket, facts)));
        // A copy, because the type of a reading is not known there.
        let open: Arc<Mutex<dyn OpenCall>> = reading.clone();
        run.lock().is_read_by(number, Arc::downgrade(&open));
        CallObserver(reading)
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        lock(&self.0)
    }
}

// After a panic the response is at worst one that cannot be decoded, which is an error of the call.
pub(super) fn lock<T: OpenCall + ?Sized>(reading: &Mutex<T>) -> MutexGuard<'_, T> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ResponseObserver for CallObserver {
    fn head(&mut self, head: &ResponseHead) {
        self.reading().head(head);
    }

    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        self.reading().headers()
    }

    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        self.reading().bytes(chunk)
    }

    fn unreadable(&mut self, reason: Unreadable) -> Flow {
        self.reading().unreadable(&reason)
    }

    fn client_gone(&mut self) -> ReadOn {
        self.reading().client_gone()
    }

    fn end(self: Box<Self>, end: End) {
        self.reading().report_end(&end);
    }
}

impl Drop for CallObserver {
    // The request was dropped before it was forwarded.
    fn drop(&mut self) {
        let mut reading = self.reading();
        if !reading.is_ended {
            reading.report_end(&End::NoResponse { error: NOT_SENT.to_owned(), sent: false });
        }
    }
}

/// The reading of one response.
struct Reading {
    shared: Arc<Shared>,
    ticket: Ticket,
    facts: Arc<CallFacts>,
    decoder: Option<Box<StreamDecoder>>,
    /// The error that ended decoding. Boxed like the next field, because each chunk reads the fields below.
    problem: Option<Box<ModelError>>,
    /// Follows the text of a stream that a policy may cut.
    tail: Option<Box<Tail>>,
    /// Deltas of the chunk that is read.
    deltas: Vec<TurnDelta>,
    /// The time of the request, until the first byte of its response.
    asked_at: Option<Duration>,
    /// The status of the response; 0 before its head.
    status: u16,
    is_ended: bool,
}

impl Reading {
    fn new(shared: Arc<Shared>, ticket: Ticket, facts: Arc<CallFacts>) -> Reading {
        let tail = shared.may_cut_text().then(|| {
            let stamp = Stamp { id: "endstop", unix_seconds: shared.unix_seconds() };
            Box::new(Tail::new(&facts.reply, stamp))
        });
        let asked_at = shared.now();
        Reading {
            shared,
            ticket,
            facts,
            decoder: None,
            problem: None,
            tail,
            deltas: Vec::new(),
            asked_at: Some(asked_at),
            status: 0,
            is_ended: false,
        }
    }

    /// Reports the deltas of a chunk. Returns `false` if the run has ended.
    fn report(&mut self) -> bool {
        let deltas = std::mem::take(&mut self.deltas);
        if deltas.is_empty() {
            return true;
        }
        let at = self.shared.now();
        let mut run = self.shared.lock();
        deltas.into_iter().all(|delta| run.delta(at, &self.ticket, delta))
    }

    /// Decodes a chunk and reports its content.
    fn read(&mut self, chunk: &[u8]) -> Flow {
        let Some(decoder) = &mut self.decoder else { return Flow::Pass };
        let deltas = &mut self.deltas;
        // An error of the decoder is in its result; the bytes still pass.
        let _ = decoder.push(chunk, &mut |delta| take(deltas, delta, chunk.len()));
        if self.report() { Flow::Pass } else { self.stop() }
    }

    /// Ends the client's stream because the run has ended: cleanly if the model writes text, and
    /// never inside a tool call, because clients complete and run a cut call.
    fn stop(&mut self) -> Flow {
        self.shared.changed();
        let note = {
            let run = self.shared.lock();
            run.outcome().map(|outcome| format!("\n\n{}", run.message(outcome)))
        };
        match self.tail.as_ref().map(|tail| tail.end(note.as_deref().unwrap_or_default())) {
            Some(Ending::Now(last)) => Flow::End { pass: usize::MAX, last: Bytes::from(last) },
            _ => Flow::Abort,
        }
    }
}

impl Reading {
    fn head(&mut self, head: &ResponseHead) {
        self.status = head.status.as_u16();
        self.decoder = Some(Box::new(decoder_of(&self.facts, head)));
    }

    fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        let warnings = self.shared.lock().response_began(&self.ticket);
        if warnings.is_empty() {
            return Vec::new();
        }
        // Evidence may quote the model, so only plain characters of it are sent.
        let text: String = warnings.join("; ").chars().take(LONGEST_WARNING).collect();
        let text: String = text.escape_default().to_string().replace("\\\"", "\"");
        let value = HeaderValue::from_str(&text).ok();
        value.map(|value| (HeaderName::from_static(WARNING), value)).into_iter().collect()
    }

    fn bytes(&mut self, chunk: &[u8]) -> Flow {
        if self.is_ended {
            return Flow::Pass;
        }
        if let Some(asked_at) = self.asked_at.take() {
            self.begins(asked_at);
        }
        if let Some(tail) = &mut self.tail {
            tail.push(chunk);
        }
        self.read(chunk)
    }

    /// Notes the first byte of the response.
    fn begins(&mut self, asked_at: Duration) {
        let took = self.shared.now().saturating_sub(asked_at);
        self.shared.lock().meter().first_byte(took);
    }

    fn unreadable(&mut self, reason: &Unreadable) -> Flow {
        let message = format!("the response cannot be read: {reason}");
        // The provider bills a response that only guard cannot read.
        let billed = self.status < 400;
        let class = if billed { ErrorClass::IncompleteStream } else { ErrorClass::UnknownError };
        self.problem.get_or_insert_with(|| Box::new(ModelError::new(class, message)));
        self.decoder = None;
        Flow::Pass
    }

    fn client_gone(&mut self) -> ReadOn {
        self.shared.lock().client_gone(&self.ticket);
        self.end_if_complete(false);
        ReadOn::default()
    }

    /// Reports the end of the call, once.
    fn report_end(&mut self, end: &End) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        let decoder = self.decoder.take();
        let response = match (end, self.problem.take()) {
            (_, Some(error)) => Err((*error, None)),
            (End::NoResponse { error, sent }, None) => {
                // A provider that has the request may bill it, even if it never answers.
                let class =
                    if *sent { ErrorClass::IncompleteStream } else { ErrorClass::ServerError };
                let message = format!("no response: {error}");
                Err((ModelError::new(class, message), None))
            }
            (End::Complete | End::Ended | End::ClientGone { whole: true }, None) => {
                decoded(decoder.map(|decoder| decoder.finish(Eof::Clean)), &self.facts)
            }
            (End::Cut { error }, None) => {
                broken(decoder, &self.facts, &format!("the upstream broke off: {error}"))
            }
            (End::ClientGone { whole: false }, None) => {
                broken(decoder, &self.facts, "the client closed its connection")
            }
            (End::Aborted, None) => broken(decoder, &self.facts, "the call was aborted"),
        };
        self.shared.finished(&self.ticket, &self.facts, response);
    }
}

impl OpenCall for Reading {
    fn end_if_complete(&mut self, has_waited: bool) -> bool {
        let Some(decoder) = &mut self.decoder else { return false };
        let needs_nothing = has_waited && decoder.has_ended_turn() && decoder.has_usage();
        if decoder.is_complete() || needs_nothing {
            self.report_end(&End::Complete);
            return false;
        }
        decoder.has_finish_value()
    }
}

/// Creates the decoder of a response.
pub(super) fn decoder_of(facts: &CallFacts, head: &ResponseHead) -> StreamDecoder {
    let headers = headers_of(head);
    StreamDecoder::new(facts.dialect, head.status.as_u16(), headers, facts.request)
}

/// The headers of a response, as decoders read them.
pub(super) fn headers_of(head: &ResponseHead) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in &head.headers {
        headers.push(name.as_str(), String::from_utf8_lossy(value.as_bytes()));
    }
    headers
}

/// The response of a connection that ended too early. A decoder that has seen the end of the message or its finish
/// value has a whole response all the same.
fn broken(decoder: Option<Box<StreamDecoder>>, facts: &CallFacts, why: &str) -> Response {
    let is_complete = |mut decoder: Box<StreamDecoder>| {
        let complete = decoder.is_complete() || decoder.has_ended_turn();
        (decoder, complete)
    };
    match decoder.map(is_complete) {
        Some((decoder, true)) => decoded(Some(decoder.finish(Eof::Clean)), facts),
        Some((decoder, false)) => {
            let result = decoded(Some(decoder.finish(Eof::Reset)), facts);
            let partial = match result {
                Ok(turn) => Some(Box::new(turn)),
                Err((_, partial)) => partial,
            };
            Err((ModelError::new(ErrorClass::IncompleteStream, why), partial))
        }
        None => Err((ModelError::new(ErrorClass::IncompleteStream, why), None)),
    }
}

pub(super) fn decoded(mut decoded: Option<Decoded>, facts: &CallFacts) -> Response {
    if let Some(decoded) = &mut decoded {
        decoded.price_service_tier(facts.catalogue.as_ref());
    }
    let Some(Decoded { turn, error, signal, .. }) = decoded else {
        let message = "the response ended before its head";
        return Err((ModelError::new(ErrorClass::IncompleteStream, message), None));
    };
    match (error, turn) {
        (Some(error), mut turn) => {
            // These formats count the output twice, first with a preliminary value. A cut stream has
            // only that one, and it must not be charged.
            let early =
                matches!(facts.dialect.family, WireFormat::Anthropic | WireFormat::BedrockInvoke);
            let raw = &signal.provider_specific;
            let ended = raw.original_field == "stop_reason" && !raw.original_value.is_empty();
            if let Some(turn) = turn.as_mut().filter(|_| early && !ended) {
                turn.usage.output_tokens = None;
            }
            Err((error, turn.map(|turn| Box::new(ModelTurn { signal, ..turn }))))
        }
        (None, Some(turn)) => Ok(ModelTurn { signal, ..turn }),
        (None, None) => {
            let message = "the response has no turn in it";
            Err((ModelError::new(ErrorClass::IncompleteStream, message), None))
        }
    }
}

/// Appends a delta; text of one chunk is merged. `most` bounds the bytes of text that are expected.
fn take(deltas: &mut Vec<TurnDelta>, delta: Delta<'_>, most: usize) {
    let count = |text: &str| text.chars().count() as u64;
    match (delta, deltas.last_mut()) {
        (Delta::Text(text), Some(TurnDelta::Text(so_far))) => so_far.push_str(text),
        (Delta::Text(text), _) => {
            let mut merged = String::with_capacity(most.max(text.len()));
            merged.push_str(text);
            deltas.push(TurnDelta::Text(merged));
        }
        (Delta::Reasoning(text) | Delta::Refusal(text), Some(TurnDelta::Reasoning(so_far))) => {
            *so_far += count(text);
        }
        (Delta::Reasoning(text) | Delta::Refusal(text), _) => {
            deltas.push(TurnDelta::Reasoning(count(text)));
        }
        (Delta::ToolArguments { json, .. }, Some(TurnDelta::ToolArguments(so_far))) => {
            *so_far += count(json);
        }
        (Delta::ToolArguments { json, .. }, _) => {
            deltas.push(TurnDelta::ToolArguments(count(json)));
        }
        (Delta::ToolCallStarted { name, .. }, _) => {
            deltas.push(TurnDelta::ToolArguments(count(name)));
        }
        _ => {}
    }
}
