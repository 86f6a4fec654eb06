//! Finds the end of a JSON value without parsing it; tracks only depth, strings and escapes.
//!
//! ```text
//! let mut scan = Scan::default();
//! assert_eq!(scan.feed(br#"{"a": "}"#), None);   // continues in the next chunk
//! assert_eq!(scan.feed(br#"]"}, 2"#), Some(3));  // ended with these three bytes
//! ```
//!
//! This splits a list of ten gigabytes into its elements while only one element is in memory. The
//! input may be cut at any byte. Malformed content inside an element is reported by the reader that
//! parses it.

use memchr::memchr2;

/// Scans for the end of one value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
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

impl Scan {
    /// Scans the next bytes. Returns the number of bytes that belong to the value if it ends within
    /// them.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
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
    pub(crate) fn may_end(&self) -> bool {
        self.state == State::Scalar
    }
}

/// Returns `true` if `bytes` are a truncated JSON value.
pub(crate) fn is_half(bytes: &[u8]) -> bool {
    let mut scan = Scan::default();
    scan.feed(bytes).is_none() && (!scan.may_end() || is_cut_word(bytes))
}

/// Returns `true` if the bytes are a truncated JSON literal, such as `tru` or `nul`.
fn is_cut_word(bytes: &[u8]) -> bool {
    let word = bytes.trim_ascii();
    [&b"true"[..], b"false", b"null"]
        .iter()
        .any(|whole| !word.is_empty() && word.len() < whole.len() && whole.starts_with(word))
}

/// Returns `true` for JSON white space.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Completes a truncated JSON text so that it can be parsed: cuts it after the last complete member
/// or element, and closes the brackets that were open there.
pub(crate) fn closed(bytes: &[u8]) -> Vec<u8> {
    let (mut open, mut cut) = (Vec::new(), 0);
    let (mut text, mut escape) = (false, false);
    // The brackets that were open at the cut. They are stored separately, because brackets after
    // the cut must not be closed.
    let mut at_cut = Vec::new();
    for (i, &byte) in bytes.iter().enumerate() {
        if text {
            match byte {
                _ if escape => escape = false,
                b'\\' => escape = true,
                b'"' => text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => text = true,
            b'{' | b'[' => {
                open.push(if byte == b'{' { b'}' } else { b']' });
                cut = i + 1;
                at_cut.clone_from(&open);
            }
            b'}' | b']' => {
                open.pop();
                cut = i + 1;
                at_cut.clone_from(&open);
            }
            b',' => {
                cut = i;
                at_cut.clone_from(&open);
            }
            _ => {}
        }
    }
    let mut whole = bytes[..cut].to_vec();
    whole.extend(at_cut.iter().rev());
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_finds_same_end() {
        let whole = br#" {"a": ["]}", "\"", "\\"], "b": {"c": 1.5e3}} , {"#;
        let end = whole.len() - 4;
        for cut in 0..whole.len() {
            let mut scan = Scan::default();
            let found =
                scan.feed(&whole[..cut]).or_else(|| scan.feed(&whole[cut..]).map(|n| cut + n));
            assert_eq!(found, Some(end), "cut at {cut}");
        }
    }

    #[test]
    fn scalars_end_before_next_byte() {
        assert_eq!(Scan::default().feed(b"12, 3"), Some(2));
        assert_eq!(Scan::default().feed(b"\"a\\\"b\" ]"), Some(6));
        assert_eq!(Scan::default().feed(b"true]"), Some(4));
        let mut scan = Scan::default();
        assert_eq!(scan.feed(b"12"), None);
        assert!(scan.may_end());
    }

    #[test]
    fn truncated_value_is_detected() {
        for half in ["{", "{\"a\": \"x", "[1, 2", "\"abc", "tru", "{\"a\": \"}\""] {
            assert!(is_half(half.as_bytes()), "{half}");
        }
        for whole in ["{}", "[1]", "\"a\"", "12", "true", "{\"a\": 1} x"] {
            assert!(!is_half(whole.as_bytes()), "{whole}");
        }
    }

    #[test]
    fn every_prefix_can_be_closed() {
        let text =
            br#"{"schema": "x/1", "list": [{"a": 1, "b": "]"}, {"c": [true, {"d": "\"}"}]}]}"#;
        for cut in 1..=text.len() {
            let closed = closed(&text[..cut]);
            serde_json::from_slice::<serde_json::Value>(&closed)
                .unwrap_or_else(|e| panic!("{cut}: {}: {e}", String::from_utf8_lossy(&closed)));
        }
        let cut = closed(&text[..60]);
        let value: serde_json::Value = serde_json::from_slice(&cut).unwrap();
        assert_eq!(value["schema"], "x/1");
        assert_eq!(value["list"][0]["b"], "]");
    }
}
