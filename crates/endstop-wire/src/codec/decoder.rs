//! Bytes to events: tells what kind of body it is, and feeds the format's accumulator.

use super::accumulator::accumulator;
use super::common::{Broken, is_cut};
use super::conclude::conclude;
use super::decoded::{Accumulate, Decoded, Delta, DeltaSink, Eof, RequestFacts};
use crate::dialect::{Dialect, Framing};
use crate::errors::{self, ErrorBody};
use crate::headers::Headers;
use crate::redact::excerpt;
use crate::stream::elements::Elements;
use crate::stream::eventstream;
use crate::stream::sse;
use endstop_core::{ErrorClass, ModelError};

/// The most of a JSON body that is held.
const BODY_CAP: usize = 64 << 20;
/// The most of an error's body that is held; the rest is passed over.
const ERROR_CAP: usize = 256 << 10;
/// The most bytes that a stream may have in all.
const STREAM_CAP: u64 = 256 << 20;
/// The most bytes that a stream may add to a turn: text, reasoning and arguments of calls. Each is
/// held by this decoder and by whoever takes the deltas, so that memory is a multiple of it. No model
/// generates as much: a million tokens are about 4 MiB.
const TURN_CAP: u64 = 16 << 20;
/// The most of the lines outside the protocol that is held.
const LINES_CAP: usize = 64 << 10;

/// Decodes a response as its bytes come. Events, and the elements of an array, the objects on their
/// lines or the binary frames where the format streams such, hand over deltas; any other body of
/// JSON, also one that comes where a stream was asked for, is read at its end and hands over none.
pub struct StreamDecoder {
    dialect: &'static Dialect,
    status: u16,
    headers: Headers,
    facts: RequestFacts,
    kind: Kind,
    sse: sse::Decoder,
    elements: Elements,
    frames: eventstream::Decoder,
    held: Vec<u8>,
    total: u64,
    /// Bytes that were added to the turn.
    generated: u64,
    feed: Feed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing but blanks so far.
    Unknown,
    Events,
    /// One array, whose elements are the events.
    Array,
    /// Objects one after another, which are the events; one alone may be a whole body.
    Objects,
    /// Binary frames.
    Frames,
    Json,
    /// The status says error: the body is held for its words.
    Error,
    /// Neither events nor JSON.
    Foreign(&'static str),
}

/// Where events go.
struct Feed {
    turn: Box<dyn Accumulate>,
    /// Lines outside the protocol.
    lines: String,
    events: u64,
    /// What comes now was pending when the body ended, so it may be cut.
    at_end: bool,
}

impl StreamDecoder {
    /// A decoder for a response of this status and these headers.
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
            sse: sse::Decoder::new(),
            elements: match dialect.family.framing() {
                Framing::Objects => Elements::objects(),
                Framing::Array | Framing::Events => Elements::array(),
            },
            frames: eventstream::Decoder::new(),
            held: Vec::new(),
            total: 0,
            generated: 0,
            feed: Feed {
                turn: accumulator(dialect),
                lines: String::new(),
                events: 0,
                at_end: false,
            },
        }
    }

    /// Takes the next bytes and hands over what they add to the turn.
    ///
    /// # Errors
    /// A body beyond its bounds, or a frame that cannot be read: stop reading and [`finish`](StreamDecoder::finish).
    pub fn push(
        &mut self,
        chunk: &[u8],
        sink: &mut dyn FnMut(Delta<'_>),
    ) -> Result<(), ModelError> {
        self.total += chunk.len() as u64;
        if self.total > STREAM_CAP {
            return self.unreadable(format!("the body exceeds {STREAM_CAP} bytes"));
        }
        if self.kind == Kind::Unknown {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(chunk);
            self.kind = kind_of(&held, self.dialect);
            let head = past_blanks(&held);
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
                let room = (BODY_CAP + 1).saturating_sub(self.held.len()).min(chunk.len());
                self.held.extend_from_slice(&chunk[..room]);
                self.check_held()
            }
            Kind::Error | Kind::Foreign(_) => {
                let room = ERROR_CAP.saturating_sub(self.held.len()).min(chunk.len());
                self.held.extend_from_slice(&chunk[..room]);
                Ok(())
            }
        }
    }

    /// The bytes that are read at the end alone: those of a body that is no stream. What comes of
    /// such a body is decided by them, whatever pieces they came in.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// The protocol's own end was seen: nothing more needs to be read.
    pub fn is_complete(&mut self) -> bool {
        self.feed.turn.common().terminated
    }

    /// The body has ended: the whole turn.
    pub fn finish(mut self, eof: Eof) -> Decoded {
        let held = std::mem::take(&mut self.held);
        match self.kind {
            Kind::Error => {}
            Kind::Events => {
                let feed = &mut self.feed;
                feed.at_end = true;
                let ended = self.sse.finish(&mut |item| feed.take(item, &mut |_| ()));
                if let Err(e) = ended {
                    feed.broken(Broken::unreadable(e.to_string()));
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
                // A turn that had its finish is whole, though what came behind it is cut.
                if !self.frames.is_between() && !self.feed.finished() {
                    self.feed.broken(Broken {
                        class: ErrorClass::IncompleteStream,
                        message: "the stream ends within a frame".to_owned(),
                        value: String::new(),
                    });
                }
            }
            Kind::Json => self.json(&held),
            // That the connection broke says more.
            Kind::Unknown if eof == Eof::Reset => {}
            Kind::Unknown => self.feed.broken(Broken {
                class: ErrorClass::IncompleteStream,
                message: "the body is empty".to_owned(),
                value: String::new(),
            }),
            Kind::Foreign(what) => self.feed.broken(Broken {
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
            Kind::Objects => self.feed.events > 1,
            _ => false,
        };
        conclude(
            self.feed.turn,
            self.dialect,
            (self.status, &self.headers),
            &self.facts,
            failed,
            (streamed, eof),
        )
    }

    fn events(&mut self, chunk: &[u8], sink: DeltaSink<'_>) -> Result<(), ModelError> {
        let feed = &mut self.feed;
        let mut generated = 0;
        let sink: DeltaSink<'_> = &mut |delta| {
            generated += delta.bytes();
            sink(delta);
        };
        let taken = match self.kind {
            Kind::Frames => {
                let mut each = |message: &eventstream::Message<'_>| feed.message(message, sink);
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
        self.generated += generated;
        if taken.is_ok() && self.generated > TURN_CAP {
            return self.unreadable(format!("the turn exceeds {TURN_CAP} bytes of text"));
        }
        taken.or_else(|e| self.unreadable(e))
    }

    /// A body of JSON has its bounds; what is beyond them is not read.
    fn check_held(&mut self) -> Result<(), ModelError> {
        if self.kind == Kind::Json && self.held.len() > BODY_CAP {
            self.held = Vec::new();
            return self.unreadable(format!("the body exceeds {BODY_CAP} bytes"));
        }
        Ok(())
    }

    fn unreadable(&mut self, message: String) -> Result<(), ModelError> {
        self.feed.broken(Broken::unreadable(message.clone()));
        Err(ModelError::new(ErrorClass::ServerError, message))
    }

    fn json(&mut self, bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return self.feed.broken(Broken {
                class: ErrorClass::ServerError,
                message: "the body is not UTF-8".to_owned(),
                value: excerpt(&String::from_utf8_lossy(&bytes[..bytes.len().min(4096)])),
            });
        };
        let text = text.trim_start_matches('\u{feff}');
        match self.feed.turn.body(text) {
            Ok(()) => self.feed.turn.common().terminated = true,
            // JSON, but not what it should be.
            Err(e) if e.is_data() => self.feed.broken(Broken::json(&e, text)),
            Err(e) => {
                // Bare lines before or instead of events.
                let mut lines = sse::Decoder::new();
                let feed = &mut self.feed;
                let _ = lines.push(bytes, &mut |item| feed.take(item, &mut |_| ()));
                let _ = lines.finish(&mut |item| feed.take(item, &mut |_| ()));
                feed.leftovers();
                if feed.events == 0 && feed.turn.common().error.is_none() {
                    feed.broken(Broken::json(&e, text));
                } else {
                    self.kind = Kind::Events;
                }
            }
        }
    }
}

impl Feed {
    fn take(&mut self, item: sse::Item<'_>, sink: DeltaSink<'_>) {
        match item {
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
        if self.is_over() {
            let body = ErrorBody::read(data);
            if body.found {
                self.error(body);
            }
            return;
        }
        self.events += 1;
        if let Err(e) = self.turn.event(name, data, sink) {
            // A turn that had its finish is whole, though what came behind it is cut.
            if self.at_end && is_cut(&e, data) && self.finished() {
                return;
            }
            self.broken(Broken::json(&e, data));
        }
    }

    /// An object of a stream of such, or a line that is none: the stream is broken then.
    fn object(&mut self, text: &str, sink: DeltaSink<'_>) {
        if text.starts_with('{') || self.is_over() {
            return self.event("", text, sink);
        }
        self.events += 1;
        self.broken(Broken {
            class: ErrorClass::ServerError,
            message: "a line of the stream is no JSON object".to_owned(),
            value: excerpt(text),
        });
    }

    /// A message of a frame: an event, or an error that ends the stream.
    fn message(&mut self, message: &eventstream::Message<'_>, sink: DeltaSink<'_>) {
        let Ok(payload) = std::str::from_utf8(message.payload) else {
            return self.broken(Broken {
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
            other => self.broken(Broken {
                class: ErrorClass::UnknownError,
                message: format!("a frame is of the unknown kind `{}`", excerpt(other)),
                value: excerpt(payload),
            }),
        }
    }

    /// Lines outside the protocol: an error in bare JSON, on one line or several; or, where there
    /// was no event at all, events without their `data:`.
    fn leftovers(&mut self) {
        let lines = std::mem::take(&mut self.lines);
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

    /// The protocol's own end was seen. What stands behind it is no part of the turn, whether or not
    /// it came in the same piece; but where it is an error, that is believed.
    fn is_over(&mut self) -> bool {
        self.turn.common().terminated
    }

    fn finished(&mut self) -> bool {
        let common = self.turn.common();
        common.terminated || common.finish.as_deref().is_some_and(|value| !value.is_empty())
    }

    fn error(&mut self, body: ErrorBody) {
        self.turn.common().error.get_or_insert(body);
    }

    fn broken(&mut self, broken: Broken) {
        self.turn.common().broken.get_or_insert(broken);
    }
}

/// Decodes a whole response.
pub fn decode_body(
    dialect: &'static Dialect,
    status: u16,
    headers: &Headers,
    body: &[u8],
    facts: &RequestFacts,
) -> Decoded {
    let mut stream = StreamDecoder::new(dialect, status, headers.clone(), *facts);
    let (kind, body) = if ok(status) {
        (kind_of(body, dialect), without_mark(past_blanks(body)))
    } else {
        (Kind::Error, body)
    };
    stream.kind = kind;
    if stream.kind == Kind::Json && body.len() <= BODY_CAP {
        // Read where it lies instead of being copied.
        stream.json(body);
        return stream.conclude(None, Eof::Clean);
    }
    // A body beyond its bounds is told by `finish`.
    let _ = stream.push(body, &mut |_| ());
    stream.finish(Eof::Clean)
}

/// 0 stands for a status that is not known.
fn ok(status: u16) -> bool {
    status == 0 || (200..300).contains(&status)
}

/// The byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

fn without_mark(head: &[u8]) -> &[u8] {
    head.strip_prefix(BOM).unwrap_or(head)
}

/// The body without the blanks that it begins with, all but the last: servers send them to keep a
/// connection open, without end, and they say nothing but whether a line begins with one.
fn past_blanks(body: &[u8]) -> &[u8] {
    let from = if body.starts_with(BOM) { BOM.len() } else { 0 };
    let blanks = body[from..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    if blanks == 0 { body } else { &body[from + blanks - 1..] }
}

fn kind_of(head: &[u8], dialect: &Dialect) -> Kind {
    if head.len() < BOM.len() && BOM.starts_with(head) {
        return Kind::Unknown;
    }
    let framing = dialect.family.framing();
    match without_mark(head).iter().find(|b| !b.is_ascii_whitespace()) {
        None => Kind::Unknown,
        Some(b'[') if framing == Framing::Array => Kind::Array,
        Some(b'{') if framing == Framing::Objects => Kind::Objects,
        // The length of a frame, which is at most 24 MiB.
        Some(0..=1) if dialect.family.in_frames() => Kind::Frames,
        Some(b'{' | b'[') => Kind::Json,
        Some(b'<') => Kind::Foreign("a page of HTML or XML"),
        Some(0x1f) => Kind::Foreign("compressed"),
        Some(0..=0x08 | 0x0e..=0x1e | 0x7f..) => Kind::Foreign("binary"),
        Some(_) => Kind::Events,
    }
}
