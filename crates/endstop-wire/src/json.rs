//! Hot-path JSON helpers: a string escaper that copies unescaped runs, and lenient field types that
//! accept what servers really send (a number for a string, `null` for a list).
//!
//! ```text
//! string(say "hi")  →  "say \"hi\""
//! Str from 5        →  "5"
//! Count from "12"   →  12
//! ```

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// `true` at the bytes that must be escaped in a JSON string.
const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 0x20 {
        table[i] = true;
        i += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// Appends `text` as a JSON string with quotes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    escaped(out, text);
    out.push(b'"');
}

/// Appends the inside of a JSON string, without quotes.
pub(crate) fn escaped(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    for (i, &b) in bytes.iter().enumerate() {
        if !ESCAPED[b as usize] {
            continue;
        }
        // Copy the whole run before this byte at once, because most text has no escapes.
        out.extend_from_slice(&bytes[from..i]);
        from = i + 1;
        match b {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(b >> 4)],
                HEX[usize::from(b & 15)],
            ]),
        }
    }
    out.extend_from_slice(&bytes[from..]);
}

/// `true` if the text is the inside of a JSON string without escapes.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.bytes().any(|byte| ESCAPED[usize::from(byte)])
}

/// Longest tool name that all providers accept, in bytes.
const NAME_BYTES: usize = 64;

/// Appends the name of a tool that the model called, restricted to what every provider accepts. A
/// model may call a tool that does not exist under any name, and OpenAI, Anthropic and Amazon
/// reject every later request of a conversation that contains a longer name or one with other
/// characters. The names of existing tools pass unchanged.
pub(crate) fn called(out: &mut Vec<u8>, name: &str) {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    out.push(b'"');
    let from = out.len();
    out.extend(name.chars().take(NAME_BYTES).map(|c| if fits(c) { c as u8 } else { b'_' }));
    // Providers reject an empty name too.
    if out.len() == from {
        out.push(b'_');
    }
    out.push(b'"');
}

/// Appends a value through serde. A value that cannot be serialised becomes `null`.
pub(crate) fn value(out: &mut Vec<u8>, v: &impl Serialize) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, v).is_err() {
        // Remove the half-written value, so that the body stays valid JSON.
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Parses the value, or returns `None` if it has another shape.
pub(crate) fn lenient<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// `true` if there is an error, and it states something. Some servers send an object whose members are all empty with
/// each event.
pub(crate) fn is_error(error: Option<&RawValue>) -> bool {
    error.filter(|raw| raw.get() != "null").is_some_and(|raw| {
        // An error that is too deep to be parsed is one.
        serde_json::from_str(raw.get()).map_or(true, |error| states_error(&error))
    })
}

/// `true` if an error states something.
pub(crate) fn states_error(error: &Value) -> bool {
    match error {
        Value::Null => false,
        Value::Bool(is_error) => *is_error,
        Value::Number(code) => code.as_f64() != Some(0.0),
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(list) => list.iter().any(states_error),
        Value::Object(members) => members.values().any(states_error),
    }
}

/// Returns the content of a JSON string that was parsed with its quotes, or `None` if it is not one.
/// It is copied only if it has escapes, and then once. A control character is not noticed.
///
/// ```
/// assert_eq!(endstop_wire::unescaped(r#""a\tb""#).as_deref(), Some("a\tb"));
/// assert_eq!(endstop_wire::unescaped("4"), None);
/// ```
pub fn unescaped(string: &str) -> Option<Cow<'_, str>> {
    let content = string.strip_prefix('"')?.strip_suffix('"')?;
    let Some(first) = memchr::memchr(b'\\', content.as_bytes()) else {
        return Some(Cow::Borrowed(content));
    };
    let mut out = String::with_capacity(content.len());
    out.push_str(&content[..first]);
    let mut rest = &content[first..];
    // Each pass begins at a backslash.
    while let Some(escape) = rest.as_bytes().get(1) {
        out.push(match escape {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => char::from(*escape),
            // Rare in what models write, so that this need not be fast.
            _ => return serde_json::from_str(string).ok().map(Cow::Owned),
        });
        rest = &rest[2..];
        let plain = memchr::memchr(b'\\', rest.as_bytes()).unwrap_or(rest.len());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
    }
    Some(Cow::Owned(out))
}

/// `true` if an object has a member that is a number other than zero.
pub(crate) fn has_counts(raw: &RawValue) -> bool {
    let members = lenient::<std::collections::HashMap<Cow<'_, str>, Count>>(raw);
    members.is_some_and(|members| members.values().any(|count| count.0.is_some_and(|n| n > 0)))
}

/// Appends a comma, unless the list has just been opened.
pub(crate) fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
}

/// Appends `"name":`, after a comma if something precedes it.
pub(crate) fn key(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{' | b'[' | b',') | None) {
        out.push(b',');
    }
    string(out, name);
    out.push(b':');
}

/// Appends the arguments of a call for an API that requires an object. Text that is not an object
/// is wrapped as `{"_raw": …}`.
pub(crate) fn arguments(out: &mut Vec<u8>, text: &str) {
    let object = text.trim();
    if object.is_empty() {
        out.extend_from_slice(b"{}");
    } else if is_object(object) {
        out.extend_from_slice(object.as_bytes());
    } else {
        out.extend_from_slice(b"{\"_raw\":");
        string(out, text);
        out.push(b'}');
    }
}

/// Appends the arguments of a call for an API that requires an object serialised as a string. Some
/// servers parse that string and reject every later request of the conversation if it is not an
/// object.
pub(crate) fn arguments_text(out: &mut Vec<u8>, text: &str) {
    if is_object(text.trim()) {
        return string(out, text);
    }
    let mut object = Vec::new();
    arguments(&mut object, text);
    // `arguments` only writes UTF-8, so the lossy conversion changes nothing.
    string(out, &String::from_utf8_lossy(&object));
}

/// `true` if `text` is one JSON object whose values can all be read. Brackets that are too deep, a
/// number out of range and half a surrogate pair are valid by JSON's grammar but fail here.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<Walked>(text).is_ok()
}

/// A value that is parsed and discarded.
struct Walked;

struct WalkedVisitor;

impl<'de> Visitor<'de> for WalkedVisitor {
    type Value = Walked;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_str<E>(self, _: &str) -> Result<Walked, E> {
        Ok(Walked)
    }
    fn visit_unit<E>(self) -> Result<Walked, E> {
        Ok(Walked)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Walked, E> {
        Ok(Walked)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Walked, E> {
        Ok(Walked)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Walked, E> {
        Ok(Walked)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Walked, E> {
        Ok(Walked)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Walked, A::Error> {
        while seq.next_element::<Walked>()?.is_some() {}
        Ok(Walked)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Walked, A::Error> {
        while map.next_entry::<Walked, Walked>()?.is_some() {}
        Ok(Walked)
    }
}

impl<'de> Deserialize<'de> for Walked {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Walked, D::Error> {
        d.deserialize_any(WalkedVisitor)
    }
}

/// A lenient string. Numbers and booleans become text, and any other value becomes `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Str<'a>(pub(crate) Option<Cow<'a, str>>);

impl Str<'_> {
    /// Returns the text, or `""` if there is none.
    pub(crate) fn get(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }

    /// Returns the text, unless it is empty or missing.
    pub(crate) fn filled(&self) -> Option<&str> {
        self.0.as_deref().filter(|s| !s.is_empty())
    }
}

struct StrVisitor;

impl<'de> Visitor<'de> for StrVisitor {
    type Value = Str<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Borrowed(v))))
    }
    fn visit_str<E>(self, v: &str) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Owned(v.to_owned()))))
    }
    fn visit_string<E>(self, v: String) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Owned(v))))
    }
    fn visit_unit<E>(self) -> Result<Str<'de>, E> {
        Ok(Str(None))
    }
    fn visit_bool<E>(self, v: bool) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Borrowed(if v { "true" } else { "false" }))))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Owned(v.to_string()))))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Owned(v.to_string()))))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Owned(v.to_string()))))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Str<'de>, A::Error> {
        // Consume the whole value, because the parser continues right after it.
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Str(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Str<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Str(None))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Str<'a>, D::Error> {
        d.deserialize_any(StrVisitor)
    }
}

/// A lenient count. A decimal string is parsed, and a number beyond 64 bits saturates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count(pub(crate) Option<u64>);

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_u64<E>(self, v: u64) -> Result<Count, E> {
        Ok(Count(Some(v)))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Count, E> {
        Ok(Count(u64::try_from(v).ok()))
    }
    fn visit_f64<E>(self, v: f64) -> Result<Count, E> {
        // `as` saturates at the largest `u64`.
        Ok(Count((v >= 0.0).then_some(v as u64)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Count, E> {
        Ok(Count(v.trim().parse().ok()))
    }
    fn visit_unit<E>(self) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
        Ok(Count(None))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Count, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Count(None))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Count, D::Error> {
        d.deserialize_any(CountVisitor)
    }
}

/// Parses one event, which must be an object. Lone surrogate escapes are replaced first.
pub(crate) fn event<'a, T: Deserialize<'a>>(
    data: &'a str,
    repaired: &'a mut String,
) -> Result<T, serde_json::Error> {
    serde_json::from_str(object(data, repaired)?)
}

/// Returns the text of one event with its lone surrogate escapes replaced, unless it is a list.
pub(crate) fn object<'a>(
    data: &'a str,
    repaired: &'a mut String,
) -> Result<&'a str, serde_json::Error> {
    // serde would read a list as the struct's fields in their order.
    if data.trim_start().starts_with('[') {
        return Err(serde_json::Error::custom("expected an object, found a list"));
    }
    // Repair before parsing, because raw values are stored unparsed and would fail only later.
    Ok(match without_lone_surrogates(data) {
        Some(text) => {
            *repaired = text;
            repaired
        }
        None => data,
    })
}

/// Returns the text with every lone surrogate escape, such as `\ud83d` without its other half,
/// replaced by `\ufffd`, or `None` if there is none. A server that splits a character across chunks
/// then costs that character and not the turn.
pub fn without_lone_surrogates(data: &str) -> Option<String> {
    fn unit(s: &str) -> Option<u16> {
        u16::from_str_radix(s.strip_prefix("\\u")?.get(..4)?, 16).ok()
    }
    // Fast path: most events contain no escapes, or no surrogates among them.
    let bytes = data.as_bytes();
    let surrogate = |at: usize| matches!(bytes.get(at + 1..at + 3), Some(b"ud" | b"uD"));
    if !memchr::memchr_iter(b'\\', bytes).any(surrogate) {
        return None;
    }
    let mut out = String::new();
    let mut changed = false;
    let mut rest = data;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // A valid pair has 12 bytes and passes unchanged.
        let take = match unit(rest) {
            Some(0xd800..=0xdbff)
                if matches!(rest.get(6..).and_then(unit), Some(0xdc00..=0xdfff)) =>
            {
                12
            }
            Some(0xd800..=0xdfff) => {
                out.push_str("\\ufffd");
                changed = true;
                rest = &rest[6..];
                continue;
            }
            Some(_) => 6,
            // Any other escape: skip the escaped character too, so that `\\ud83d` is not mistaken
            // for one.
            None => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&rest[..take]);
        rest = &rest[take..];
    }
    out.push_str(rest);
    changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Map;

    #[test]
    fn escaped_string_parses_back() {
        for text in ["", "plain", "q\"b\\s\n\r\t\u{1}\u{7f}é😀", "\u{0}"] {
            let mut out = Vec::new();
            string(&mut out, text);
            let back: String = serde_json::from_slice(&out).unwrap();
            assert_eq!(back, text);
        }
    }

    proptest! {
        #[test]
        fn unescaped_equals_the_parser(
            parts in proptest::collection::vec(
                prop_oneof![
                    any::<char>().prop_map(|c| serde_json::to_string(&c.to_string()).unwrap()),
                    r#"\\(["\\/bfnrt]|u00[0-9a-f]{2}|ud83d|ude00|u20)"#.prop_map(|text| format!("\"{text}\"")),
                ],
                0..20,
            ),
        ) {
            let inside: String = parts.iter().map(|part| &part[1..part.len() - 1]).collect();
            let text = format!("\"{inside}\"");
            let parsed = serde_json::from_str::<String>(&text).ok();
            prop_assert_eq!(unescaped(&text).map(Cow::into_owned), parsed);
        }
    }

    #[test]
    fn unescaped_needs_quotes() {
        assert_eq!(unescaped("\"a\""), Some(Cow::Borrowed("a")));
        assert!(["", "\"", "a", "\"a", "1", "{}"].iter().all(|text| unescaped(text).is_none()));
    }

    #[test]
    fn unreadable_values_are_not_an_object() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        for (text, want) in [
            (r#" {"a":[1,-2.5,"x",null,true,{}]} "#, true),
            (r#"{"a":1e999}"#, false),
            (r#"{"a":"\ud83d"}"#, false),
            (r#"{"\ud83d":1}"#, false),
            (&deep, false),
            (r#"{"a":1"#, false),
            ("[]", false),
            ("", false),
        ] {
            assert_eq!(is_object(text), want, "{text}");
            assert_eq!(serde_json::from_str::<Map<String, Value>>(text).is_ok(), want, "{text}");
        }
    }

    #[test]
    fn lone_surrogate_costs_one_character() {
        let mut repaired = String::new();
        let v: std::collections::BTreeMap<&str, String> =
            event(r#"{"1":"a\ud83dz","2":"\ud83d\ude00","3":"\\ud83d"}"#, &mut repaired).unwrap();
        assert_eq!(v.into_values().collect::<Vec<_>>(), ["a\u{fffd}z", "😀", "\\ud83d"]);
    }
}
