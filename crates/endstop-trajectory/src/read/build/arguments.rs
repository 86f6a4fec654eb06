//! Normalises the arguments of a call to JSON text: an object, or a string if they are not an
//! object.
//!
//! ```text
//! assert_eq!(of_text("{\"a\": 1}"), "{\"a\": 1}");      // a string that holds an object
//! assert_eq!(of_text("{'a': 1}"), "\"{'a': 1}\"");      // a string that holds none
//! ```
//!
//! The text is on one line, so that it can be embedded in a file of lines.

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Converts any JSON value.
pub(crate) fn of_raw(raw: &RawValue) -> Cow<'_, str> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => on_one_line(text),
        // A string without a brace cannot hold an object, so it need not be unescaped.
        Some(b'"') if memchr::memchr(b'{', text.as_bytes()).is_none() => Cow::Borrowed(text),
        Some(b'"') => match serde_json::from_str::<String>(text) {
            Ok(inner) if is_object(&inner) => Cow::Owned(on_one_line(inner.trim()).into_owned()),
            _ => Cow::Borrowed(text),
        },
        // `null` means that the call has no arguments.
        Some(b'n') | None => Cow::Borrowed("{}"),
        Some(_) => Cow::Owned(quoted(&on_one_line(text))),
    }
}

/// Converts the text that a model wrote.
pub(crate) fn of_text(text: &str) -> String {
    if is_object(text) { on_one_line(text.trim()).into_owned() } else { quoted(text) }
}

/// Returns `true` if a string is a JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Encodes a string as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Removes the white space between the tokens of a JSON text that contains line breaks.
pub(crate) fn on_one_line(json: &str) -> Cow<'_, str> {
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_none() {
        return Cow::Borrowed(json);
    }
    // Line breaks inside strings are escaped in JSON, so only white space outside strings is
    // removed.
    let mut line = String::with_capacity(json.len());
    let (mut text, mut escape) = (false, false);
    for c in json.chars() {
        if text {
            match c {
                _ if escape => escape = false,
                '\\' => escape = true,
                '"' => text = false,
                _ => {}
            }
        } else if c == '"' {
            text = true;
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        line.push(c);
    }
    Cow::Owned(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> String {
        of_raw(serde_json::from_str::<&RawValue>(json).unwrap()).into_owned()
    }

    #[test]
    fn objects_are_not_reformatted() {
        assert_eq!(raw("{\"b\": 1.50, \"a\": 1e3}"), "{\"b\": 1.50, \"a\": 1e3}");
        assert_eq!(raw("{\n  \"a\": \"x \\\" y\\n\"\n}"), "{\"a\":\"x \\\" y\\n\"}");
        assert_eq!(raw("\"{\\\"a\\\": 1}\\n\""), "{\"a\": 1}");
    }

    #[test]
    fn other_values_become_strings() {
        assert_eq!(raw("\"{'a': 1}\""), "\"{'a': 1}\"");
        assert_eq!(raw("\"ls -l\""), "\"ls -l\"");
        assert_eq!(raw("[1, \"a\"]"), "\"[1, \\\"a\\\"]\"");
        assert_eq!(raw("\"[1]\""), "\"[1]\"");
        assert_eq!(raw("null"), "{}");
        assert_eq!(raw("12"), "\"12\"");
        assert_eq!(of_text(""), "\"\"");
        assert_eq!(of_text(" {\"a\": 1} "), "{\"a\": 1}");
        assert_eq!(of_text("{\"a\": 1} x"), "\"{\\\"a\\\": 1} x\"");
    }
}
