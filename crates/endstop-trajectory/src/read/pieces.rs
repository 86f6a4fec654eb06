//! Helpers shared by the readers of sessions, logs and spans: lines of a file, fields of a JSON
//! object, text from lists of content parts, and arguments as JSON.
//!
//! ```text
//! for line in lines(bytes) { … line.object()? … }
//! let model = text(&mut map, "model");          // taken: what is left in `map` is extra
//! let arguments = arguments(map.remove("input"));
//! ```

use super::scan::is_half;
use super::{Head, Place, Problem, ProblemKind, Sink};
use endstop_core::bounded_json;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

pub(super) type Fields = Map<String, Value>;

/// A line of a file.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    /// The line number, from 1.
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
    /// `true` if the line ends with a line break.
    pub(super) ended: bool,
}

impl Line<'_> {
    /// Parses the line as a JSON object.
    pub(super) fn object(&self, file: &str) -> Result<Fields, Problem> {
        let problem = |kind, what: String| {
            Err(Problem { file: file.to_owned(), at: Some(self.at), kind, what })
        };
        match bounded_json::from_slice(self.bytes) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => problem(
                ProblemKind::Malformed,
                format!("invalid record: expected a JSON object, found {}", kind_of(&other)),
            ),
            // The last line is incomplete if the file is still being written or its writer crashed.
            Err(e) if !self.ended && e.is_eof() => {
                problem(ProblemKind::Half, "truncated record".to_owned())
            }
            Err(e) => problem(ProblemKind::Malformed, format!("invalid JSON: {e}")),
        }
    }
}

/// Iterates over the lines that are not blank.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    // A byte order mark is not JSON.
    let mut rest = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut at = 0;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            at += 1;
            let (line, ended) = match memchr::memchr(b'\n', rest) {
                Some(end) => {
                    let line = &rest[..end];
                    rest = &rest[end + 1..];
                    (line, true)
                }
                None => (std::mem::take(&mut rest), false),
            };
            let line = line.trim_ascii();
            if !line.is_empty() {
                return Some(Line { at, bytes: line, ended });
            }
        }
        None
    })
}

/// Passes the object of each line to `take`, and reports to the sink each line that is not an
/// object or that `take` rejects with a reason.
pub(super) fn each_object(
    bytes: &[u8],
    place: &Place<'_>,
    sink: &mut Sink<'_>,
    mut take: impl FnMut(Fields) -> Result<(), String>,
) {
    for line in lines(bytes) {
        let taken = line.object(place.file).and_then(|map| {
            take(map).map_err(|what| Problem {
                file: place.file.to_owned(),
                at: Some(line.at),
                kind: ProblemKind::Malformed,
                what,
            })
        });
        if let Err(problem) = taken {
            sink(Err(problem));
        }
    }
}

/// Parses a record as a JSON object.
pub(super) fn record(bytes: &[u8]) -> Result<Fields, Problem> {
    match bounded_json::from_slice(bytes) {
        Ok(Value::Object(record)) => Ok(record),
        Ok(other) => {
            let found = kind_of(&other);
            Err(Problem::malformed(format!("invalid run: expected an object, found {found}")))
        }
        // Reported as truncated, because serde's message would only name the missing token.
        Err(_) if is_half(bytes) => Err(Problem::half(bytes)),
        Err(error) => Err(Problem::json(&error)),
    }
}

/// Creates the problem for a file that contains nothing of the format it was recognised as.
pub(super) fn nothing(place: &Place<'_>, what: &str) -> Problem {
    Problem {
        file: place.file.to_owned(),
        at: None,
        kind: ProblemKind::NoTrajectory,
        what: what.to_owned(),
    }
}

/// Parses the first lines of a file as objects, and skips lines that are not.
pub(super) fn first_objects(head: &Head<'_>, most: usize) -> Vec<Fields> {
    let objects = lines(head.bytes).take(most);
    let mut found: Vec<Fields> = objects.filter_map(|line| line.object("").ok()).collect();
    // A pretty-printed document has no line that is an object, so use the parsed first value.
    if found.is_empty()
        && let Some(Value::Object(map)) = head.first
    {
        found.push(map.clone());
    }
    found
}

/// Names the type of a value for error messages.
pub(super) const fn kind_of(value: &Value) -> &'static str {
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
pub(super) fn text(map: &mut Fields, key: &str) -> Option<String> {
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
pub(super) fn object(map: &mut Fields, key: &str) -> Option<Fields> {
    if !matches!(map.get(key), Some(Value::Object(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// Takes a list field; a value of another type stays in the map.
pub(super) fn list(map: &mut Fields, key: &str) -> Option<Vec<Value>> {
    if !matches!(map.get(key), Some(Value::Array(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    }
}

/// Takes a count field; a value of another type stays in the map.
pub(super) fn count(map: &mut Fields, key: &str) -> Option<u64> {
    let count = map.get(key)?.as_u64()?;
    map.shift_remove(key);
    Some(count)
}

/// Returns a string field without removing it.
pub(super) fn peek<'m>(map: &'m Fields, key: &str) -> Option<&'m str> {
    map.get(key)?.as_str()
}

/// Returns `true` if a field is `true`.
pub(super) fn is_true(map: &Fields, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

/// Converts an id to a string; some recorders write ids as numbers.
pub(super) fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Removes fields that are `null`.
pub(super) fn without_nulls(mut map: Fields) -> Fields {
    map.retain(|_, value| !value.is_null());
    map
}

/// Boxes the remaining fields, if there are any.
pub(super) fn extra(map: Fields) -> Option<Box<Fields>> {
    let map = without_nulls(map);
    (!map.is_empty()).then(|| Box::new(map))
}

/// Adds a field to a record's extra fields.
pub(super) fn add_extra(extra: &mut Option<Box<Fields>>, key: &str, value: Value) {
    if !value.is_null() {
        extra.get_or_insert_with(Box::default).insert(key.to_owned(), value);
    }
}

/// Adds fields to a record's extra fields. Existing fields are not replaced.
pub(super) fn merge_extra(extra: &mut Option<Box<Fields>>, more: Fields) {
    for (key, value) in without_nulls(more) {
        extra.get_or_insert_with(Box::default).entry(key).or_insert(value);
    }
}

/// Converts the arguments of a call to JSON: an object, or a string if they are not an object.
pub(super) fn arguments(value: Option<Value>) -> Cow<'static, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed("{}"),
        Some(Value::Object(map)) => Cow::Owned(Value::Object(map).to_string()),
        // A string that holds an object is used unchanged, so that numbers and key order are
        // preserved.
        Some(Value::String(text)) if is_object(&text) => Cow::Owned(text),
        Some(Value::String(text)) => Cow::Owned(Value::String(text).to_string()),
        // Encoded as a string, so that consumers only see objects and strings.
        Some(other) => Cow::Owned(Value::String(other.to_string()).to_string()),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Joins the text of a content, which is a string or a list of parts, with line breaks. Parts that
/// are not text are moved to `rest` unchanged.
pub(super) fn content(value: Option<Value>, rest: &mut Vec<Value>) -> String {
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
pub(super) struct Texts(pub(super) String);

impl Texts {
    pub(super) fn push(&mut self, text: &str) {
        append(&mut self.0, text);
    }
}

/// Appends a string after a line break, unless one of the two is empty.
pub(super) fn append(to: &mut String, text: &str) {
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

    #[test]
    fn unterminated_last_line_is_half() {
        let kinds: Vec<_> = lines(b"{\"a\":1}\n\n{\"a\":\n7\n{\"a\":")
            .map(|line| (line.at, line.object("f").map_err(|p| p.kind).err()))
            .collect();
        assert_eq!(
            kinds,
            [
                (1, None),
                (3, Some(ProblemKind::Malformed)),
                (4, Some(ProblemKind::Malformed)),
                (5, Some(ProblemKind::Half)),
            ]
        );
    }
}
