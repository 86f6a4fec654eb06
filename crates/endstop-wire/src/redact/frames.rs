//! Redaction of AWS event stream frames. A frame that contained a key is encoded again, because it
//! includes its length and a checksum, and its payload may be Base64.
//!
//! ```
//! use endstop_wire::stream::eventstream::frame;
//! use endstop_wire::redact::KnownKeys;
//! let keys = KnownKeys::new(["sk-proj-4fQ9xTz71LmN0pWv"]);
//! let said = |text: &str| frame(&[(":event-type", "chunk")], text.as_bytes());
//! let body = [said(r#"{"text":"sk-proj-4fQ"}"#), said(r#"{"text":"9xTz71LmN0pWv."}"#)].concat();
//! let clean = [said(r#"{"text":"[redacted]"}"#), said(r#"{"text":"."}"#)].concat();
//! assert_eq!(*keys.out_of_body(&body), clean);
//! ```

use super::known::KnownKeys;
use crate::stream::eventstream::{EventStreamDecoder, HeaderValue, frame};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::{memchr_iter, memmem};
use serde_json::Value;
use std::borrow::Cow;

/// A frame and the text inside it.
struct Frame<'a> {
    raw: &'a [u8],
    headers: Vec<(String, String)>,
    /// Text of the frame: its payload, or the payload's decoded Base64 content.
    said: Vec<u8>,
    /// The payload, if it wraps Base64 content.
    envelope: Option<Value>,
}

impl KnownKeys {
    /// Like [`out_of`](KnownKeys::out_of), for a response body that may consist of binary frames.
    /// Such a body still consists of complete frames afterwards.
    pub fn out_of_body<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        let (frames, tail) = frames(body);
        if frames.is_empty() {
            return self.out_of(body);
        }
        // Put each frame's text on a line and search all lines together, because a key may be split
        // across frames.
        let mut lines: Vec<&[u8]> = frames.iter().map(|frame| &*frame.said).collect();
        // An incomplete frame is not decoded. Its Base64 content cannot be searched, so it is cut
        // off.
        let tail = &tail[..memmem::find(tail, b"\"bytes\"").unwrap_or(tail.len())];
        lines.push(tail);
        let joined = lines.join(&b'\n');
        let clean = self.out_of_chunks(&joined, true);
        let named = |frame: &Frame<'_>| frame.headers.iter().any(|(_, text)| self.is_in(text));
        if *clean == *joined && !frames.iter().any(named) {
            return Cow::Borrowed(&body[..body.len().min(end_of(&frames) + tail.len())]);
        }
        let mut out = Vec::with_capacity(body.len());
        let mut rest = &*clean;
        for frame in &frames {
            // No replacement extends across the end of a line, so lines still match frames.
            let breaks = memchr_iter(b'\n', &frame.said).count();
            let end = memchr_iter(b'\n', rest).nth(breaks).unwrap_or(rest.len());
            let (said, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if *said == *frame.said && !named(frame) {
                out.extend_from_slice(frame.raw);
            } else {
                out.extend(self.anew(frame, said));
            }
        }
        out.extend_from_slice(rest);
        Cow::Owned(out)
    }

    fn is_in(&self, text: &str) -> bool {
        matches!(self.out_of_text(text), Cow::Owned(_))
    }

    /// Encodes the frame again with new text.
    fn anew(&self, old: &Frame<'_>, said: &[u8]) -> Vec<u8> {
        let headers: Vec<(&str, Cow<'_, str>)> = old
            .headers
            .iter()
            .map(|(name, text)| (name.as_str(), self.out_of_text(text)))
            .collect();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, text)| (*name, text.as_ref())).collect();
        match &old.envelope {
            None => frame(&headers, said),
            Some(envelope) => {
                let mut envelope = envelope.clone();
                envelope["bytes"] = STANDARD.encode(said).into();
                frame(&headers, envelope.to_string().as_bytes())
            }
        }
    }
}

fn end_of(frames: &[Frame<'_>]) -> usize {
    frames.iter().map(|frame| frame.raw.len()).sum()
}

/// Returns the frames at the start of a body, and the bytes after them. Returns no frames if the
/// body has another format.
fn frames(body: &[u8]) -> (Vec<Frame<'_>>, &[u8]) {
    let mut frames = Vec::new();
    // All other bodies begin with a printable character, and a frame with its length.
    if !matches!(body.first(), Some(0 | 1)) {
        return (frames, body);
    }
    let mut rest = body;
    let mut each = |message: &crate::stream::eventstream::EventMessage<'_>| {
        let text = |(name, value): &(&str, HeaderValue<'_>)| match value {
            HeaderValue::Text(text) => Some(((*name).to_owned(), (*text).to_owned())),
            _ => None,
        };
        let envelope: Option<Value> = serde_json::from_slice(message.payload).ok();
        let inner = envelope.as_ref().and_then(|envelope| envelope.get("bytes")?.as_str());
        let inner = inner.and_then(|inner| STANDARD.decode(inner).ok());
        let length = rest.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
        let (raw, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        frames.push(Frame {
            raw,
            headers: message.headers.iter().filter_map(text).collect(),
            envelope: envelope.filter(|_| inner.is_some()),
            said: inner.unwrap_or_else(|| message.payload.to_vec()),
        });
    };
    // Data that cannot be read stays in the rest after the frames.
    let _ = EventStreamDecoder::new().push(body, &mut each);
    (frames, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv8aBcD";

    fn chunk(text: &str) -> Vec<u8> {
        let event = json!({"type": "content_block_delta", "delta": {"text": text}}).to_string();
        let payload = json!({"bytes": STANDARD.encode(event), "p": "ab"}).to_string();
        frame(&[(":event-type", "chunk"), (":message-type", "event")], payload.as_bytes())
    }

    fn said(body: &[u8]) -> String {
        let (frames, _) = frames(body);
        let text = |frame: &Frame<'_>| {
            let event: Value = serde_json::from_slice(&frame.said).unwrap();
            event["delta"]["text"].as_str().unwrap().to_owned()
        };
        frames.iter().map(text).collect()
    }

    #[test]
    fn key_split_across_base64_is_redacted() {
        let keys = KnownKeys::new([KEY]);
        for n in 1..=KEY.len() {
            let pieces = KEY.as_bytes().chunks(n).map(|piece| std::str::from_utf8(piece).unwrap());
            let body: Vec<u8> = ["It is "].into_iter().chain(pieces).flat_map(chunk).collect();
            let clean = keys.out_of_body(&body);
            assert_eq!(said(&clean), "It is [redacted]", "{n}");
            // Frames without any part of the key are unchanged.
            assert!(clean.starts_with(&chunk("It is ")));
        }
    }

    #[test]
    fn body_without_key_is_unchanged() {
        let keys = KnownKeys::new([KEY]);
        let body =
            [chunk("a\n"), chunk("b"), frame(&[], b"\x01\n\xff\""), frame(&[], b"")].concat();
        for end in 0..=body.len() {
            // Except for an incomplete frame with Base64 content.
            let clean = keys.out_of_body(&body[..end]);
            assert!(body.starts_with(&clean), "{end}");
            let whole = end_of(&frames(&body[..end]).0);
            assert!(clean.len() >= whole.min(end), "{end}");
        }
        assert_eq!(*keys.out_of_body(&body), body);
    }

    #[test]
    fn key_in_exception_message_is_redacted() {
        let keys = KnownKeys::new([KEY]);
        let message = format!("bad key {KEY}");
        let body = frame(&[(":message-type", "error"), (":error-message", &message)], b"{}");
        let clean = keys.out_of_body(&body);
        let want =
            frame(&[(":message-type", "error"), (":error-message", "bad key [redacted]")], b"{}");
        assert_eq!(*clean, want);
    }
}
