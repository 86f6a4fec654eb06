//! Fields of a parsed JSON object, text from lists of content parts, and arguments as JSON.
//!
//! ```text
//! let model = text(&mut map, "model");          // taken: what is left in `map` is extra
//! let arguments = arguments(map.remove("input"));
//! ```

use super::arguments::of_text;
use serde_json::{Map, Value};
use std::borrow::Cow;

pub(crate) type Fields = Map<String, Value>;

/// Names the type of a value for error messages.
pub(crate) const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Takes a string field; a value of another type stays in the map.
pub(crate) fn text(map: &mut Fields, key: &str) -> Option<String> {
    // Checked before it is removed, because a value of another type must keep its position.
    if !matches!(map.get(key), Some(Value::String(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Takes an object field; a value of another type stays in the map.
pub(crate) fn object(map: &mut Fields, key: &str) -> Option<Fields> {
    if !matches!(map.get(key), Some(Value::Object(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// Takes a list field; a value of another type stays in the map.
pub(crate) fn list(map: &mut Fields, key: &str) -> Option<Vec<Value>> {
    if !matches!(map.get(key), Some(Value::Array(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    }
}

/// Takes a count field; a value of another type stays in the map.
pub(crate) fn count(map: &mut Fields, key: &str) -> Option<u64> {
    let count = super::record::count(map.get(key)?)?;
    map.shift_remove(key);
    Some(count)
}

/// Reads an HTTP status of an error.
pub(crate) fn http_status(value: Option<&Value>) -> Option<u16> {
    let status = u16::try_from(value?.as_u64()?).ok()?;
    // Some recorders store 0 if no response came.
    (400..600).contains(&status).then_some(status)
}

/// Returns a string field without removing it.
pub(crate) fn peek<'m>(map: &'m Fields, key: &str) -> Option<&'m str> {
    map.get(key)?.as_str()
}

/// Returns `true` if a field is `true`.
pub(crate) fn is_true(map: &Fields, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

/// Converts an id to a string; some recorders write ids as numbers.
pub(crate) fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Removes fields that are `null`.
pub(crate) fn without_nulls(mut map: Fields) -> Fields {
    map.retain(|_, value| !value.is_null());
    map
}

/// Boxes the remaining fields, if there are any.
pub(crate) fn extra(map: Fields) -> Option<Box<Fields>> {
    let map = without_nulls(map);
    (!map.is_empty()).then(|| Box::new(map))
}

/// Adds a field to a record's extra fields.
pub(crate) fn add_extra(extra: &mut Option<Box<Fields>>, key: &str, value: Value) {
    if !value.is_null() {
        extra.get_or_insert_with(Box::default).insert(key.to_owned(), value);
    }
}

/// Adds fields to a record's extra fields. Existing fields are not replaced.
pub(crate) fn merge_extra(extra: &mut Option<Box<Fields>>, more: Fields) {
    for (key, value) in without_nulls(more) {
        extra.get_or_insert_with(Box::default).entry(key).or_insert(value);
    }
}

/// Converts the arguments of a call to JSON: an object, or a string if they are not an object.
pub(crate) fn arguments(value: Option<Value>) -> Cow<'static, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed("{}"),
        Some(Value::Object(map)) => Cow::Owned(Value::Object(map).to_string()),
        // A string that holds an object is not parsed, so that numbers and key order are preserved.
        Some(Value::String(text)) => Cow::Owned(of_text(&text)),
        // Encoded as a string, so that consumers only see objects and strings.
        Some(other) => Cow::Owned(Value::String(other.to_string()).to_string()),
    }
}

/// Joins the text of a content, which is a string or a list of parts, with line breaks. Parts that
/// are not text are moved to `rest` unchanged.
pub(crate) fn content(value: Option<Value>, rest: &mut Vec<Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let mut texts = Texts::default();
            for part in parts {
                match part {
                    Value::String(text) => texts.push(&text),
                    Value::Object(part) if is_text(&part) => {
                        texts.push(peek(&part, "text").unwrap_or_default());
                    }
                    other => rest.push(other),
                }
            }
            texts.0
        }
        Some(Value::Object(part)) if is_text(&part) => {
            peek(&part, "text").unwrap_or_default().to_owned()
        }
        Some(other) => {
            rest.push(other);
            String::new()
        }
    }
}

fn is_text(part: &Fields) -> bool {
    matches!(
        // A part without a type is text: some recorders leave the type out.
        peek(part, "type"),
        None | Some("text" | "input_text" | "output_text" | "summary_text" | "reasoning_text")
    ) && part.get("text").is_some_and(Value::is_string)
}

/// Strings joined with line breaks.
#[derive(Default)]
pub(crate) struct Texts(pub(crate) String);

impl Texts {
    pub(crate) fn push(&mut self, text: &str) {
        append(&mut self.0, text);
    }
}

/// Appends a string after a line break, unless one of the two is empty.
pub(crate) fn append(to: &mut String, text: &str) {
    if !to.is_empty() && !text.is_empty() {
        to.push('\n');
    }
    to.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_object_or_string() {
        assert_eq!(arguments(Some(json!({"a": 1}))), r#"{"a":1}"#);
        assert_eq!(arguments(Some(json!("{\"a\": 1}"))), r#"{"a": 1}"#);
        assert_eq!(arguments(Some(json!("{\"a\": "))), r#""{\"a\": ""#);
        assert_eq!(arguments(Some(json!("[1]"))), r#""[1]""#);
        assert_eq!(arguments(Some(json!([1]))), r#""[1]""#);
        assert_eq!(arguments(Some(json!(""))), r#""""#);
        assert_eq!(arguments(None), "{}");
    }
}
