//! A stream of JSON values that arrives in pieces, split into them: the elements of one array, or
//! objects one after another, a line each. Correct at every cut, linear, bounded.
//!
//! ```ignore
//! let mut objects = Elements::objects();
//! objects.push(b"{\"a\":1}\n{\"a\"", &mut |object| println!("{object}"))?; // {"a":1}
//! assert_eq!(objects.rest().as_deref(), Some("{\"a\""));
//! ```
//!
//! An object is handed over with its last brace, without waiting for what comes behind it.

use memchr::{memchr, memchr2};
use std::fmt;

/// The most of one element that is held.
const ELEMENT_CAP: usize = 32 << 20;

/// The push splitter.
#[derive(Debug, Default)]
pub(crate) struct Elements {
    /// The element that is not whole yet.
    held: Vec<u8>,
    /// How many brackets are open, the array's own included.
    depth: usize,
    string: bool,
    escaped: bool,
    closed: bool,
    /// Objects are expected, not an array.
    objects: bool,
    /// Among objects: what is open is a line that is none.
    stray: bool,
}

/// An element is beyond its cap.
#[derive(Debug)]
pub(crate) struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an element of the stream exceeds {ELEMENT_CAP} bytes")
    }
}

impl Elements {
    /// Splits one array, whatever stands before its bracket.
    pub(crate) fn array() -> Elements {
        Elements::default()
    }

    /// Splits objects that stand one after another, also where they go over lines or share one. A
    /// line that begins no object is handed over too, at its newline, for the caller to refuse.
    pub(crate) fn objects() -> Elements {
        Elements { objects: true, ..Elements::default() }
    }

    /// Takes the next bytes and hands over the elements that they complete.
    pub(crate) fn push(&mut self, chunk: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        if self.objects { self.in_lines(chunk, each) } else { self.in_array(chunk, each) }
    }

    fn in_lines(&mut self, chunk: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        let mut at = 0;
        // Where the part of what is open begins that is in this chunk.
        let mut from = 0;
        while at < chunk.len() {
            if self.string {
                at += self.inside(&chunk[at..]);
                continue;
            }
            if self.stray {
                let Some(newline) = memchr(b'\n', &chunk[at..]) else {
                    break;
                };
                at += newline + 1;
                self.stray = false;
                self.hand_over(&chunk[from..at], each)?;
                from = at;
                continue;
            }
            let byte = chunk[at];
            at += 1;
            match byte {
                b'{' if self.depth == 0 => self.depth = 1,
                byte if self.depth == 0 => {
                    if byte.is_ascii_whitespace() {
                        from = at;
                    } else {
                        self.stray = true;
                    }
                }
                b'"' => self.string = true,
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.hand_over(&chunk[from..at], each)?;
                        from = at;
                    }
                }
                _ => {}
            }
        }
        self.hold(&chunk[from..])
    }

    fn in_array(&mut self, chunk: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
        let mut at = 0;
        // Where the part of the element begins that is in this chunk.
        let mut from = 0;
        while at < chunk.len() && !self.closed {
            if self.string {
                at += self.inside(&chunk[at..]);
                continue;
            }
            let byte = chunk[at];
            at += 1;
            match byte {
                b'"' if self.depth > 0 => self.string = true,
                b'[' | b'{' => {
                    self.depth += 1;
                    if self.depth == 1 {
                        from = at; // the array itself; a byte order mark may stand before it
                    }
                }
                b']' | b'}' if self.depth == 1 => {
                    self.hand_over(&chunk[from..at - 1], each)?;
                    self.closed = true;
                }
                b']' | b'}' if self.depth == 2 => {
                    self.depth = 1;
                    self.hand_over(&chunk[from..at], each)?;
                    from = at;
                }
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                b',' if self.depth == 1 => {
                    self.hand_over(&chunk[from..at - 1], each)?;
                    from = at;
                }
                _ => {}
            }
        }
        if self.depth > 0 && !self.closed {
            self.hold(&chunk[from..])?;
        }
        Ok(())
    }

    /// What is left of an element that was cut.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        let text = String::from_utf8_lossy(&held);
        Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// How many bytes belong to the string that is open, its quote included.
    fn inside(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        if std::mem::take(&mut self.escaped) {
            at = 1;
        }
        while let Some(next) = memchr2(b'"', b'\\', &bytes[at..]) {
            at += next;
            if bytes[at] == b'"' {
                self.string = false;
                return at + 1;
            }
            if at + 1 == bytes.len() {
                self.escaped = true;
                return at + 1;
            }
            at += 2;
        }
        bytes.len()
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.held.len() + bytes.len() > ELEMENT_CAP {
            return Err(TooLong);
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn hand_over(&mut self, last: &[u8], each: &mut dyn FnMut(&str)) -> Result<(), TooLong> {
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
    fn elements_are_the_same_at_every_cut() {
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
    fn objects_are_the_same_at_every_cut() {
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
    fn an_object_does_not_wait_for_the_next() {
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
    fn an_element_beyond_its_cap_is_refused() {
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
    fn blanks_between_objects_are_not_held() {
        let mut elements = Elements::objects();
        let blanks = vec![b'\n'; 1 << 20];
        assert!((0..40).all(|_| elements.push(&blanks, &mut |_| ()).is_ok()));
        assert_eq!(elements.held.len(), 0);
    }
}
