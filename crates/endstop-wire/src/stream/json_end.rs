//! Finds the end of a JSON value without parsing it; tracks only depth, strings and escapes.
//!
//! ```
//! use endstop_wire::stream::json_end::JsonEnd;
//! let mut end = JsonEnd::default();
//! assert_eq!(end.feed(br#"{"a": "}"#), None);   // continues in the next chunk
//! assert_eq!(end.feed(br#"]"}, 2"#), Some(3));  // ended with these three bytes
//! ```
//!
//! This splits a stream, or a list of ten gigabytes, into its elements while only one element is in
//! memory. The input may be cut at any byte. For valid JSON the end is the one that a parser finds.
//! Malformed content also has an end, which depends on its quotes and brackets only: the program
//! that parses the value reports what is wrong with it.

use memchr::memchr2;

/// Scanner for the end of one value.
#[derive(Clone, Debug, Default)]
pub struct JsonEnd {
    depth: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the value.
    #[default]
    Before,
    /// Between brackets, outside strings.
    Inside,
    /// Inside a string.
    Text,
    /// After a backslash in a string.
    Escape,
    /// Inside a number or a literal.
    Scalar,
}

impl JsonEnd {
    /// Scans the next bytes. Returns the number of bytes that belong to the value if it ends within
    /// them.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut i = 0;
        while let Some(&byte) = bytes.get(i) {
            match self.state {
                // Strings are most of a recording, so they are skipped with a vectorised search.
                State::Text => match memchr2(b'"', b'\\', &bytes[i..]) {
                    None => return None,
                    Some(n) => {
                        i += n;
                        if bytes[i] == b'\\' {
                            self.state = State::Escape;
                        } else if self.depth == 0 {
                            return Some(i + 1);
                        } else {
                            self.state = State::Inside;
                        }
                    }
                },
                State::Escape => self.state = State::Text,
                State::Scalar => {
                    if matches!(byte, b',' | b']' | b'}' | b':' | b'"' | b'[' | b'{')
                        || is_space(byte)
                    {
                        return Some(i);
                    }
                }
                State::Before | State::Inside => match byte {
                    b'"' => self.state = State::Text,
                    b'{' | b'[' => {
                        self.depth += 1;
                        self.state = State::Inside;
                    }
                    b'}' | b']' => {
                        // Saturating, because a stray bracket must not underflow; the parser
                        // reports it.
                        self.depth = self.depth.saturating_sub(1);
                        if self.depth == 0 {
                            return Some(i + 1);
                        }
                    }
                    _ if self.state == State::Inside || is_space(byte) => {}
                    _ => self.state = State::Scalar,
                },
            }
            i += 1;
        }
        None
    }

    /// Returns `true` if the value may be complete: the end of a number is only known from the byte
    /// after it.
    pub fn may_end(&self) -> bool {
        self.state == State::Scalar
    }
}

/// Returns `true` for JSON white space.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_finds_same_end() {
        let whole = br#" {"a": ["]}", "\"", "\\"], "b": {"c": 1.5e3}} , {"#;
        let end = whole.len() - 4;
        for cut in 0..whole.len() {
            let mut scan = JsonEnd::default();
            let found =
                scan.feed(&whole[..cut]).or_else(|| scan.feed(&whole[cut..]).map(|n| cut + n));
            assert_eq!(found, Some(end), "cut at {cut}");
        }
    }

    #[test]
    fn scalars_end_before_next_byte() {
        assert_eq!(JsonEnd::default().feed(b"12, 3"), Some(2));
        assert_eq!(JsonEnd::default().feed(b"\"a\\\"b\" ]"), Some(6));
        assert_eq!(JsonEnd::default().feed(b"true]"), Some(4));
        let mut end = JsonEnd::default();
        assert_eq!(end.feed(b"12"), None);
        assert!(end.may_end());
    }
}
