//! Stream decoding: detects the kind of body from its first bytes and feeds its events to the
//! format's accumulator.

use super::halves::{Event, Halves};
use super::kinds::{Kind, kind_of, past_blanks, without_mark};
use super::turn::{Accumulate, DecodeFailure, DeltaSink, Ended, conclude, is_cut};
use super::{Decoded, Delta, Eof, RequestFacts};
use crate::codec::table::row;
use crate::dialect::{Dialect, Framing, WireFormat};
use crate::errors::{self, ErrorBody};
use crate::headers::Headers;
use crate::redact::excerpt;
use crate::signal::finish::{Finish, finish_of, finish_of_any};
use crate::stream::elements::Elements;
use crate::stream::eventstream;
use crate::stream::sse;
use endstop_core::{ErrorClass, ModelError};
use serde::de::IgnoredAny;

/// Maximum number of bytes of a JSON body.
const BODY_CAP: usize = 64 << 20;
/// Maximum number of bytes of an error body that are stored. The rest is ignored.
const ERROR_CAP: usize = 256 << 10;
/// Maximum number of bytes of a whole stream.
const STREAM_CAP: u64 = 256 << 20;
/// Maximum number of bytes that a stream may add to a turn: text, reasoning and tool arguments.
/// This decoder and the consumer of the deltas both store them, so peak memory is a multiple of
/// this cap. No model generates as much, because a million tokens are about 4 MiB.
const TURN_CAP: u64 = 16 << 20;
/// Maximum number of bytes of stored lines outside the protocol.
const LINES_CAP: usize = 64 << 10;

/// Incremental decoder for a response. Events, array elements, JSON lines and binary frames produce
/// deltas as they arrive. Any other JSON body is parsed at the end and produces none, even if the
/// request asked for a stream.
pub struct StreamDecoder {
    dialect: &'static Dialect,
    status: u16,
    headers: Headers,
    facts: RequestFacts,
    kind: Kind,
    sse: sse::SseDecoder,
    elements: Elements,
    frames: eventstream::EventStreamDecoder,
    held: Vec<u8>,
    total: u64,
    /// Number of bytes added to the turn.
    generated: u64,
    feed: Feed,
}

/// Receiver of events. It passes them to the format's accumulator.
struct Feed {
    turn: Box<dyn Accumulate>,
    halves: Halves,
    /// Lines outside the protocol.
    lines: String,
    events: u64,
    /// `true` while handling data that was pending when the body ended, which may be cut off.
    at_end: bool,
}

impl StreamDecoder {
    /// Creates a decoder for a response with this status and these headers.
    pub fn new(
        dialect: &'static Dialect,
        status: u16,
        headers: Headers,
        facts: RequestFacts,
    ) -> StreamDecoder {
        StreamDecoder {
            dialect,
            status,
            headers,
            facts,
            kind: if ok(status) { Kind::Unknown } else { Kind::Error },
            sse: sse::SseDecoder::new(),
            elements: match dialect.family.framing() {
                Framing::Objects => Elements::objects(),
                Framing::Array | Framing::Events => Elements::array(),
            },
            frames: eventstream::EventStreamDecoder::new(),
            held: Vec::new(),
            total: 0,
            generated: 0,
            feed: Feed::new(dialect, &facts),
        }
    }

    /// Takes the next chunk and passes what it adds to the turn to `sink`.
    ///
    /// # Errors
    /// Fails if the body exceeds a limit or a frame cannot be read. Stop reading and call
    /// [`finish`](StreamDecoder::finish).
    pub fn push(
        &mut self,
        chunk: &[u8],
        sink: &mut dyn FnMut(Delta<'_>),
    ) -> Result<(), ModelError> {
        self.total += chunk.len() as u64;
        if self.total > STREAM_CAP {
            return self.unreadable(format!("the body exceeds {STREAM_CAP} bytes"));
        }
        // Hold the first bytes until they decide the kind. Whitespace is dropped here, so a server
        // that sends only keep-alive blanks cannot fill memory.
        if self.kind == Kind::Unknown {
            let before = std::mem::take(&mut self.held);
            let joined;
            // Usually the first chunk decides, and is not copied in addition.
            let held = if before.is_empty() {
                chunk
            } else {
                joined = [&before, chunk].concat();
                &joined
            };
            self.kind = kind_of(held, self.dialect);
            let head = past_blanks(held);
            if self.kind == Kind::Unknown {
                self.held.extend_from_slice(head);
                return Ok(());
            }
            let head = without_mark(head);
            if matches!(self.kind, Kind::Events | Kind::Array | Kind::Objects | Kind::Frames) {
                return self.events(head, sink);
            }
            self.held.extend_from_slice(head);
            return self.check_held();
        }
        match self.kind {
            Kind::Events | Kind::Array | Kind::Objects | Kind::Frames => self.events(chunk, sink),
            Kind::Json | Kind::Unknown => {
                // Take one byte more than the cap, so that `check_held` can see that it was
                // exceeded.
                let room = (BODY_CAP + 1).saturating_sub(self.held.len()).min(chunk.len());
                self.held.extend_from_slice(&chunk[..room]);
                self.check_held()
            }
            Kind::Error | Kind::Page | Kind::Foreign(_) => {
                // Ignore the rest of an error body instead of failing, because its beginning
                // already names the error.
                let room = ERROR_CAP.saturating_sub(self.held.len()).min(chunk.len());
                self.held.extend_from_slice(&chunk[..room]);
                Ok(())
            }
        }
    }

    /// Returns the bytes that are only parsed at the end, which is the case for a body that is not
    /// a stream. The result for such a body depends on these bytes alone and not on how they were
    /// chunked.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// `true` if the protocol's end marker arrived, so that nothing more needs to be read.
    pub fn is_complete(&mut self) -> bool {
        self.feed.turn.common().terminated
    }

    /// `true` if a finish value arrived, known or not. Usage and the protocol's end marker may follow.
    pub fn has_finish_value(&mut self) -> bool {
        self.feed.turn.common().finish.as_deref().is_some_and(|value| !value.is_empty())
    }

    /// `true` if the last finish value means that the model has ended the turn. A server that keeps the connection open
    /// may send usage and the protocol's end marker later, or never.
    pub fn has_ended_turn(&mut self) -> bool {
        !matches!(self.meaning(), Finish::Missing | Finish::Unknown | Finish::InProgress)
    }

    /// `true` if the last finish value means that the turn was cut, filtered or has failed.
    pub fn has_cut_turn(&mut self) -> bool {
        self.meaning().is_sticky()
    }

    /// Returns the meaning of the last finish value.
    fn meaning(&mut self) -> Finish {
        let Some(value) = self.feed.turn.common().finish.as_deref() else { return Finish::Missing };
        match self.dialect.family {
            // The format inside the envelope is that of any vendor.
            WireFormat::BedrockInvoke => finish_of_any(value),
            family => finish_of(family, value),
        }
    }

    /// `true` if the counts of the prompt and of the output arrived. Zeros are not a report.
    pub fn has_usage(&mut self) -> bool {
        let usage = &self.feed.turn.common().usage;
        usage.prompt_tokens() > 0 && usage.generated_tokens() > Some(0)
    }

    /// Ends the body and returns the decoded turn.
    pub fn finish(mut self, eof: Eof) -> Decoded {
        let held = std::mem::take(&mut self.held);
        match self.kind {
            Kind::Error => {}
            Kind::Events => {
                let feed = &mut self.feed;
                // The pending event may be cut off. `at_end` lets it fail quietly if the finish
                // value arrived before it.
                feed.at_end = true;
                let ended = self.sse.finish(&mut |item| feed.take(item, &mut |_| ()));
                if let Err(e) = ended {
                    feed.broken(DecodeFailure::unreadable(e.to_string()));
                }
                feed.leftovers();
            }
            Kind::Array => {
                self.feed.at_end = true;
                if let Some(rest) = self.elements.rest() {
                    self.feed.event("", &rest, &mut |_| ());
                }
            }
            Kind::Objects => {
                self.feed.at_end = true;
                if let Some(rest) = self.elements.rest() {
                    self.feed.object(&rest, &mut |_| ());
                }
            }
            Kind::Frames => {
                // A turn with a finish value is complete, even if the data after it is cut off.
                if !self.frames.is_between() && !self.feed.finished() {
                    self.feed.broken(DecodeFailure {
                        class: ErrorClass::IncompleteStream,
                        message: "the stream ends within a frame".to_owned(),
                        value: String::new(),
                    });
                }
            }
            Kind::Json => {
                if !self.feed.json(&held) {
                    self.kind = Kind::Events;
                }
            }
            // The reset connection is the better explanation than an empty body.
            Kind::Unknown if eof == Eof::Reset => {}
            Kind::Unknown => self.feed.broken(DecodeFailure {
                class: ErrorClass::IncompleteStream,
                message: "the body is empty".to_owned(),
                value: String::new(),
            }),
            Kind::Page => self.feed.broken(DecodeFailure {
                class: ErrorClass::NotFound,
                message: "the response is a page of HTML or XML, not JSON or an event stream, so the address is not that of \
                          an API, which often ends in /v1"
                    .to_owned(),
                value: excerpt(&String::from_utf8_lossy(&held)),
            }),
            Kind::Foreign(what) => self.feed.broken(DecodeFailure {
                class: ErrorClass::UnknownError,
                message: format!("the response is {what}, not JSON or an event stream"),
                value: excerpt(&String::from_utf8_lossy(&held)),
            }),
        }
        let failed = (self.kind == Kind::Error).then(|| {
            let text = String::from_utf8_lossy(&held);
            errors::classify(self.status, &self.headers, &text, self.dialect.name)
        });
        self.conclude(failed, eof)
    }

    fn conclude(self, failed: Option<ModelError>, eof: Eof) -> Decoded {
        let streamed = match self.kind {
            Kind::Events | Kind::Array | Kind::Frames => true,
            // A single object is a complete body, as Ollama and Converse send it without streaming.
            Kind::Objects => self.feed.events > 1,
            _ => false,
        };
        let ended = Ended {
            dialect: self.dialect,
            status: self.status,
            headers: &self.headers,
            facts: &self.facts,
            failed,
            streamed,
            eof,
        };
        conclude(self.feed.into_turn(), ended)
    }

    fn events(&mut self, chunk: &[u8], sink: DeltaSink<'_>) -> Result<(), ModelError> {
        let feed = &mut self.feed;
        let mut generated = 0;
        // Count generated bytes here, because this is the only place that sees the deltas of all
        // framings.
        let sink: DeltaSink<'_> = &mut |delta| {
            generated += delta.bytes();
            sink(delta);
        };
        let taken = match self.kind {
            Kind::Frames => {
                let mut each =
                    |message: &eventstream::EventMessage<'_>| feed.message(message, sink);
                self.frames.push(chunk, &mut each).map_err(|e| e.to_string())
            }
            Kind::Array => {
                let mut each = |element: &str| feed.event("", element, sink);
                self.elements.push(chunk, &mut each).map_err(|e| e.to_string())
            }
            Kind::Objects => {
                let mut each = |object: &str| feed.object(object, sink);
                self.elements.push(chunk, &mut each).map_err(|e| e.to_string())
            }
            _ => self.sse.push(chunk, &mut |item| feed.take(item, sink)).map_err(|e| e.to_string()),
        };
        // The check comes after the chunk was processed. One chunk may exceed the cap, but it is
        // bounded itself.
        self.generated += generated;
        if taken.is_ok() && self.generated > TURN_CAP {
            return self.unreadable(format!("the turn exceeds {TURN_CAP} bytes of text"));
        }
        taken.or_else(|e| self.unreadable(e))
    }

    /// Fails if a JSON body exceeds its cap. A body over the cap is not parsed.
    fn check_held(&mut self) -> Result<(), ModelError> {
        if self.kind == Kind::Json && self.held.len() > BODY_CAP {
            // Free the memory at once; the decoder may live until the connection closes.
            self.held = Vec::new();
            return self.unreadable(format!("the body exceeds {BODY_CAP} bytes"));
        }
        Ok(())
    }

    fn unreadable(&mut self, message: String) -> Result<(), ModelError> {
        self.feed.broken(DecodeFailure::unreadable(message.clone()));
        Err(ModelError::new(ErrorClass::ServerError, message))
    }
}

impl Feed {
    fn new(dialect: &'static Dialect, facts: &RequestFacts) -> Feed {
        Feed {
            turn: (row(dialect.family).decode)(dialect, facts),
            halves: Halves::default(),
            lines: String::new(),
            events: 0,
            at_end: false,
        }
    }

    /// Takes a complete JSON body. Returns `false` if its lines were events after all.
    fn json(&mut self, bytes: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.broken(DecodeFailure {
                class: ErrorClass::ServerError,
                message: "the body is not UTF-8".to_owned(),
                // Convert only the beginning, because the whole body may be 64 MiB of binary data.
                value: excerpt(&String::from_utf8_lossy(&bytes[..bytes.len().min(4096)])),
            });
            return true;
        };
        let text = text.trim_start_matches('\u{feff}');
        match self.turn.body(text) {
            Ok(()) => self.turn.common().terminated = true,
            // Valid JSON, but of the wrong shape.
            Err(e) if e.is_data() => self.broken(DecodeFailure::json(&e, text)),
            Err(e) => {
                // The body may be event lines without `data:`, or lines before the first event.
                let mut lines = sse::SseDecoder::new();
                let _ = lines.push(bytes, &mut |item| self.take(item, &mut |_| ()));
                let _ = lines.finish(&mut |item| self.take(item, &mut |_| ()));
                self.leftovers();
                if self.events > 0 || self.turn.common().error.is_some() {
                    return false;
                }
                self.broken(DecodeFailure::json(&e, text));
            }
        }
        true
    }

    fn take(&mut self, item: sse::Item<'_>, sink: DeltaSink<'_>) {
        match item {
            sse::Item::Event { name, data, .. } if are_events(data) => {
                data.lines().for_each(|line| self.event(name, line, sink));
            }
            sse::Item::Event { name, data, .. } => self.event(name, data, sink),
            sse::Item::Line(line) => {
                if let Some(error) = line.strip_prefix("error:") {
                    self.error(ErrorBody::read(error));
                } else if self.lines.len() + line.len() < LINES_CAP {
                    self.lines.push_str(line);
                    self.lines.push('\n');
                }
            }
        }
    }

    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) {
        // After the end marker only an error still counts.
        if self.is_over() {
            let body = ErrorBody::read(data);
            if body.found {
                self.error(body);
            }
            return;
        }
        self.events += 1;
        if self.halves.passes(data) {
            return self.read(name, data, sink);
        }
        for Event { name, data } in self.halves.next(name, data).into_iter().flatten() {
            self.read(&name, &data, sink);
        }
    }

    /// Passes an event to the format's accumulator.
    fn read(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) {
        if let Err(e) = self.turn.event(name, data, sink) {
            // A turn with a finish value is complete, even if the data after it is cut off.
            if self.at_end && is_cut(&e, data) && self.finished() {
                return;
            }
            self.broken(DecodeFailure::json(&e, data));
        }
    }

    /// Returns the turn after the last event.
    fn into_turn(mut self) -> Box<dyn Accumulate> {
        if let Some(Event { name, data }) = self.halves.last() {
            self.read(&name, &data, &mut |_| ());
        }
        self.turn
    }

    /// Takes one object of an object stream. A line that is not an object marks the stream as
    /// broken.
    fn object(&mut self, text: &str, sink: DeltaSink<'_>) {
        if text.starts_with('{') || self.is_over() {
            return self.event("", text, sink);
        }
        self.events += 1;
        self.broken(DecodeFailure {
            class: ErrorClass::ServerError,
            message: "a line of the stream is not a JSON object".to_owned(),
            value: excerpt(text),
        });
    }

    /// Takes the message of a frame: an event, or an error that ends the stream.
    fn message(&mut self, message: &eventstream::EventMessage<'_>, sink: DeltaSink<'_>) {
        let Ok(payload) = std::str::from_utf8(message.payload) else {
            return self.broken(DecodeFailure {
                class: ErrorClass::ServerError,
                message: "the payload of a frame is not UTF-8".to_owned(),
                value: String::new(),
            });
        };
        let text = |name: &str| message.text(name).unwrap_or_default();
        match text(":message-type") {
            "event" => self.event(text(":event-type"), payload, sink),
            "exception" => {
                let kind = text(":exception-type");
                self.error(ErrorBody::read(payload).named(":exception-type", kind));
            }
            "error" => {
                let body = ErrorBody::read(text(":error-message"));
                self.error(body.named(":error-code", text(":error-code")));
            }
            other => self.broken(DecodeFailure {
                class: ErrorClass::UnknownError,
                message: format!("unknown frame type `{}`", excerpt(other)),
                value: excerpt(payload),
            }),
        }
    }

    /// Handles lines outside the protocol. They are an error in bare JSON, on one line or several,
    /// or, if there was no event at all, events without `data:`.
    fn leftovers(&mut self) {
        // Try all lines together first, because a pretty-printed error spans several.
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() {
            return;
        }
        let whole = ErrorBody::read(&lines);
        if whole.found {
            return self.error(whole);
        }
        let bare = self.events == 0;
        for line in lines.lines().filter(|l| l.trim_start().starts_with('{')) {
            let body = ErrorBody::read(line);
            if body.found {
                self.error(body);
            } else if bare && self.turn.event("", line, &mut |_| ()).is_ok() {
                self.events += 1;
            }
        }
    }

    /// `true` if the protocol's end marker arrived. Data after it is not part of the turn, even if
    /// it came in the same chunk, except for an error, which is still reported.
    fn is_over(&mut self) -> bool {
        self.turn.common().terminated
    }

    fn finished(&mut self) -> bool {
        // Some servers send an empty finish value in every event, so an empty one does not count.
        let common = self.turn.common();
        common.terminated || common.finish.as_deref().is_some_and(|value| !value.is_empty())
    }

    fn error(&mut self, body: ErrorBody) {
        // Keep the first error, because later ones are usually its consequences.
        self.turn.common().fail(|| body);
    }

    fn broken(&mut self, broken: DecodeFailure) {
        self.turn.common().broken.get_or_insert(broken);
    }
}

/// `true` if the lines of an event's data are events: some servers send no blank lines between them. If the first line
/// is a whole object, all of them together are not JSON.
fn are_events(data: &str) -> bool {
    let Some((first, _)) = data.trim_start().split_once('\n') else { return false };
    first.starts_with('{') && serde_json::from_str::<IgnoredAny>(first).is_ok()
}

/// Decodes a complete response.
pub fn decode_body(
    dialect: &'static Dialect,
    status: u16,
    headers: &Headers,
    body: &[u8],
    facts: &RequestFacts,
) -> Decoded {
    let (kind, body) = if ok(status) {
        (kind_of(body, dialect), without_mark(past_blanks(body)))
    } else {
        (Kind::Error, body)
    };
    if kind == Kind::Json && body.len() <= BODY_CAP {
        // Parse in place instead of copying the body.
        let mut feed = Feed::new(dialect, facts);
        let streamed = !feed.json(body);
        let failed = None;
        let ended = Ended { dialect, status, headers, facts, failed, streamed, eof: Eof::Clean };
        return conclude(feed.into_turn(), ended);
    }
    let mut stream = StreamDecoder::new(dialect, status, headers.clone(), *facts);
    stream.kind = kind;
    // `finish` reports a body that exceeds its limits, so the error is not needed here.
    let _ = stream.push(body, &mut |_| ());
    stream.finish(Eof::Clean)
}

/// `true` for a successful status. 0 stands for an unknown status and counts as success.
fn ok(status: u16) -> bool {
    status == 0 || (200..300).contains(&status)
}
