//! Incremental decoder for server-sent events. Results do not depend on chunk boundaries, time is
//! linear, and memory is bounded.
//!
//! ```
//! use endstop_wire::stream::sse::{SseDecoder, Item};
//! let mut sse = SseDecoder::new();
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
//! The decoder follows the WHATWG specification, with two additions for real providers. An event at
//! the end of the body counts even without its blank line ([`SseDecoder::finish`]). A line that is not
//! part of the protocol (bare JSON, or a field named `error:`) is emitted as [`Item::Line`] instead
//! of being dropped. An event that lies completely in one chunk is borrowed from it.

use memchr::memchr2;
use std::borrow::Cow;
use std::fmt;

/// An item of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event.
    Event {
        /// Event type, or `""` if the stream named none, which means `message`.
        name: &'a str,
        /// Data of the event, with its lines joined by `
        ///
        /// `.
        data: &'a str,
        /// The most recent event id.
        id: &'a str,
    },
    /// A line whose field is not part of the protocol.
    Line(&'a str),
}

/// Size limits for lines and events. A stream that exceeds them is an error, so that memory stays
/// bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Maximum number of bytes in a line.
    pub line: usize,
    /// Maximum number of bytes in an event's data.
    pub event: usize,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { line: 16 << 20, event: 32 << 20 }
    }
}

/// Error for a stream that exceeds its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SseError {
    /// A line is longer than this many bytes.
    LineTooLong(usize),
    /// An event's data is longer than this many bytes.
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

/// The incremental decoder.
#[derive(Clone, Debug, Default)]
pub struct SseDecoder {
    caps: Caps,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Joined data lines of the current event.
    data: Vec<u8>,
    /// `true` once a data line arrived, even an empty one.
    has_data: bool,
    name: String,
    id: String,
    retry: Option<u64>,
    /// `true` if the last chunk ended in CR, so that a following LF belongs to it.
    after_cr: bool,
    /// Number of bytes of the byte order mark matched so far, or 3 once the start has been handled.
    bom: u8,
    failed: Option<SseError>,
}

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

type Sink<'s> = &'s mut dyn FnMut(Item<'_>);

impl SseDecoder {
    /// Creates a decoder with the default limits.
    pub fn new() -> SseDecoder {
        SseDecoder::default()
    }

    /// Creates a decoder with these limits.
    pub fn with_caps(caps: Caps) -> SseDecoder {
        SseDecoder { caps, ..SseDecoder::default() }
    }

    /// Returns the reconnection time that the stream requested, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Takes the next chunk and passes every completed item to `sink`.
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

    /// Ends the body. A pending line and a pending event count as complete.
    pub fn finish(&mut self, sink: Sink<'_>) -> Result<(), SseError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        if self.bom < 3 {
            // The body ended inside a possible byte order mark, so its bytes are data after all.
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

    /// Skips the byte order mark, even if chunks split it.
    fn past_bom<'c>(&mut self, mut chunk: &'c [u8]) -> &'c [u8] {
        while self.bom < 3 {
            let Some((&first, rest)) = chunk.split_first() else {
                return chunk;
            };
            if first == BOM[usize::from(self.bom)] {
                self.bom += 1;
                chunk = rest;
            } else {
                // A partial match was not a byte order mark, so give its bytes back to the line.
                self.line.extend_from_slice(&BOM[..usize::from(self.bom)]);
                self.bom = 3;
            }
        }
        chunk
    }

    fn lines(&mut self, chunk: &[u8], sink: Sink<'_>) -> Result<(), SseError> {
        let mut rest = chunk;
        // The event's only data line so far, if it lies completely in this chunk.
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
                // Fast path: the line lies in this chunk and is not copied.
                } else {
                    self.check_line(line.len())?;
                    self.field(line, &mut pending, sink)?;
                }
            } else {
                // The line began in an earlier chunk. Its copy is reused as a buffer afterwards.
                self.check_line(self.line.len() + line.len())?;
                self.keep(pending.take())?;
                self.line.extend_from_slice(line);
                let mut whole = std::mem::take(&mut self.line);
                // `late` borrows from the buffer, so it must be copied before the buffer is
                // cleared.
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

    /// Copies a pending data line into the event, because its chunk will not live longer.
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
                // The specification requires ids that contain NUL to be ignored.
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
            // `field` leaves only the first data line of an event pending.
            Some(line) => text(line),
            None if self.has_data => text(&self.data),
            None => {
                // The specification drops an event without data.
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

/// Returns the text, with invalid UTF-8 replaced.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    // The strict check reads whole words; the lossy conversion examines every byte.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
