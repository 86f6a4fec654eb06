//! Amazon's event streams (`application/vnd.amazon.eventstream`): binary frames from bytes that come
//! in any cutting, and the writing of one.
//!
//! ```
//! use endstop_wire::stream::eventstream::{Decoder, frame};
//! let bytes = frame(&[(":message-type", "event"), (":event-type", "chunk")], b"{}");
//! let mut decoder = Decoder::new();
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
//! A frame is its length, the length of its headers and a checksum of those two; the headers; the
//! payload; and a checksum of all before it. Numbers are big-endian, checksums are CRC-32. Work is
//! linear: a frame that is whole in a chunk is read where it lies, one that is cut is copied once.
//! What is wrong with a frame ends the stream, since nothing behind it can be found.

use std::fmt;

/// The lengths and their checksum.
const PRELUDE: usize = 12;
/// The least frame: a prelude and the checksum of the message.
const LEAST: usize = PRELUDE + 4;
/// The most that a frame may have; AWS's own limit.
const FRAME_CAP: usize = 24 << 20;
/// The most that its headers may have; AWS's own limit.
const HEADERS_CAP: usize = 128 << 10;

/// The push decoder.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The frame that is not whole yet.
    held: Vec<u8>,
    /// Its length, once its prelude is there.
    length: usize,
    failed: Option<FrameError>,
}

/// A message: what one frame carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    /// The headers, in the order they came.
    pub headers: Vec<(&'a str, HeaderValue<'a>)>,
    /// The payload.
    pub payload: &'a [u8],
}

/// The value of a header.
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
    /// Milliseconds since 1970.
    Timestamp(i64),
    /// A UUID.
    Uuid([u8; 16]),
}

/// A frame that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// The checksum of the prelude is wrong.
    PreludeChecksum,
    /// The checksum of the message is wrong.
    MessageChecksum,
    /// A length that no frame has.
    Length(u32),
    /// The headers are longer than their frame, or than headers may be.
    HeadersLength(u32),
    /// A header ends beyond the headers.
    HeaderCut,
    /// The name of a header, or its text, is not UTF-8, or the name is empty.
    HeaderText,
    /// A header of a type that is not known.
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

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Takes the next bytes and hands over the messages that they complete.
    ///
    /// # Errors
    /// A frame that cannot be read; the same again for whatever comes after it.
    pub fn push(
        &mut self,
        chunk: &[u8],
        each: &mut dyn FnMut(&Message<'_>),
    ) -> Result<(), FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let taken = self.take(chunk, each);
        self.failed = taken.err();
        taken
    }

    /// No frame has begun that is not whole.
    pub fn is_between(&self) -> bool {
        self.held.is_empty()
    }

    fn take(
        &mut self,
        mut chunk: &[u8],
        each: &mut dyn FnMut(&Message<'_>),
    ) -> Result<(), FrameError> {
        while !chunk.is_empty() {
            if self.held.is_empty() && chunk.len() >= PRELUDE {
                let length = length_of(chunk)?;
                if let Some((frame, rest)) = chunk.split_at_checked(length) {
                    each(&read(frame)?);
                    chunk = rest;
                    continue;
                }
            }
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

impl Message<'_> {
    /// The header of this name, where it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|(known, value)| match value {
            HeaderValue::Text(text) if *known == name => Some(*text),
            _ => None,
        })
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// The length of the frame that begins with this prelude.
fn length_of(head: &[u8]) -> Result<usize, FrameError> {
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

/// The message of a whole frame whose prelude is sound.
fn read(frame: &[u8]) -> Result<Message<'_>, FrameError> {
    let (body, checksum) = frame.split_at(frame.len() - 4);
    if crc32fast::hash(body) != number(checksum) {
        return Err(FrameError::MessageChecksum);
    }
    let (mut rest, payload) = body[PRELUDE..].split_at(number(&frame[4..]) as usize);
    let mut headers = Vec::new();
    while !rest.is_empty() {
        headers.push(header(&mut rest)?);
    }
    Ok(Message { headers, payload })
}

/// Takes a header off the front.
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

/// A frame with headers of text. A name is cut at 255 bytes, a text at 65535, as the format has it.
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; PRELUDE];
    for (name, text) in headers {
        let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
        let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
        out.push(name.len() as u8);
        out.extend_from_slice(name);
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
