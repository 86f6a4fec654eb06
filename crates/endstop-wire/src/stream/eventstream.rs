//! Codec for Amazon event streams (`application/vnd.amazon.eventstream`): decodes binary frames
//! from chunks of any size, and encodes single frames.
//!
//! ```
//! use endstop_wire::stream::eventstream::{EventStreamDecoder, frame};
//! let bytes = frame(&[(":message-type", "event"), (":event-type", "chunk")], b"{}");
//! let mut decoder = EventStreamDecoder::new();
//! let mut seen = Vec::new();
//! for piece in bytes.chunks(5) {
//!     decoder.push(piece, &mut |message| {
//!         seen.push((message.text(":event-type").map(str::to_owned), message.payload.to_vec()));
//!     })?;
//! }
//! assert_eq!(seen, [(Some("chunk".to_owned()), b"{}".to_vec())]);
//! assert!(decoder.is_between());
//! # Ok::<(), endstop_wire::stream::eventstream::FrameError>(())
//! ```
//!
//! A frame consists of its length, the length of its headers and a checksum of those two; the
//! headers; the payload; and a checksum of everything before it. Numbers are big-endian and
//! checksums are CRC-32. Decoding is linear: a frame that is complete in a chunk is read in place,
//! and one that is split is copied once. A faulty frame ends the stream, because the start of the
//! next frame cannot be found.

use base64::Engine as _;
use std::fmt;

/// Size of the two lengths and their checksum, in bytes.
const PRELUDE: usize = 12;
/// Minimum size of a frame: a prelude and the checksum of the message.
const LEAST: usize = PRELUDE + 4;
/// Maximum size of a frame, which is AWS's own limit.
const FRAME_CAP: usize = 24 << 20;
/// Maximum size of a frame's headers, which is AWS's own limit.
const HEADERS_CAP: usize = 128 << 10;

/// The incremental decoder.
#[derive(Debug, Default)]
pub struct EventStreamDecoder {
    /// Bytes of the frame that is not complete yet.
    held: Vec<u8>,
    /// Length of that frame, known once its prelude is complete.
    length: usize,
    failed: Option<FrameError>,
}

/// The content of one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMessage<'a> {
    /// The headers, in the order of arrival.
    pub headers: Vec<(&'a str, HeaderValue<'a>)>,
    /// The payload.
    pub payload: &'a [u8],
}

/// Value of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderValue<'a> {
    /// True or false.
    Bool(bool),
    /// 8 bits, signed.
    Byte(i8),
    /// 16 bits, signed.
    Short(i16),
    /// 32 bits, signed.
    Integer(i32),
    /// 64 bits, signed.
    Long(i64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Text.
    Text(&'a str),
    /// Time in milliseconds since 1970.
    Timestamp(i64),
    /// A UUID.
    Uuid([u8; 16]),
}

/// Error for a frame that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The checksum of the prelude is wrong.
    PreludeChecksum,
    /// The checksum of the message is wrong.
    MessageChecksum,
    /// The frame's length is outside the allowed range.
    Length(u32),
    /// The headers are longer than their frame or than the limit.
    HeadersLength(u32),
    /// A header ends beyond the headers.
    HeaderCut,
    /// A header's name or text is not UTF-8, or the name is empty.
    HeaderText,
    /// The type of a header is unknown.
    HeaderType(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::PreludeChecksum => {
                f.write_str("the checksum of a frame's prelude is wrong")
            }
            FrameError::MessageChecksum => f.write_str("the checksum of a frame is wrong"),
            FrameError::Length(n) => {
                write!(f, "a frame claims {n} bytes; it may have {LEAST} to {FRAME_CAP}")
            }
            FrameError::HeadersLength(n) => {
                write!(f, "a frame claims {n} bytes of headers, more than it may have")
            }
            FrameError::HeaderCut => f.write_str("a header ends beyond the headers of its frame"),
            FrameError::HeaderText => f.write_str("a header of a frame is not text"),
            FrameError::HeaderType(kind) => {
                write!(f, "a header of a frame has the unknown type {kind}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

impl EventStreamDecoder {
    /// Creates a decoder for the start of a stream.
    pub fn new() -> EventStreamDecoder {
        EventStreamDecoder::default()
    }

    /// Takes the next chunk and passes each completed message to `each`.
    ///
    /// # Errors
    /// Fails if a frame cannot be read. Every later call returns the same error.
    pub fn push(
        &mut self,
        chunk: &[u8],
        each: &mut dyn FnMut(&EventMessage<'_>),
    ) -> Result<(), FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let taken = self.take(chunk, each);
        self.failed = taken.err();
        taken
    }

    /// `true` if no frame is partially received.
    pub fn is_between(&self) -> bool {
        self.held.is_empty()
    }

    fn take(
        &mut self,
        mut chunk: &[u8],
        each: &mut dyn FnMut(&EventMessage<'_>),
    ) -> Result<(), FrameError> {
        while !chunk.is_empty() {
            // Fast path: the frame is complete in this chunk and is read without a copy.
            if self.held.is_empty() && chunk.len() >= PRELUDE {
                let length = length_of(chunk)?;
                if let Some((frame, rest)) = chunk.split_at_checked(length) {
                    each(&read(frame)?);
                    chunk = rest;
                    continue;
                }
            }
            // First collect the prelude alone, because only a checked length may decide how much to
            // hold.
            let wanted = if self.held.len() < PRELUDE { PRELUDE } else { self.length };
            let (taken, rest) = chunk.split_at((wanted - self.held.len()).min(chunk.len()));
            self.held.extend_from_slice(taken);
            chunk = rest;
            if self.held.len() == PRELUDE {
                self.length = length_of(&self.held)?;
            } else if self.held.len() > PRELUDE && self.held.len() == self.length {
                each(&read(&self.held)?);
                self.held.clear();
            }
        }
        Ok(())
    }
}

impl EventMessage<'_> {
    /// Returns the text header with this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(known, value)| match value {
            HeaderValue::Text(text) if *known == name => Some(*text),
            _ => None,
        })
    }
}

fn number(bytes: &[u8]) -> u32 {
    // `take(4)` bounds the fold, so callers may pass a longer slice.
    bytes.iter().take(4).fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// Returns the length of the frame that begins with this prelude.
fn length_of(head: &[u8]) -> Result<usize, FrameError> {
    // Check the checksum before the lengths, so that random bytes are reported as such and not as
    // an absurd length.
    if crc32fast::hash(&head[..8]) != number(&head[8..]) {
        return Err(FrameError::PreludeChecksum);
    }
    let (total, headers) = (number(head), number(&head[4..]));
    let length = total as usize;
    if !(LEAST..=FRAME_CAP).contains(&length) {
        return Err(FrameError::Length(total));
    }
    if headers as usize > (length - LEAST).min(HEADERS_CAP) {
        return Err(FrameError::HeadersLength(headers));
    }
    Ok(length)
}

/// Parses a complete frame whose prelude has been checked.
fn read(frame: &[u8]) -> Result<EventMessage<'_>, FrameError> {
    let (body, checksum) = frame.split_at(frame.len() - 4);
    if crc32fast::hash(body) != number(checksum) {
        return Err(FrameError::MessageChecksum);
    }
    // `length_of` has checked that the headers fit, so this split cannot panic.
    let (mut rest, payload) = body[PRELUDE..].split_at(number(&frame[4..]) as usize);
    let mut headers = Vec::new();
    while !rest.is_empty() {
        headers.push(header(&mut rest)?);
    }
    Ok(EventMessage { headers, payload })
}

/// Removes one header from the front and returns it.
fn header<'a>(rest: &mut &'a [u8]) -> Result<(&'a str, HeaderValue<'a>), FrameError> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| FrameError::HeaderText);
    let [length] = array(rest)?;
    let name = text(cut(rest, usize::from(length))?)?;
    if name.is_empty() {
        return Err(FrameError::HeaderText);
    }
    let [kind] = array(rest)?;
    let value = match kind {
        0 => HeaderValue::Bool(true),
        1 => HeaderValue::Bool(false),
        2 => HeaderValue::Byte(i8::from_be_bytes(array(rest)?)),
        3 => HeaderValue::Short(i16::from_be_bytes(array(rest)?)),
        4 => HeaderValue::Integer(i32::from_be_bytes(array(rest)?)),
        5 => HeaderValue::Long(i64::from_be_bytes(array(rest)?)),
        6 | 7 => {
            let length = u16::from_be_bytes(array(rest)?);
            let bytes = cut(rest, usize::from(length))?;
            if kind == 6 { HeaderValue::Bytes(bytes) } else { HeaderValue::Text(text(bytes)?) }
        }
        8 => HeaderValue::Timestamp(i64::from_be_bytes(array(rest)?)),
        9 => HeaderValue::Uuid(array(rest)?),
        other => return Err(FrameError::HeaderType(other)),
    };
    Ok((name, value))
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FrameError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(FrameError::HeaderCut)?;
    *rest = after;
    Ok(*bytes)
}

fn cut<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], FrameError> {
    let (bytes, after) = rest.split_at_checked(length).ok_or(FrameError::HeaderCut)?;
    *rest = after;
    Ok(bytes)
}

/// Encodes an event of a model as Bedrock's `InvokeModelWithResponseStream` sends it: in Base64, in a
/// frame of the type `chunk`.
pub fn invoke_frame(event: &str) -> Vec<u8> {
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    let bytes = base64::engine::general_purpose::STANDARD.encode(event);
    frame(&headers, format!("{{\"bytes\":\"{bytes}\"}}").as_bytes())
}

/// Encodes a frame with text headers. Names are cut at 255 bytes and values at 65535, because their
/// length fields hold no more.
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; PRELUDE];
    for (name, text) in headers {
        let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
        let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        // 7 is the type of a text header.
        out.push(7);
        out.extend_from_slice(&(text.len() as u16).to_be_bytes());
        out.extend_from_slice(text);
    }
    let headers = (out.len() - PRELUDE) as u32;
    out.extend_from_slice(payload);
    let total = (out.len() + 4) as u32;
    out[..4].copy_from_slice(&total.to_be_bytes());
    out[4..8].copy_from_slice(&headers.to_be_bytes());
    let checksum = crc32fast::hash(&out[..8]);
    out[8..PRELUDE].copy_from_slice(&checksum.to_be_bytes());
    let checksum = crc32fast::hash(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}
