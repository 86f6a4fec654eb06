//! Parses JSON text only if the parsed values fit in memory.
//!
//! A megabyte of `[[],[],[]` parses to 200 megabytes of values, so a limit on the length of the
//! text does not limit memory. [`weight`] estimates the memory without parsing, and [`from_slice`]
//! and [`from_str`] reject a text whose weight exceeds [`MOST`].
//!
//! ```
//! use endstop_core::bounded_json::{from_str, weight};
//! assert!(weight(br#"{"a": [1, 2]}"#) < 4096);
//! let bomb = format!("[{}0]", "[],".repeat(2_000_000));
//! assert!(from_str::<serde_json::Value>(&bomb).unwrap_err().to_string().contains("too many values"));
//! ```

use memchr::memchr2;
use serde::Deserialize;
use serde::de::Error as _;
use std::fmt;

/// Maximum weight of a text that is parsed, in bytes of parsed values.
pub const MOST: u64 = 512 << 20;

/// Weight of a list element or object member: its slot in a vector that doubles when it grows.
const ITEM: u64 = 144;
/// Weight of a list: its first allocation.
const LIST: u64 = 320;
/// Weight of an object: its first allocation, or that of the record that a typed reader makes of
/// it.
const OBJECT: u64 = 640;
/// Additional weight of an object member over a list element: the hash and the key.
const MEMBER: u64 = 120;
/// Weight of a string, in addition to its bytes.
const STRING: u64 = 48;
/// Maximum weight of one byte of text: `{` in `{},`, rounded up.
const DENSEST: u64 = 272;
/// Maximum depth of JSON within strings that is followed: `"{\"arguments\": \"{…}\"}"` has two
/// levels.
const NESTED: u32 = 3;

/// Texts up to this weight are parsed without further checks.
const LIGHT: u64 = 16 << 20;

/// The error for a text whose values would take too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooHeavy {
    /// Estimated memory of the values, in bytes.
    pub weight: u64,
    /// The limit; `None`: the allocator cannot provide the memory.
    pub most: Option<u64>,
}

impl fmt::Display for TooHeavy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooHeavy { weight, most } = self;
        write!(f, "too many values: they need {weight} bytes in memory")?;
        match most {
            Some(most) => write!(f, ", and at most {most} are allowed"),
            None => write!(f, ", more than is available"),
        }
    }
}

impl std::error::Error for TooHeavy {}

/// Estimates the memory of the values in a JSON text, in bytes.
///
/// JSON within strings counts as well, because readers parse the arguments of tool calls. The text
/// need not be valid JSON. The estimate is an upper bound for [`serde_json::Value`], and close to
/// it for texts with many small values.
pub fn weight(text: &[u8]) -> u64 {
    nested_weight(text, NESTED)
}

/// Returns an error if the values in `text` would take more than `most` bytes, or more memory than
/// is available.
///
/// A failed allocation aborts the process, so the memory of a heavy text is requested beforehand.
/// It is reserved, released, and never written to.
///
/// # Errors
///
/// The estimated memory, and the limit.
pub fn check(text: &[u8], most: u64) -> Result<(), TooHeavy> {
    // Most texts are too short to be heavy, whatever they contain.
    if (text.len() as u64).saturating_mul(DENSEST) <= most.min(LIGHT) {
        return Ok(());
    }
    // A count of bytes is much faster than the estimate, and enough for almost all of the others.
    if upper_bound(text) <= most.min(LIGHT) {
        return Ok(());
    }
    let weight = weight(text);
    if weight > most {
        return Err(TooHeavy { weight, most: Some(most) });
    }
    let bytes = usize::try_from(weight).unwrap_or(usize::MAX);
    if weight > LIGHT && Vec::<u8>::new().try_reserve_exact(bytes).is_err() {
        return Err(TooHeavy { weight, most: None });
    }
    Ok(())
}

/// Like [`serde_json::from_slice`], within [`MOST`].
///
/// # Errors
///
/// The same as [`serde_json::from_slice`], or [`TooHeavy`] as a custom error.
pub fn from_slice<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, serde_json::Error> {
    check(text, MOST).map_err(serde_json::Error::custom)?;
    serde_json::from_slice(text)
}

/// Like [`serde_json::from_str`], within [`MOST`].
///
/// # Errors
///
/// The same as [`serde_json::from_str`], or [`TooHeavy`] as a custom error.
pub fn from_str<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    check(text.as_bytes(), MOST).map_err(serde_json::Error::custom)?;
    serde_json::from_str(text)
}

/// Returns an upper bound of [`weight`], whatever the bytes mean: each of them may be in a string that is
/// itself JSON, and each backslash may be an escaped bracket.
#[expect(clippy::needless_bitwise_bool, reason = "a lazy operator is a branch")]
fn upper_bound(text: &[u8]) -> u64 {
    // The bytes of a string weigh one each, at each level of JSON within strings. A string at the end of a
    // text that was cut has one quote instead of two.
    let mut bound = 2 * ITEM + (u64::from(NESTED) + 1) * text.len() as u64;
    // Counters of one byte cannot overflow in a block of 255, and the compiler makes vector
    // instructions of the loop.
    for block in text.chunks(255) {
        let (mut items, mut lists, mut objects) = (0_u8, 0_u8, 0_u8);
        for byte in block {
            items += u8::from((*byte == b',') | (*byte == b':') | (*byte == b'"'));
            lists += u8::from(*byte == b'[');
            objects += u8::from((*byte == b'{') | (*byte == b'\\'));
        }
        bound += u64::from(items) * ITEM + u64::from(lists) * LIST + u64::from(objects) * OBJECT;
    }
    bound
}

fn nested_weight(text: &[u8], levels: u32) -> u64 {
    let mut weight = ITEM;
    let mut i = 0;
    while let Some(&byte) = text.get(i) {
        i += 1;
        // Numbers and literals need no case: each is counted by the comma or bracket before it.
        weight += match byte {
            b',' => ITEM,
            b'[' => LIST,
            b'{' => OBJECT,
            b':' => MEMBER,
            b'"' => {
                let (end, escaped) = string_end(text, i);
                let inner = &text[i..end];
                i = end + 1;
                let bytes = STRING + inner.len() as u64;
                bytes + if levels > 0 { json_in_string(inner, escaped, levels - 1) } else { 0 }
            }
            _ => 0,
        };
    }
    weight
}

/// Returns the end of the string that begins at `from`, and `true` if it contains escapes.
fn string_end(text: &[u8], from: usize) -> (usize, bool) {
    let (mut at, mut escaped) = (from, false);
    loop {
        match memchr2(b'"', b'\\', &text[at.min(text.len())..]) {
            None => return (text.len(), escaped),
            Some(n) if text[at + n] == b'"' => return (at + n, escaped),
            Some(n) => {
                // Skip the escaped character too: it may be a quote.
                escaped = true;
                at += n + 2;
            }
        }
    }
}

/// Returns the weight of the JSON in a string, if the string looks like a list or an object.
fn json_in_string(inner: &[u8], escaped: bool, levels: u32) -> u64 {
    let mut start = inner;
    // Skip leading white space, plain or escaped.
    loop {
        start = match start {
            [b' ', rest @ ..] | [b'\\', b'n' | b'r' | b't', rest @ ..] => rest,
            _ => break,
        };
    }
    match start.first() {
        Some(b'[' | b'{') if !escaped => nested_weight(inner, levels),
        Some(b'[' | b'{') => nested_weight(&unescaped(inner), levels),
        // The bracket itself may be escaped, as `\u005b`.
        Some(b'\\') if matches!(start.get(1), Some(b'u')) => {
            nested_weight(&unescaped(inner), levels)
        }
        _ => 0,
    }
}

/// Removes one level of escapes from a string. Characters other than ASCII become `?`, because only
/// brackets, quotes and commas have weight.
fn unescaped(inner: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let Some((kind, after)) = after.split_first() else { break };
        rest = after;
        match kind {
            b'u' => {
                let digits = after.get(..4).and_then(|hex| std::str::from_utf8(hex).ok());
                let code = digits.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.push(code.unwrap_or(b'?'));
                rest = after.get(4..).unwrap_or_default();
            }
            b'n' | b'r' | b't' | b'b' | b'f' => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn upper_bound_covers_cut_strings() {
        for text in ["\"{", "\"[", "[\"{\\\"{", "\""] {
            assert!(upper_bound(text.as_bytes()) >= weight(text.as_bytes()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn upper_bound_is_above_weight(
            text in r#"[\[\]{},:"\\ubn05a ]{0,300}"#, wraps in 0_u32..4, keys in 0_u32..40,
        ) {
            let dense = format!("[{}]", "{\"\":[],\"\\u005b,,{\":\"[,[\"},".repeat(keys as usize));
            for text in [text, dense] {
                // Also as JSON within strings, whose quotes and backslashes are escaped.
                let text = (0..wraps).fold(text, |inner, _| json!([inner]).to_string());
                prop_assert!(upper_bound(text.as_bytes()) >= weight(text.as_bytes()), "{}", text);
            }
        }
    }

    /// Memory of a value, counted on the value itself. Includes the spare capacity of vectors and
    /// tables, but not the allocator's overhead.
    fn memory(value: &Value) -> u64 {
        match value {
            Value::String(text) => text.len() as u64,
            Value::Array(list) => {
                list.capacity() as u64 * size_of::<Value>() as u64
                    + list.iter().map(memory).sum::<u64>()
            }
            Value::Object(map) => {
                // An entry holds a hash, a key and a value; the table of indices adds 9 bytes.
                let entry = (size_of::<Value>() + size_of::<String>() + 8 + 9) as u64;
                let entries = (map.len() as u64 * 8 / 7).next_power_of_two().max(4) * entry;
                let members = map.iter().map(|(key, value)| key.len() as u64 + memory(value));
                (if map.is_empty() { 0 } else { entries }) + members.sum::<u64>()
            }
            _ => 0,
        }
    }

    #[test]
    fn weight_bounds_memory_of_dense_values() {
        for unit in [
            "0",
            "[]",
            "{}",
            "[0]",
            "[[]]",
            "{\"\":0}",
            "{\"a\":{}}",
            "\"\"",
            "\"x\"",
            "true",
            "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}",
            "\"\\u0041\"",
            "1.5e3",
            "[[[[[]]]]]",
            "{\"\":[]}",
        ] {
            let text = format!("[{}{unit}]", format!("{unit},").repeat(9_000));
            let value: Value = serde_json::from_str(&text).unwrap();
            let (weight, memory) = (weight(text.as_bytes()), memory(&value));
            assert!(weight >= memory, "{unit}: {weight} for {memory}");
            assert!(
                weight <= memory.max(text.len() as u64 * 40) * 12,
                "{unit}: {weight} for {memory}"
            );
            assert!(weight <= text.len() as u64 * DENSEST, "{unit}");
        }
    }

    #[test]
    fn members_of_one_object_are_bounded() {
        let members: Vec<String> = (0..9_000).map(|n| format!("\"{n}\":0")).collect();
        let text = format!("{{{}}}", members.join(","));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(weight(text.as_bytes()) >= memory(&value));
    }

    #[test]
    fn json_in_strings_counts_as_parsed() {
        let inner = format!("[{}[]]", "[],".repeat(10_000));
        let plain = weight(inner.as_bytes());
        let once = json!({ "arguments": inner }).to_string();
        assert!(weight(once.as_bytes()) > plain);
        let twice = json!({ "body": once }).to_string();
        assert!(weight(twice.as_bytes()) > plain);
        let escaped = format!("{{\"a\": \"\\n \\u005b{}0]\"}}", "[],".repeat(10_000));
        assert!(weight(escaped.as_bytes()) > plain);
        // Code in a string is text.
        let code = json!({ "text": "f(a, [b], {c: d}), ".repeat(10_000) }).to_string();
        assert!(weight(code.as_bytes()) < 2 * code.len() as u64);
    }

    #[test]
    fn heavy_text_is_refused_before_parsing() {
        let bomb = format!("[{}0]", "0,".repeat(4_000_000));
        let error = from_slice::<Value>(bomb.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("too many values") && error.contains("536870912"), "{error}");
        assert!(check(bomb.as_bytes(), 1 << 20).is_err());
        let beyond_any_machine = TooHeavy { weight: u64::MAX, most: None };
        assert!(beyond_any_machine.to_string().contains("more than is available"));
        let long = json!({ "text": "x".repeat(4_000_000) }).to_string();
        assert!(from_str::<Value>(&long).is_ok());
    }

    #[test]
    fn broken_text_has_a_weight() {
        for text in ["", "\"", "\"\\", "\"\\u", "\"[\\u00", "[{\"a", "\"{\\"] {
            assert!(weight(text.as_bytes()) > 0, "{text}");
        }
    }
}
