//! What the readers of sessions, logs and spans share: lines of a file, fields out of a JSON object,
//! texts out of lists of parts, arguments as JSON.
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
    /// From 1.
    pub(super) at: u64,
    pub(super) bytes: &'a [u8],
    /// Whether a line break ends it.
    pub(super) ended: bool,
}

impl Line<'_> {
    /// The object that it is, or what is wrong with it.
    pub(super) fn object(&self, file: &str) -> Result<Fields, Problem> {
        let problem = |kind, what: String| {
            Err(Problem { file: file.to_owned(), at: Some(self.at), kind, what })
        };
        match bounded_json::from_slice(self.bytes) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => problem(
                ProblemKind::Malformed,
                format!("a record is a JSON object, and this is {}", kind_of(&other)),
            ),
            // A file that is still written, or whose writer died, ends in the middle of a line.
            Err(e) if !self.ended && e.is_eof() => {
                problem(ProblemKind::Half, "a record that ends in its middle".to_owned())
            }
            Err(e) => problem(ProblemKind::Malformed, format!("no JSON: {e}")),
        }
    }
}

/// The lines of a file that are not blank.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
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

/// Gives the object of each line to `take`, and what is wrong with a line to the sink: no object, or none
/// that `take` takes, which says why.
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

/// The object that a record is.
pub(super) fn record(bytes: &[u8]) -> Result<Fields, Problem> {
    match bounded_json::from_slice(bytes) {
        Ok(Value::Object(record)) => Ok(record),
        Ok(other) => {
            let found = kind_of(&other);
            Err(Problem::malformed(format!("a run is an object, and this is {found}")))
        }
        Err(_) if is_half(bytes) => Err(Problem::half(bytes)),
        Err(error) => Err(Problem::json(&error)),
    }
}

/// That a file has none of what it was taken for.
pub(super) fn nothing(place: &Place<'_>, what: &str) -> Problem {
    Problem {
        file: place.file.to_owned(),
        at: None,
        kind: ProblemKind::NoTrajectory,
        what: what.to_owned(),
    }
}

/// The objects that a file's first lines are, as far as they are there.
pub(super) fn first_objects(head: &Head<'_>, most: usize) -> Vec<Fields> {
    let objects = lines(head.bytes).take(most);
    let mut found: Vec<Fields> = objects.filter_map(|line| line.object("").ok()).collect();
    if found.is_empty()
        && let Some(Value::Object(map)) = head.first
    {
        found.push(map.clone());
    }
    found
}

/// What a value is, for a person.
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

/// Takes a field that is a string; another stays where it is.
pub(super) fn text(map: &mut Fields, key: &str) -> Option<String> {
    if !matches!(map.get(key), Some(Value::String(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Takes a field that is an object; another stays where it is.
pub(super) fn object(map: &mut Fields, key: &str) -> Option<Fields> {
    if !matches!(map.get(key), Some(Value::Object(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// Takes a field that is a list; another stays where it is.
pub(super) fn list(map: &mut Fields, key: &str) -> Option<Vec<Value>> {
    if !matches!(map.get(key), Some(Value::Array(_))) {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    }
}

/// Takes a field that is a count; another stays where it is.
pub(super) fn count(map: &mut Fields, key: &str) -> Option<u64> {
    let count = map.get(key)?.as_u64()?;
    map.shift_remove(key);
    Some(count)
}

/// A field as a string, which stays where it is.
pub(super) fn peek<'m>(map: &'m Fields, key: &str) -> Option<&'m str> {
    map.get(key)?.as_str()
}

/// Whether a field is `true`.
pub(super) fn is_true(map: &Fields, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

/// An id, which some write as a number.
pub(super) fn id_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Drops the fields that say nothing.
pub(super) fn without_nulls(mut map: Fields) -> Fields {
    map.retain(|_, value| !value.is_null());
    map
}

/// The fields that are left, where there are any.
pub(super) fn extra(map: Fields) -> Option<Box<Fields>> {
    let map = without_nulls(map);
    (!map.is_empty()).then(|| Box::new(map))
}

/// Adds to what no other field of a record holds.
pub(super) fn add_extra(extra: &mut Option<Box<Fields>>, key: &str, value: Value) {
    if !value.is_null() {
        extra.get_or_insert_with(Box::default).insert(key.to_owned(), value);
    }
}

/// Adds fields to what no other field of a record holds; those that it has already stay.
pub(super) fn merge_extra(extra: &mut Option<Box<Fields>>, more: Fields) {
    for (key, value) in without_nulls(more) {
        extra.get_or_insert_with(Box::default).entry(key).or_insert(value);
    }
}

/// The arguments of a call as JSON: an object, or a string where they were none.
pub(super) fn arguments(value: Option<Value>) -> Cow<'static, str> {
    match value {
        None | Some(Value::Null) => Cow::Borrowed("{}"),
        Some(Value::Object(map)) => Cow::Owned(Value::Object(map).to_string()),
        Some(Value::String(text)) if is_object(&text) => Cow::Owned(text),
        Some(Value::String(text)) => Cow::Owned(Value::String(text).to_string()),
        Some(other) => Cow::Owned(Value::String(other.to_string()).to_string()),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// A content: a string, or a list of parts. The text is joined with line breaks; parts that are no
/// text go to `rest` as they are.
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
        peek(part, "type"),
        None | Some("text" | "input_text" | "output_text" | "summary_text" | "reasoning_text")
    ) && part.get("text").is_some_and(Value::is_string)
}

/// Texts one below the other.
#[derive(Default)]
pub(super) struct Texts(pub(super) String);

impl Texts {
    pub(super) fn push(&mut self, text: &str) {
        append(&mut self.0, text);
    }
}

/// Adds a text below another.
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
    fn arguments_are_an_object_or_a_string() {
        assert_eq!(arguments(Some(json!({"a": 1}))), r#"{"a":1}"#);
        assert_eq!(arguments(Some(json!("{\"a\": 1}"))), r#"{"a": 1}"#);
        assert_eq!(arguments(Some(json!("{\"a\": "))), r#""{\"a\": ""#);
        assert_eq!(arguments(Some(json!("[1]"))), r#""[1]""#);
        assert_eq!(arguments(Some(json!([1]))), r#""[1]""#);
        assert_eq!(arguments(Some(json!(""))), r#""""#);
        assert_eq!(arguments(None), "{}");
    }

    #[test]
    fn a_line_without_its_end_is_half_and_another_is_malformed() {
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
