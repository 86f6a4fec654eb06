//! JSON by hand where it is hot: a string escaper that copies runs, and field types that take what
//! servers really send (a number for a string, `null` for a list) instead of failing the event.
//!
//! ```ignore
//! let mut out = Vec::new();
//! json::string(&mut out, "say \"hi\"");
//! assert_eq!(out, br#""say \"hi\"""#);
//! ```

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// `true` for the bytes that JSON wants escaped in a string.
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

/// Appends `text` as a JSON string, quotes included.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    escaped(out, text);
    out.push(b'"');
}

/// Appends the inside of a JSON string.
pub(crate) fn escaped(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    for (i, &b) in bytes.iter().enumerate() {
        if !ESCAPED[b as usize] {
            continue;
        }
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

/// The longest name of a tool that providers take.
const NAME_BYTES: usize = 64;

/// Appends the name of a tool that a model has called, as every provider takes it back: a model may
/// call what there is not, by any name, and OpenAI, Anthropic and Amazon refuse a conversation for
/// ever that has a name with other characters or a longer one. A tool that there is has such a name.
pub(crate) fn called(out: &mut Vec<u8>, name: &str) {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    out.push(b'"');
    let from = out.len();
    out.extend(name.chars().take(NAME_BYTES).map(|c| if fits(c) { c as u8 } else { b'_' }));
    if out.len() == from {
        out.push(b'_');
    }
    out.push(b'"');
}

/// Appends a value that serde writes; what cannot be written is `null`.
pub(crate) fn value(out: &mut Vec<u8>, v: &impl Serialize) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, v).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Appends the comma that stands before every item of a list but the first.
pub(crate) fn comma(out: &mut Vec<u8>) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
}

/// Appends `"name":`, after a comma where something stands before it.
pub(crate) fn key(out: &mut Vec<u8>, name: &str) {
    if !matches!(out.last(), Some(b'{' | b'[' | b',') | None) {
        out.push(b',');
    }
    string(out, name);
    out.push(b':');
}

/// Appends the arguments of a call for an API that wants an object, whatever the model wrote.
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

/// Appends the arguments of a call for an API that wants an object as a text: some servers read it,
/// and refuse the conversation for ever after where it is none.
pub(crate) fn arguments_text(out: &mut Vec<u8>, text: &str) {
    if is_object(text.trim()) {
        return string(out, text);
    }
    let mut object = Vec::new();
    arguments(&mut object, text);
    string(out, &String::from_utf8_lossy(&object));
}

/// Whether `text` is one JSON object, and a reader of its values takes all of them: brackets too
/// deep, a number out of range and half a surrogate pair are JSON by its grammar alone.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<Walked>(text).is_ok()
}

/// A value that is read and not kept.
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

/// A string where there is one: numbers and booleans as text, anything else as nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Str<'a>(pub(crate) Option<Cow<'a, str>>);

impl Str<'_> {
    /// The text, `""` where there is none.
    pub(crate) fn get(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }

    /// The text where it is not empty.
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

/// A count where there is one: a decimal string is read, a number beyond 64 bits saturates.
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

/// Reads one event, which is an object, with lone surrogate escapes replaced.
pub(crate) fn event<'a, T: Deserialize<'a>>(
    data: &'a str,
    repaired: &'a mut String,
) -> Result<T, serde_json::Error> {
    // A list would read as the fields in their order.
    if data.trim_start().starts_with('[') {
        return Err(serde_json::Error::custom("it is a list, not an object"));
    }
    // Before it is read: what is kept as it came would not be found faulty here, but later.
    match without_lone_surrogates(data) {
        Some(text) => {
            *repaired = text;
            serde_json::from_str(repaired)
        }
        None => serde_json::from_str(data),
    }
}

/// `\ud83d` without its other half becomes `\ufffd`; `None` where there is none. A server that cuts
/// a character in two across chunks costs that character, not the turn.
pub(crate) fn without_lone_surrogates(data: &str) -> Option<String> {
    fn unit(s: &str) -> Option<u16> {
        u16::from_str_radix(s.strip_prefix("\\u")?.get(..4)?, 16).ok()
    }
    // Most have no surrogates at all.
    let escape = |letter: &[u8]| memchr::memmem::find(data.as_bytes(), letter).is_some();
    if !escape(b"\\ud") && !escape(b"\\uD") {
        return None;
    }
    let mut out = String::new();
    let mut changed = false;
    let mut rest = data;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
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
    use serde_json::{Map, Value};

    #[test]
    fn strings_are_escaped_as_serde_does() {
        for text in ["", "plain", "q\"b\\s\n\r\t\u{1}\u{7f}é😀", "\u{0}"] {
            let mut out = Vec::new();
            string(&mut out, text);
            let back: String = serde_json::from_slice(&out).unwrap();
            assert_eq!(back, text);
        }
    }

    #[test]
    fn an_object_is_one_whose_values_can_be_read() {
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
    fn a_lone_surrogate_costs_a_character_only() {
        let mut repaired = String::new();
        let v: std::collections::BTreeMap<&str, String> =
            event(r#"{"1":"a\ud83dz","2":"\ud83d\ude00","3":"\\ud83d"}"#, &mut repaired).unwrap();
        assert_eq!(v.into_values().collect::<Vec<_>>(), ["a\u{fffd}z", "😀", "\\ud83d"]);
    }
}
