//! Reads the copy of a response: deltas go to the kernel while they pass, the decoded response at
//! the end.

use super::calls::{CallFacts, OpenCall, Ticket, lock_call};
use super::conversation::Conversation;
use super::ending::message;
use super::response::{broken, decoded, decoder_of, headers_of};
use super::shared::Shared;
use crate::exchange::answer::{Ending, Stamp, Tail};
use crate::proxy::{End, Flow, ReadOn, ResponseHead, ResponseObserver, Unreadable};
use bytes::Bytes;
use endstop_core::guest::Spending;
use endstop_core::{ErrorClass, ModelError, ToolCall, TurnDelta};
use endstop_wire::{Delta, Eof, RestClock, StreamDecoder, windows};
use http::{HeaderName, HeaderValue};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The response header with the warnings of a conversation.
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
        run.lock().calls.is_read_by(number, Arc::downgrade(&open));
        CallObserver(reading)
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        lock_call(&self.0)
    }
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
        let mut reading = self.reading();
        reading.report_end(&end);
        reading.book_late();
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
    /// The tool calls, for a client that completes and runs those which were cut.
    tool_calls: Option<BTreeMap<usize, ToolCall>>,
    /// Deltas of the chunk that is read.
    deltas: Vec<TurnDelta>,
    /// The end of a response whose connection stays open, and the time at which it counts as complete.
    rest: RestClock,
    complete_at: Option<Duration>,
    /// The time of the request, until the first byte of its response.
    asked_at: Option<Duration>,
    /// The head of the response.
    head: Option<Box<ResponseHead>>,
    /// The usage and cost that were booked for a call which ended before its exchange, and the reader of what
    /// comes after that.
    late: Option<(Spending, Box<StreamDecoder>)>,
    is_ended: bool,
}

impl Reading {
    fn new(shared: Arc<Shared>, ticket: Ticket, facts: Arc<CallFacts>) -> Reading {
        let tail = shared.may_cut_text().then(|| {
            let stamp = Stamp { id: "endstop", unix_seconds: shared.unix_seconds() };
            Box::new(facts.reply.tail(stamp))
        });
        let tool_calls = facts.reply.completes_cut_calls.then(BTreeMap::new);
        let asked_at = shared.now();
        Reading {
            rest: RestClock::default(),
            complete_at: None,
            shared,
            ticket,
            facts,
            decoder: None,
            problem: None,
            tail,
            tool_calls,
            deltas: Vec::new(),
            asked_at: Some(asked_at),
            head: None,
            late: None,
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
        self.shared.note_suspension(at);
        let (goes_on, due) = {
            let mut run = self.shared.lock();
            let goes_on = deltas.into_iter().all(|delta| run.delta(at, &self.ticket, delta));
            (goes_on, run.conversations.get(&self.ticket.place).and_then(Conversation::wake_at))
        };
        // The beginning of reasoning, which may then be followed by silence.
        self.shared.wake_by(due);
        goes_on
    }

    /// Decodes a chunk and reports its content.
    fn read(&mut self, chunk: &[u8]) -> Flow {
        let Some(decoder) = &mut self.decoder else { return Flow::Pass };
        let (deltas, tool_calls) = (&mut self.deltas, &mut self.tool_calls);
        // An error of the decoder is in its result; the bytes still pass.
        let _ = decoder.push(chunk, &mut |delta| {
            if let Some(calls) = tool_calls {
                collect(calls, &delta);
            }
            take(deltas, delta, chunk.len());
        });
        let is_withheld = decoder.has_finish_value()
            && tool_calls.as_ref().is_some_and(|calls| has_cut_call(calls, decoder));
        let due = self.rest.note(self.shared.now(), decoder, !deltas.is_empty());
        if due != self.complete_at {
            self.complete_at = due;
            self.shared.ends_at(&self.ticket, due);
        }
        match self.report() {
            false => self.stop(),
            // The client does not get the finish value, so that it discards the calls that it has so far.
            true if is_withheld => Flow::Abort,
            true => Flow::Pass,
        }
    }

    /// Ends the client's stream because the run has ended: cleanly if the model writes text, and
    /// never inside a tool call, because clients complete and run a cut call.
    fn stop(&mut self) -> Flow {
        self.shared.changed();
        let note = {
            let run = self.shared.lock();
            run.outcome().map(|outcome| format!("\n\n{}", message(&run, outcome)))
        };
        match self.tail.as_ref().map(|tail| tail.end(note.as_deref().unwrap_or_default())) {
            Some(Ending::Now(last)) => Flow::End { pass: usize::MAX, last: Bytes::from(last) },
            _ => Flow::Abort,
        }
    }
}

impl Reading {
    fn head(&mut self, head: &ResponseHead) {
        let windows = windows::of(&headers_of(head));
        if !windows.is_empty() {
            self.shared.windows(windows);
        }
        self.head = Some(Box::new(head.clone()));
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
        if let Some((_, late)) = &mut self.late {
            // An error of the decoder is in its result; the bytes still pass.
            let _ = late.push(chunk, &mut |_| {});
        }
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
        let billed = self.head.as_ref().is_none_or(|head| head.status.as_u16() < 400);
        let class = if billed { ErrorClass::IncompleteStream } else { ErrorClass::UnknownError };
        self.problem.get_or_insert_with(|| Box::new(ModelError::new(class, message)));
        self.decoder = None;
        Flow::Pass
    }

    fn client_gone(&mut self) -> ReadOn {
        self.shared.lock().calls.client_gone(&self.ticket);
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
        let booked = self.shared.finished(&self.ticket, &self.facts, response);
        // Read on if the exchange has not ended: usage may come later.
        if let (End::Complete, Some(head), Some(booked)) = (end, &self.head, booked) {
            self.late = Some((booked, Box::new(decoder_of(&self.facts, head))));
        }
    }

    /// Books what the provider reports after the call has ended, as far as it is more than was booked.
    fn book_late(&mut self) {
        let Some((booked, late)) = self.late.take() else { return };
        // The rest of a response is not a whole one, so that it is an error with what could be read.
        let turn = match decoded(Some(late.finish(Eof::Clean)), &self.facts) {
            Ok(turn) => turn,
            Err((_, Some(partial))) => *partial,
            Err((_, None)) => return,
        };
        self.shared.book_late(&self.facts, &booked, &turn);
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

    fn end_if_finished(&mut self) {
        if self.decoder.as_mut().is_some_and(|decoder| decoder.has_ended_turn()) {
            self.report_end(&End::Complete);
        }
    }
}

/// Appends the part of a tool call that a delta has.
fn collect(calls: &mut BTreeMap<usize, ToolCall>, delta: &Delta<'_>) {
    let (index, name, json) = match delta {
        Delta::ToolCallStarted { index, name, .. } => (*index, *name, ""),
        Delta::ToolArguments { index, json } => (*index, "", *json),
        _ => return,
    };
    let new = || ToolCall { id: String::new(), name: name.to_owned(), arguments: String::new() };
    calls.entry(index).or_insert_with(new).arguments.push_str(json);
}

/// `true` if a turn has tool calls that must not run, because it was cut or their arguments cannot be read.
fn has_cut_call(calls: &BTreeMap<usize, ToolCall>, decoder: &mut StreamDecoder) -> bool {
    let is_readable = |call: &ToolCall| call.parsed_arguments().is_ok();
    !calls.is_empty() && (decoder.has_cut_turn() || !calls.values().all(is_readable))
}

/// Appends a delta; those of one kind in a chunk are merged. `most` bounds the bytes of text that are expected.
fn take(deltas: &mut Vec<TurnDelta>, delta: Delta<'_>, most: usize) {
    match (delta, deltas.last_mut()) {
        (Delta::Text(text), Some(TurnDelta::Text(so_far))) => so_far.push_str(text),
        (Delta::Text(text), _) => {
            let mut merged = String::with_capacity(most.max(text.len()));
            merged.push_str(text);
            deltas.push(TurnDelta::Text(merged));
        }
        (delta, last) => match (delta.counted(), last) {
            (TurnDelta::Reasoning(more), Some(TurnDelta::Reasoning(so_far)))
            | (TurnDelta::ToolArguments(more), Some(TurnDelta::ToolArguments(so_far))) => {
                *so_far += more;
            }
            (counted, _) => deltas.push(counted),
        },
    }
}
