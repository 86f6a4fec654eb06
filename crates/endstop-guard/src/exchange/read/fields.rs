//! The members of a JSON object, each with its place in the text.

use endstop_wire::stream::members::members;
use endstop_wire::unescaped;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// The most members that are read. No request has a hundred.
const MOST: usize = 4096;

/// The members in their order, also those with the same name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Fields<'a> {
    /// Reads the members of an object. The insides of strings, lists and objects are not checked, because
    /// a parser would take longer than the rest of a request: a provider refuses a body that is not valid.
    pub(crate) fn of(text: &'a str) -> Result<Fields<'a>, serde_json::Error> {
        // The parser names the place of the error.
        Fields::split(text).map_or_else(|| serde_json::from_str(text), Ok)
    }

    fn split(text: &'a str) -> Option<Fields<'a>> {
        let mut all = Vec::with_capacity(16);
        let mut fits = true;
        let length = members(text.as_bytes(), |name, value| {
            let (name, value) = (name_of(&text[name]), &text[value]);
            // Any other value is short.
            let is_valid =
                value.starts_with(['"', '[', '{']) || parsed::<IgnoredAny>(value).is_some();
            fits &= is_valid && all.len() < MOST;
            match name {
                Some(name) if fits => all.push((name, value)),
                _ => fits = false,
            }
        })?;
        (fits && text[length..].trim_ascii().is_empty()).then_some(Fields(all))
    }

    /// Returns a member's text. Of members with the same name the last counts, as in most parsers.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// Iterates over the texts of all members with one of these names.
    pub(crate) fn all<'s>(&'s self, names: &'s [&str]) -> impl Iterator<Item = &'a str> + 's {
        let named = self.0.iter().filter(|(key, _)| names.contains(&&**key));
        named.map(|(_, value)| *value)
    }

    /// `true` if there is such a member and it is not `null`.
    pub(super) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|text| text != "null")
    }

    /// The names of the members, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    pub(super) fn string(&self, name: &str) -> Option<String> {
        parsed(self.raw(name)?)
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        parsed(self.raw(name)?)
    }

    pub(super) fn value(&self, name: &str) -> Value {
        self.raw(name).map_or(Value::Null, any)
    }

    /// Returns the members of an object in this one, or none.
    pub(super) fn object(&self, name: &str) -> Fields<'a> {
        self.raw(name).and_then(|text| Fields::of(text).ok()).unwrap_or_default()
    }

    /// Returns the texts of the elements of a list, or none.
    pub(super) fn list(&self, name: &str) -> Vec<&'a str> {
        self.raw(name).map(elements_of).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(Cow<'de, str>, &'de str)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    // Every look-up walks this list, so its length bounds the work.
                    if members.len() == MOST {
                        return Err(A::Error::custom("the object has more than 4096 members"));
                    }
                    members.push((Cow::Owned(name), value.get()));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Members).map(Fields)
    }
}

/// Returns the name in a string with quotes, copied only if it has escapes.
fn name_of(string: &str) -> Option<Cow<'_, str>> {
    let name = &string[1..string.len() - 1];
    let has_escapes = memchr::memchr(b'\\', name.as_bytes()).is_some();
    if has_escapes { parsed::<String>(string).map(Cow::Owned) } else { Some(Cow::Borrowed(name)) }
}

/// Splits the text of a list into the texts of its elements. Another value has none. The text must be
/// a part of valid JSON; parsing it a second time would take longer than the rest of a request.
pub(super) fn elements_of(text: &str) -> Vec<&str> {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let Some(inside) = inside else { return Vec::new() };
    let mut elements = Vec::new();
    let (mut depth, mut from, mut at) = (0_usize, 0, 0);
    // All bytes that decide are ASCII, so each slice begins and ends between characters.
    while let Some(byte) = inside.as_bytes().get(at) {
        match byte {
            b'"' => at = string_end(inside, at + 1),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                elements.push(inside[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    let last = inside[from..].trim();
    if !last.is_empty() {
        elements.push(last);
    }
    elements
}

/// Returns the position of the quote that ends the string whose content begins at `from`.
fn string_end(text: &str, from: usize) -> usize {
    let mut at = from;
    // The standard library's search takes fifty times as long in the text of a message.
    while let Some(found) = memchr::memchr(b'"', text.as_bytes().get(at..).unwrap_or_default()) {
        let end = at + found;
        // An odd number of backslashes before a quote escapes it.
        let escapes = text.as_bytes()[at..end].iter().rev().take_while(|byte| **byte == b'\\');
        if escapes.count() % 2 == 0 {
            return end;
        }
        at = end + 1;
    }
    text.len()
}

/// Parses a value of this type, or returns `None` if the text has another shape.
pub(super) fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Parses any value. A client that cuts a string in the middle of a character sends half a surrogate
/// pair, which is replaced; text that still does not parse is `null`.
pub(super) fn any(text: &str) -> Value {
    long_value(text, 0, string)
        .or_else(|| parsed(text))
        .or_else(|| {
            let repaired = endstop_wire::without_lone_surrogates(text)?;
            serde_json::from_str(&repaired).ok()
        })
        .unwrap_or_default()
}

/// Parses any value, but keeps only the beginnings of long strings, of about a kilobyte and at least 128 bytes after
/// space at the front. It does not notice an error in what it leaves out.
pub(super) fn beginnings(text: &str) -> Value {
    long_value(text, 0, beginning).unwrap_or_else(|| any(text))
}

/// Length in bytes from which a value is split before it is parsed.
const LONG: usize = 1024;
/// Depth to which values are split. Each level walks through the text again.
const DEEPEST: usize = 4;

/// Parses a value of which the most are long strings: these are copied by a vectorised search for
/// escapes, which takes a fifth of the time of the parser. The result is that of the parser; `None` if
/// that must read all of it. `string` reads the strings.
fn long_value(text: &str, depth: usize, string: fn(&str) -> Option<String>) -> Option<Value> {
    if text.len() < LONG || depth == DEEPEST {
        return parsed(text);
    }
    let within = |text| long_value(text, depth + 1, string);
    match text.as_bytes()[0] {
        b'"' => string(text).map(Value::from),
        b'{' => {
            let mut all = Map::new();
            for (name, value) in Fields::split(text)?.0 {
                all.insert(is_plain(&name).then(|| name.into_owned())?, within(value)?);
            }
            Some(Value::Object(all))
        }
        b'[' => {
            // A parser refuses what seems to be an empty element at the end.
            let is_valid = !text.strip_suffix(']')?.trim_end().ends_with(',');
            is_valid
                .then(|| elements_of(text))?
                .into_iter()
                .map(within)
                .collect::<Option<_>>()
                .map(Value::Array)
        }
        _ => parsed(text),
    }
}

/// Returns the content of a string, or `None` if it is not valid.
fn string(text: &str) -> Option<String> {
    let content = is_plain(text).then(|| unescaped(text))??;
    // Only the string as a whole ends with a quote that is not escaped.
    (string_end(text, 1) + 1 == text.len()).then(|| content.into_owned())
}

/// Returns the beginning of a long string, or `None` if that is not valid.
fn beginning(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut end = 1;
    // An escape is kept whole.
    while let Some(at) = bytes.get(end..=LONG).and_then(|rest| memchr::memchr(b'\\', rest)) {
        end += at + if bytes.get(end + at + 1) == Some(&b'u') { 6 } else { 2 };
    }
    end = end.max(LONG + 1);
    // Also with the second half of a pair.
    let is_first = |escape: &[u8]| {
        let [b'\\', b'u', b'd' | b'D', digit, ..] = escape else { return false };
        matches!(digit, b'8' | b'9' | b'a' | b'A' | b'b' | b'B')
    };
    if bytes.get(end - 6..end).is_some_and(is_first) {
        end += 6;
    }
    if end >= text.len() {
        return self::string(text);
    }
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let begun = self::string(&format!("{}\"", &text[..end]))?;
    // A prompt may begin after the space.
    if begun.trim_start().len() < LONG / 8 { self::string(text) } else { Some(begun) }
}

/// `true` if the text has no control characters, which JSON does not allow in strings.
fn is_plain(text: &str) -> bool {
    // Without a branch, so that it is vectorised.
    text.bytes().fold(u8::MAX, u8::min) >= b' '
}

/// Parses the fields of a value, or returns the default if it has another shape.
pub(super) fn any_of<T: Default + for<'a> Deserialize<'a>>(text: &str) -> T {
    parsed(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Fields, LONG, elements_of, long_value, parsed};
    use proptest::prelude::*;
    use proptest::sample::Index;
    use serde_json::Value;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[\\\\\"\\[\\]{},a\u{e9} \n]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a\"\\\\]{0,3}", inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn elements_equal_those_of_a_parser(
            list in proptest::collection::vec(value(), 0..5), pretty in any::<bool>()
        ) {
            let text = if pretty {
                serde_json::to_string_pretty(&list).unwrap()
            } else {
                serde_json::to_string(&list).unwrap()
            };
            let elements: Vec<Value> =
                elements_of(&text).into_iter().map(|one| parsed(one).unwrap()).collect();
            prop_assert_eq!(elements, list);
        }
    }

    proptest! {
        #[test]
        fn members_equal_those_of_a_parser(
            object in proptest::collection::btree_map("[a\"\\\\\u{e9}]{0,3}", value(), 0..5), pretty in any::<bool>()
        ) {
            let text = if pretty {
                serde_json::to_string_pretty(&object).unwrap()
            } else {
                serde_json::to_string(&object).unwrap()
            };
            let fields = Fields::split(&text).unwrap();
            let parsed: Fields<'_> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&fields.0, &parsed.0);
            let more = format!("{text} 1");
            prop_assert!(Fields::of(&more).is_err());
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[{}\\[\\]\",:\\\\ a1\u{e9}]{0,30}") {
            if let Ok(parsed) = serde_json::from_str::<Fields<'_>>(&text) {
                prop_assert_eq!(Fields::of(&text).unwrap().0, parsed.0);
            } else {
                let _ = Fields::of(&text);
            }
        }
    }

    proptest! {
        #[test]
        fn long_value_equals_that_of_a_parser(
            value in value(), filler in "[x\u{e9}\"\\\\\n]{0,20}", changes in changes(), pretty in any::<bool>(),
        ) {
            let filler = filler.repeat(LONG);
            let value = serde_json::json!({"role": filler, "content": [value, filler, {"text": filler}]});
            let text = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                serde_json::to_string(&value).unwrap()
            };
            prop_assert_eq!(super::any(&text), value.clone());
            prop_assert!(filler.is_empty() || long_value(&text, 0, super::string).is_some());
            prop_assert!(is_beginning(&super::beginnings(&text), &value), "{}", text);
            // And if something is wrong with the text.
            let mut text: Vec<char> = text.chars().collect();
            for (at, new) in changes {
                let at = at.index(text.len());
                let end = (at + 1).min(text.len());
                text.splice(at..end, new.chars());
            }
            let text: String = text.into_iter().collect();
            if let Some(value) = long_value(&text, 0, super::string) {
                prop_assert_eq!(Some(value), parsed::<Value>(&text), "{}", text);
            }
        }
    }

    /// `true` if the first value equals the other one but for the ends of strings longer than a kilobyte.
    fn is_beginning(value: &Value, whole: &Value) -> bool {
        match (value, whole) {
            (Value::String(value), Value::String(whole)) => {
                value == whole || whole.starts_with(value) && value.trim_start().len() >= LONG / 8
            }
            (Value::Array(values), Value::Array(whole)) => {
                values.len() == whole.len()
                    && values.iter().zip(whole).all(|(value, whole)| is_beginning(value, whole))
            }
            (Value::Object(values), Value::Object(whole)) => {
                values.len() == whole.len()
                    && values.iter().zip(whole).all(|((name, value), (other, whole))| {
                        name == other && is_beginning(value, whole)
                    })
            }
            (value, whole) => value == whole,
        }
    }

    #[test]
    fn beginning_ends_after_an_escape_and_a_character() {
        for (part, unit) in [
            ("x", "x"),
            ("\u{e9}", "\u{e9}"),
            ("\u{1f600}", "\u{1f600}"),
            ("\\/", "/"),
            ("\\\\", "\\"),
            ("\\\"", "\""),
            ("\\u00e9", "\u{e9}"),
            ("\\ud83d\\ude00", "\u{1f600}"),
        ] {
            // Each place within the part.
            for before in 0..12 {
                let before = "y".repeat(before);
                let text = format!("[\"{before}{}\"]", part.repeat(LONG));
                let begun = long_value(&text, 0, super::beginning).unwrap();
                let begun = begun[0].as_str().unwrap();
                let units = begun.strip_prefix(&before).unwrap();
                assert_eq!(units.replace(unit, ""), "", "{part}");
                let kept = before.len() + units.len() / unit.len() * part.len();
                assert!((LONG - 4..LONG + 12).contains(&kept), "{part}: {kept}");
            }
        }
        // A string that is as long as what is kept.
        for length in LONG - 20..LONG + 20 {
            let text = format!("[\"{}\\u00e9\"]", "x".repeat(length));
            assert!(is_beginning(&super::beginnings(&text), &parsed(&text).unwrap()), "{text}");
        }
    }

    /// Places of a text, and what stands there instead of its character.
    fn changes() -> impl Strategy<Value = Vec<(Index, &'static str)>> {
        let new = prop_oneof![
            Just(""),
            Just(","),
            Just("\""),
            Just("\\"),
            Just("["),
            Just("]"),
            Just("}"),
            Just(" "),
            Just("\n"),
            Just("\\u12"),
            Just("\\ud800"),
            Just("1"),
            Just(":"),
            Just("{"),
        ];
        proptest::collection::vec((any::<Index>(), new), 1..4)
    }

    #[test]
    fn almost_valid_long_values_are_left_to_the_parser() {
        let long = "x".repeat(LONG);
        for text in [
            format!("[\"{long}\",]"),
            format!("[\"{long}\" \"\"]"),
            format!("[\"{long}\n\"]"),
            format!("\"{long}\\\""),
            format!("\"{long}\u{e9}"),
            format!("[\"{long}\u{e9}"),
            format!("{{\"{long}\n\": 1}}"),
        ] {
            assert_eq!(long_value(&text, 0, super::string), None, "{text}");
            assert_eq!(super::any(&text), Value::Null, "{text}");
        }
        // Brackets without end, and escapes that are rare.
        assert_eq!(super::any(&"[".repeat(1 << 20)), Value::Null);
        let escapes = format!("[\"{long}\\u00e9\\ud83d\\ude00\\ud800\"]");
        assert_eq!(super::any(&escapes)[0], format!("{long}\u{e9}\u{1f600}\u{fffd}"));
    }

    #[test]
    fn other_value_has_no_elements() {
        for text in ["null", "{}", "\"[1]\"", "4", "[]", "[ ]"] {
            assert!(elements_of(text).is_empty(), "{text}");
        }
    }
}
