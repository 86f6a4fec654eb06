//! Server-sent events, pushed in as bytes come: correct at every cut, linear, bounded.
//!
//! ```
//! use endstop_wire::stream::sse::{Decoder, Item};
//! let mut sse = Decoder::new();
//! let mut seen = Vec::new();
//! for chunk in [&b"event: ping\nda"[..], b"ta: {}\n\n"] {
//!     sse.push(chunk, &mut |item| {
//!         if let Item::Event { name, data, .. } = item {
//!             seen.push((name.to_owned(), data.to_owned()));
//!         }
//!     })?;
//! }
//! assert_eq!(seen, [("ping".to_owned(), "{}".to_owned())]);
//! # Ok::<(), endstop_wire::stream::sse::SseError>(())
//! ```
//!
//! As the WHATWG specifies, with two additions for what providers send: an event is handed over at
//! the end of the body even without its blank line ([`Decoder::finish`]), and a line that is none
//! of the protocol's (bare JSON, a field named `error:`) is handed over as [`Item::Line`] instead
//! of being dropped. An event that lies whole in one chunk is borrowed from it.

use memchr::memchr2;
use std::borrow::Cow;
use std::fmt;

/// What came out of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event {
        /// The event's type; `""` where the stream named none (which means `message`).
        name: &'a str,
        /// Its data, the lines joined with `\n`.
        data: &'a str,
        /// The last event id seen.
        id: &'a str,
    },
    /// A line whose field the protocol does not know.
    Line(&'a str),
}

/// The largest line and event that are taken; a stream beyond is an error, not a full memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes in a line.
    pub line: usize,
    /// Bytes in the data of an event.
    pub event: usize,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { line: 16 << 20, event: 32 << 20 }
    }
}

/// A stream that is beyond its caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SseError {
    /// A line is longer than this.
    LineTooLong(usize),
    /// An event's data is longer than this.
    EventTooLong(usize),
}

impl fmt::Display for SseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SseError::LineTooLong(cap) => write!(f, "a line of the stream exceeds {cap} bytes"),
            SseError::EventTooLong(cap) => write!(f, "an event of the stream exceeds {cap} bytes"),
        }
    }
}

impl std::error::Error for SseError {}

/// The push decoder.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    caps: Caps,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// The data lines of the event so far, joined.
    data: Vec<u8>,
    /// A data line was seen (an empty one too).
    has_data: bool,
    name: String,
    id: String,
    retry: Option<u64>,
    /// The last chunk ended on CR: an LF that follows belongs to it.
    after_cr: bool,
    /// Bytes of the byte order mark matched so far; 3 once the beginning is behind.
    bom: u8,
    failed: Option<SseError>,
}

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

type Sink<'s> = &'s mut dyn FnMut(Item<'_>);

impl Decoder {
    /// A decoder with the default caps.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// A decoder with these caps.
    pub fn with_caps(caps: Caps) -> Decoder {
        Decoder { caps, ..Decoder::default() }
    }

    /// The reconnection time the stream asked for, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Takes the next bytes and hands over what they complete.
    pub fn push(&mut self, chunk: &[u8], sink: Sink<'_>) -> Result<(), SseError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        let chunk = self.past_bom(chunk);
        let done = self.lines(chunk, sink);
        if let Err(e) = done {
            self.failed = Some(e);
        }
        done
    }

    /// The body has ended: what is pending counts as a line and as an event.
    pub fn finish(&mut self, sink: Sink<'_>) -> Result<(), SseError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        if self.bom < 3 {
            self.line.extend_from_slice(&BOM[..usize::from(self.bom)]);
            self.bom = 3;
        }
        let mut pending = None;
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.field(&line, &mut pending, sink)
                .and_then(|()| self.keep(pending.take()))
                .inspect_err(|e| self.failed = Some(*e))?;
        }
        self.dispatch(None, sink);
        Ok(())
    }

    /// Leaves the byte order mark out, also where it is cut.
    fn past_bom<'c>(&mut self, mut chunk: &'c [u8]) -> &'c [u8] {
        while self.bom < 3 {
            let Some((&first, rest)) = chunk.split_first() else {
                return chunk;
            };
            if first == BOM[usize::from(self.bom)] {
                self.bom += 1;
                chunk = rest;
            } else {
                self.line.extend_from_slice(&BOM[..usize::from(self.bom)]);
                self.bom = 3;
            }
        }
        chunk
    }

    fn lines(&mut self, chunk: &[u8], sink: Sink<'_>) -> Result<(), SseError> {
        let mut rest = chunk;
        // The only data line so far of the event, where it lies whole in this chunk.
        let mut pending: Option<&[u8]> = None;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            if rest[0] == b'\n' {
                rest = &rest[1..];
            }
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let end = rest[at];
            let line = &rest[..at];
            rest = &rest[at + 1..];
            if end == b'\r' {
                match rest.first() {
                    Some(b'\n') => rest = &rest[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            if self.line.is_empty() {
                if line.is_empty() {
                    self.dispatch(pending.take(), sink);
                } else {
                    self.check_line(line.len())?;
                    self.field(line, &mut pending, sink)?;
                }
            } else {
                self.check_line(self.line.len() + line.len())?;
                self.keep(pending.take())?;
                self.line.extend_from_slice(line);
                let mut whole = std::mem::take(&mut self.line);
                let mut late = None;
                self.field(&whole, &mut late, sink)?;
                self.keep(late)?;
                whole.clear();
                self.line = whole;
            }
        }
        self.check_line(self.line.len() + rest.len())?;
        self.line.extend_from_slice(rest);
        self.keep(pending)
    }

    fn check_line(&self, len: usize) -> Result<(), SseError> {
        if len > self.caps.line {
            return Err(SseError::LineTooLong(self.caps.line));
        }
        Ok(())
    }

    /// Copies a pending data line into the event, since its chunk goes away.
    fn keep(&mut self, pending: Option<&[u8]>) -> Result<(), SseError> {
        let Some(line) = pending else { return Ok(()) };
        if self.data.len() + line.len() + 1 > self.caps.event {
            return Err(SseError::EventTooLong(self.caps.event));
        }
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data.extend_from_slice(line);
        Ok(())
    }

    fn field<'c>(
        &mut self,
        line: &'c [u8],
        pending: &mut Option<&'c [u8]>,
        sink: Sink<'_>,
    ) -> Result<(), SseError> {
        let colon = memchr::memchr(b':', line);
        let (name, value) = match colon {
            Some(0) => return Ok(()), // a comment
            Some(at) => {
                let value = &line[at + 1..];
                (&line[..at], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &line[line.len()..]),
        };
        match name {
            b"data" => {
                self.keep(pending.take())?;
                if self.has_data {
                    self.keep(Some(value))?;
                } else if value.len() > self.caps.event {
                    return Err(SseError::EventTooLong(self.caps.event));
                } else {
                    *pending = Some(value);
                }
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&text(value));
            }
            b"id" => {
                if !value.contains(&0) {
                    self.id.clear();
                    self.id.push_str(&text(value));
                }
            }
            b"retry" => {
                if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
                    self.retry = text(value).parse().ok().or(self.retry);
                }
            }
            _ => sink(Item::Line(&text(line))),
        }
        Ok(())
    }

    fn dispatch(&mut self, pending: Option<&[u8]>, sink: Sink<'_>) {
        let data = match pending {
            // `field` leaves a line pending only where it is the first.
            Some(line) => text(line),
            None if self.has_data => text(&self.data),
            None => {
                self.name.clear();
                return;
            }
        };
        sink(Item::Event { name: &self.name, data: &data, id: &self.id });
        drop(data);
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }
}

/// UTF-8; what is none is replaced.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
