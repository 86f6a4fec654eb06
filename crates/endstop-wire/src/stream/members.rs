//! The members of a JSON object, each with its place in the text, without parsing their values.
//!
//! ```
//! use endstop_wire::stream::members::members;
//! let text = br#"{"model": "m", "messages": [{"content": "}"}]} ..."#;
//! let mut found = Vec::new();
//! let length = members(text, |name, value| found.push((name, value)));
//! assert_eq!(length, Some(text.len() - 4));
//! assert_eq!(&text[found[1].0.clone()], br#""messages""#);
//! assert_eq!(&text[found[1].1.clone()], br#"[{"content": "}"}]"#);
//! ```
//!
//! A value is skipped by its quotes and brackets, with a vectorised search in long strings, which takes
//! a tenth of the time of a parser. For valid JSON the places are those that a parser finds. Content
//! that is not valid is not noticed: the program that parses the value reports it. Its end is that of
//! [`JsonEnd`](super::json_end::JsonEnd), which reads a text in chunks.

use super::json_end::is_space;
use super::plain_text::plain_length;
use memchr::memchr2;
use std::ops::{ControlFlow, Range};

/// Passes on the places of the name, with its quotes, and of the value of each member of the object at
/// the beginning of `bytes`. Returns the length of the text up to the end of the object, or `None` if
/// there is no object, or if it does not end; the members before that place were passed on.
pub fn members(bytes: &[u8], mut each: impl FnMut(Range<usize>, Range<usize>)) -> Option<usize> {
    members_until(bytes, |name, value| {
        each(name, value);
        ControlFlow::Continue(())
    })
}

/// Like [`members`], until `each` breaks: then the length is that of all bytes, because nothing after the
/// member was read.
pub(crate) fn members_until(
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
        let value = at..value_end(bytes, at)?;
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

/// Returns the position after the value that begins at `from`, or `None` if it does not end.
fn value_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    match bytes.get(at)? {
        b'"' => return string_end(bytes, at),
        b'{' | b'[' => {}
        // A stray bracket; the parser reports it.
        b'}' | b']' => return Some(at + 1),
        _ => {
            let rest = bytes.get(at + 1..)?;
            return rest.iter().position(|byte| KIND[usize::from(*byte)] != 0).map(|n| at + 1 + n);
        }
    }
    let mut depth = 0_usize;
    loop {
        match KIND[usize::from(*bytes.get(at)?)] {
            QUOTE => {
                at = string_end(bytes, at)?;
                continue;
            }
            OPEN => depth += 1,
            CLOSE if depth == 1 => return Some(at + 1),
            CLOSE => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

const QUOTE: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;
const BETWEEN: u8 = 4;

/// Class of each byte outside strings; 0: part of a number or a literal.
const KIND: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = QUOTE;
    table[b'{' as usize] = OPEN;
    table[b'[' as usize] = OPEN;
    table[b'}' as usize] = CLOSE;
    table[b']' as usize] = CLOSE;
    table[b',' as usize] = BETWEEN;
    table[b':' as usize] = BETWEEN;
    table[b' ' as usize] = BETWEEN;
    table[b'\t' as usize] = BETWEEN;
    table[b'\n' as usize] = BETWEEN;
    table[b'\r' as usize] = BETWEEN;
    table
};

/// Maximum number of bytes of a string before a vectorised search takes over.
const SHORT: usize = 64;

/// Returns the position after the string that begins at `from`.
fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let (b'"', rest) = bytes.get(from..)?.split_first()? else { return None };
    let plain = plain_length(rest.get(..SHORT).unwrap_or(rest));
    if rest.get(plain) == Some(&b'"') {
        return Some(from + plain + 2);
    }
    let mut at = from + 1 + plain;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        // The next character is escaped, whatever it is.
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_end::JsonEnd;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn value_ends_where_pieces_end(bytes in r#"[{}\[\]",:\\ a1]{1,60}"#) {
            let bytes = bytes.trim_start().as_bytes();
            prop_assert_eq!(value_end(bytes, 0), JsonEnd::default().feed(bytes), "{:?}", bytes);
        }
    }
}
