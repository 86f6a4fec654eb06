//! Incremental splitter for JSON streams: emits the elements of one array, or consecutive objects,
//! from chunks of any size. Time is linear and memory is bounded.
//!
//! ```text
//! push  {"a":1}⏎{"a"   → emits {"a":1}
//! rest                 → {"a"
//! ```
//!
//! An object is emitted at its closing brace, without waiting for the byte after it, because a
//! server may send that byte much later.

use super::json_end::JsonEnd;
use memchr::memchr;
use std::fmt;

/// Maximum number of bytes of one element.
const ELEMENT_CAP: usize = 32 << 20;

/// The splitter. It takes chunks and emits complete elements.
#[derive(Debug, Default)]
pub(crate) struct Elements {
    /// Bytes of the element that is not complete yet.
    held: Vec<u8>,
    /// Scanner of the open string, object or array inside the element.
    inside: Option<JsonEnd>,
    /// `true` after the opening bracket of the array.
    opened: bool,
    /// `true` after the closing bracket of the array.
    closed: bool,
    /// `true` to expect consecutive objects instead of one array.
    objects: bool,
    /// In object mode: `true` while inside a line that does not begin an object.
    stray: bool,
}

/// Error for an element that exceeds [`ELEMENT_CAP`].
#[derive(Debug)]
pub(crate) struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an element of the stream exceeds {ELEMENT_CAP} bytes")
    }
}

impl Elements {
    /// Creates a splitter for one array. Anything before its opening bracket is ignored.
    pub(crate) fn array() -> Elements {
        Elements::default()
    }

    /// Creates a splitter for consecutive objects, which may span several lines or share one. A
    /// line that does not begin an object is emitted at its newline, so that the caller can reject
    /// it.
    pub(crate) fn objects() -> Elements {
        Elements { objects: true, ..Elements::default() }
    }

    /// Takes the next chunk and passes every completed element to `each`.
    pub(crate) fn push(&mut self, chunk: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        if self.objects { self.in_lines(chunk, each) } else { self.in_array(chunk, each) }
    }

    fn in_lines(&mut self, chunk: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        let mut at = 0;
        // Offset in this chunk at which the open element continues.
        let mut from = 0;
        while at < chunk.len() {
            if let Some(object) = &mut self.inside {
                let Some(len) = object.feed(&chunk[at..]) else { break };
                self.inside = None;
                at += len;
                self.hand_over(&chunk[from..at], each)?;
                from = at;
            } else if self.stray {
                let Some(newline) = memchr(b'\n', &chunk[at..]) else { break };
                self.stray = false;
                at += newline + 1;
                self.hand_over(&chunk[from..at], each)?;
                from = at;
            } else if chunk[at] == b'{' {
                self.inside = Some(JsonEnd::default());
            } else if chunk[at].is_ascii_whitespace() {
                // Drop whitespace between objects instead of holding it, because servers send
                // newlines to keep a connection alive.
                at += 1;
                from = at;
            } else {
                self.stray = true;
            }
        }
        self.hold(&chunk[from..])
    }

    fn in_array(&mut self, chunk: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        let mut at = 0;
        // Offset in this chunk at which the open element continues.
        let mut from = 0;
        while at < chunk.len() && !self.closed {
            if let Some(value) = &mut self.inside {
                let Some(len) = value.feed(&chunk[at..]) else { break };
                self.inside = None;
                at += len;
                // An element that is an object or an array ends with its own bracket. The comma
                // after it then finds only whitespace, which `hand_over` drops.
                if chunk[at - 1] != b'"' {
                    self.hand_over(&chunk[from..at], each)?;
                    from = at;
                }
                continue;
            }
            let byte = chunk[at];
            match byte {
                b'[' | b'{' if !self.opened => {
                    self.opened = true;
                    from = at + 1; // a byte order mark may stand before the array
                }
                _ if !self.opened => {}
                b'"' | b'[' | b'{' => {
                    self.inside = Some(JsonEnd::default());
                    continue; // the scanner reads the opening byte, too
                }
                b']' | b'}' => {
                    self.hand_over(&chunk[from..at], each)?;
                    self.closed = true;
                }
                b',' => {
                    self.hand_over(&chunk[from..at], each)?;
                    from = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        if self.opened && !self.closed {
            self.hold(&chunk[from..])?;
        }
        Ok(())
    }

    /// Returns the bytes of an element that was cut off by the end of the stream.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        let text = String::from_utf8_lossy(&held);
        Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.held.len() + bytes.len() > ELEMENT_CAP {
            return Err(TooLong);
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn hand_over(&mut self, last: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        // Lossy conversion is safe here: invalid UTF-8 becomes replacement characters, and JSON
        // parsing still succeeds or fails on its own.
        let mut hand = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let text = text.trim();
            if !text.is_empty() {
                each(text);
            }
        };
        if self.held.is_empty() {
            hand(last); // whole in this chunk: borrowed from it
        } else {
            self.hold(last)?;
            hand(&self.held);
            self.held.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, cut: usize) -> (Vec<String>, Option<String>) {
        split_by(Elements::array(), text, cut)
    }

    fn split_by(mut elements: Elements, text: &str, cut: usize) -> (Vec<String>, Option<String>) {
        let mut seen = Vec::new();
        for piece in text.as_bytes().chunks(cut) {
            elements.push(piece, &mut |e| seen.push(e.to_owned())).unwrap();
        }
        (seen, elements.rest())
    }

    #[test]
    fn array_elements_are_chunk_independent() {
        let text =
            "\u{feff} [{\"a\":\"]}\\\"{[,\\\\\"}\n,\r\n {\"b\":[[1,2],{}]} , 7, \"x,\", null] , {";
        let want = ["{\"a\":\"]}\\\"{[,\\\\\"}", "{\"b\":[[1,2],{}]}", "7", "\"x,\"", "null"];
        for cut in 1..=text.len() {
            assert_eq!(split(text, cut), (want.map(str::to_owned).to_vec(), None), "{cut}");
        }
        for (text, rest) in [
            ("[", None),
            ("[]", None),
            ("[{}, {\"a\":\"é", Some("{\"a\":\"é")),
            ("[\"\\", Some("\"\\")),
            ("[[[", Some("[[")),
            ("[}]", None),
        ] {
            for cut in 1..=text.len() {
                assert_eq!(split(text, cut).1.as_deref(), rest, "{text} {cut}");
            }
        }
    }

    #[test]
    fn objects_are_chunk_independent() {
        let pretty = "{\n  \"a\": [\n    {\"é\": \"}\\\"{\\\\\"}\n  ]\n}";
        let text = format!(
            "\n{{\"a\":1}}\n{pretty}\r\n\n{{}}{{\"b\":2}} {{\"c\":\"\\\\\"}}\nerror: \"a {{\n[1]\n{{\"d\":]\n{{\"e"
        );
        let want = [
            "{\"a\":1}",
            pretty,
            "{}",
            "{\"b\":2}",
            "{\"c\":\"\\\\\"}",
            "error: \"a {",
            "[1]",
            "{\"d\":]",
        ];
        for cut in 1..=text.len() {
            let (seen, rest) = split_by(Elements::objects(), &text, cut);
            assert_eq!(seen, want, "{cut}");
            assert_eq!(rest.as_deref(), Some("{\"e"), "{cut}");
        }
        for (text, rest) in [
            ("", None),
            ("{}\n \n", None),
            ("{\"a\":\"é", Some("{\"a\":\"é")),
            ("{\"\\", Some("{\"\\")),
            ("}", Some("}")),
            ("no object", Some("no object")),
        ] {
            for cut in 1..=text.len() {
                assert_eq!(split_by(Elements::objects(), text, cut).1.as_deref(), rest, "{text}");
            }
        }
    }

    #[test]
    fn object_is_emitted_at_closing_brace() {
        for (mut elements, text) in [
            (Elements::array(), "[{\"a\":1}"),
            (Elements::objects(), "{\"a\":1}"),
            (Elements::objects(), "no object\n"),
        ] {
            let mut seen = 0;
            elements.push(text.as_bytes(), &mut |_| seen += 1).unwrap();
            assert_eq!(seen, 1);
        }
    }

    #[test]
    fn element_beyond_cap_is_refused() {
        for (mut elements, begun) in [
            (Elements::array(), "[\""),
            (Elements::objects(), "{\""),
            (Elements::objects(), "{["),
            (Elements::objects(), "x"),
        ] {
            elements.push(begun.as_bytes(), &mut |_| ()).unwrap();
            let piece = vec![b'x'; 1 << 20];
            assert!((0..40).any(|_| elements.push(&piece, &mut |_| ()).is_err()));
        }
    }

    #[test]
    fn whitespace_between_objects_is_dropped() {
        let mut elements = Elements::objects();
        let blanks = vec![b'\n'; 1 << 20];
        assert!((0..40).all(|_| elements.push(&blanks, &mut |_| ()).is_ok()));
        assert_eq!(elements.held.len(), 0);
    }
}
