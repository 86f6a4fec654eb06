//! The members of a JSON object, each with its place in the text, without parsing their values.
//!
//! ```text
//! {"model": "m", "choices": [{"text": "}"}]} …   →   "model" at 1..8, "m" at 10..13; "choices" …
//! ```
//!
//! A value ends where [`JsonEnd`] says, so content that is not valid is not noticed: the program that
//! parses the value reports it.

use super::json_end::{JsonEnd, is_space};
use memchr::memchr2;
use std::ops::{ControlFlow, Range};

/// Passes on the places of the name, with its quotes, and of the value of each member of the object at
/// the beginning of `bytes`, until `each` breaks. Returns the length of the text up to the end of the
/// object, or of all bytes after a break; `None` if there is no object, or if it does not end, and then the
/// members before that place were passed on.
pub(super) fn members(
    bytes: &[u8],
    mut each: impl FnMut(Range<usize>, Range<usize>) -> ControlFlow<()>,
) -> Option<usize> {
    let mut at = past_space(bytes, 0);
    (bytes.get(at) == Some(&b'{')).then_some(())?;
    at = past_space(bytes, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    loop {
        let name = at..string_end(bytes, at)?;
        at = past_space(bytes, name.end);
        (bytes.get(at) == Some(&b':')).then_some(())?;
        at = past_space(bytes, at + 1);
        let value = at..at + JsonEnd::default().feed(bytes.get(at..)?)?;
        at = past_space(bytes, value.end);
        let last = match bytes.get(at)? {
            b',' => false,
            b'}' => true,
            _ => return None,
        };
        if each(name, value).is_break() {
            return Some(bytes.len());
        }
        if last {
            return Some(at + 1);
        }
        at = past_space(bytes, at + 1);
    }
}

fn past_space(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| is_space(*byte)) {
        at += 1;
    }
    at
}

/// Returns the position after the string that begins at `from`.
fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    (bytes.get(from) == Some(&b'"')).then_some(())?;
    let mut at = from + 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        // The next character is escaped, whatever it is.
        at += 2;
    }
}
