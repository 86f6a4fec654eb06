//! The kind of a body, which its first bytes decide.

use crate::dialect::{Dialect, Framing};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only whitespace so far.
    Unknown,
    Events,
    /// One JSON array whose elements are the events.
    Array,
    /// Consecutive objects, which are the events. A single object may be a complete body.
    Objects,
    /// Binary frames (AWS event stream).
    Frames,
    Json,
    /// The status reports an error, so the body is stored for its message.
    Error,
    /// A page of HTML or XML, as a server has at an address that is not that of an API.
    Page,
    /// Neither events nor JSON. The value describes the content.
    Foreign(&'static str),
}

/// The byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

pub(super) fn without_mark(head: &[u8]) -> &[u8] {
    head.strip_prefix(BOM).unwrap_or(head)
}

/// Returns the body without its leading whitespace, except the last such byte. Servers send
/// unlimited whitespace to keep a connection open. The last byte stays because a leading blank
/// changes the meaning of an event stream's first line.
pub(super) fn past_blanks(body: &[u8]) -> &[u8] {
    let from = if body.starts_with(BOM) { BOM.len() } else { 0 };
    let blanks = body[from..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    if blanks == 0 { body } else { &body[from + blanks - 1..] }
}

pub(super) fn kind_of(head: &[u8], dialect: &Dialect) -> Kind {
    // Wait for the rest of a possible byte order mark before deciding.
    if head.len() < BOM.len() && BOM.starts_with(head) {
        return Kind::Unknown;
    }
    let framing = dialect.family.framing();
    match without_mark(head).iter().find(|b| !b.is_ascii_whitespace()) {
        None => Kind::Unknown,
        Some(b'[') if framing == Framing::Array => Kind::Array,
        Some(b'{') if framing == Framing::Objects => Kind::Objects,
        // The first byte of a frame's length, which is 0 or 1 because a frame has at most 24 MiB.
        Some(0..=1) if dialect.family.in_frames() => Kind::Frames,
        Some(b'{' | b'[') => Kind::Json,
        Some(b'<') => Kind::Page,
        Some(0x1f) => Kind::Foreign("compressed"),
        Some(0..=0x08 | 0x0e..=0x1e | 0x7f..) => Kind::Foreign("binary"),
        Some(_) => Kind::Events,
    }
}
