//! Assembly of a tool call's arguments that arrive in fragments, each with the JSONPath of its
//! position.

use super::wire::Piece;
use serde_json::{Map, Value};

/// Maximum depth of a path, so that recursion over the value stays bounded.
const DEEPEST: usize = 64;

/// Partially received arguments.
#[derive(Default)]
pub(super) struct Arguments {
    root: Value,
    /// Path of the string that the next fragment continues.
    open: String,
}

/// One step of a path.
enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl Arguments {
    /// Inserts a fragment at its position. A fragment without a valid position is ignored.
    pub(super) fn put(&mut self, piece: &Piece<'_>) {
        let path = piece.json_path.get();
        let Some(place) = steps(path).and_then(|steps| find(&mut self.root, &steps)) else {
            return;
        };
        match (place, &piece.string_value.0) {
            (Value::String(text), Some(more)) if self.open == path => text.push_str(more),
            (place, Some(text)) => *place = Value::from(text.as_ref()),
            (place, None) => {
                // `nullValue` carries no data, so a fragment without any value means null.
                let raw = piece.number_value.or(piece.bool_value);
                *place =
                    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            }
        }
        // Clear first, because only a fragment marked as continuing may be extended.
        self.open.clear();
        if piece.will_continue.get() == "true" {
            self.open.push_str(path);
        }
    }

    /// Returns the arguments as JSON. If they were cut, the last byte is removed, so that they do
    /// not parse and cannot be taken for complete.
    pub(super) fn json(&self, whole: bool) -> String {
        let mut json = match &self.root {
            Value::Null => Value::Object(Map::new()).to_string(),
            root => root.to_string(),
        };
        if !whole {
            json.pop();
        }
        json
    }
}

/// Splits a path such as `$.list[0].name` or `$['a name']` into its steps.
fn steps(path: &str) -> Option<Vec<Step<'_>>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == DEEPEST {
            return None;
        }
        if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            steps.push(Step::Name(&name[..end]));
            rest = &name[end..];
        } else {
            let inside = rest.strip_prefix('[')?;
            let quote = inside.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let (step, after) = if let Some(quote) = quote {
                let (name, after) = inside[1..].split_once(quote)?;
                (Step::Name(name), after.strip_prefix(']')?)
            } else {
                let (index, after) = inside.split_once(']')?;
                (Step::Index(index.parse().ok()?), after)
            };
            steps.push(step);
            rest = after;
        }
    }
    Some(steps)
}

/// Returns the value at the end of these steps and creates missing ones. A list grows by one item
/// at a time, so that a large index cannot allocate memory.
fn find<'v>(root: &'v mut Value, steps: &[Step<'_>]) -> Option<&'v mut Value> {
    let mut at = root;
    for step in steps {
        at = match step {
            Step::Name(name) => {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut()?.entry(*name).or_insert(Value::Null)
            }
            Step::Index(index) => {
                if at.is_null() {
                    *at = Value::Array(Vec::new());
                }
                let list = at.as_array_mut()?;
                if list.len() == *index {
                    list.push(Value::Null);
                }
                list.get_mut(*index)?
            }
        };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(pieces: &[&str]) -> Arguments {
        let mut arguments = Arguments::default();
        for piece in pieces {
            arguments.put(&serde_json::from_str(piece).unwrap());
        }
        arguments
    }

    #[test]
    fn fragments_are_placed_by_path() {
        let a = arguments(&[
            r#"{"jsonPath":"$.a","stringValue":"Bos","willContinue":true}"#,
            r#"{"jsonPath":"$.a","stringValue":"ton","willContinue":true}"#,
            r#"{"jsonPath":"$.a","stringValue":""}"#,
            r#"{"jsonPath":"$.b[0].c","numberValue":1.5}"#,
            r#"{"jsonPath":"$.b[1]['d e']","boolValue":true}"#,
            r#"{"jsonPath":"$[\"n\"]","nullValue":"NULL_VALUE"}"#,
        ]);
        let want = serde_json::json!({"a": "Boston", "b": [{"c": 1.5}, {"d e": true}], "n": null});
        assert_eq!(serde_json::from_str::<Value>(&a.json(true)).unwrap(), want);
        assert!(serde_json::from_str::<Value>(&a.json(false)).is_err());
        assert_eq!(Arguments::default().json(true), "{}");
    }

    #[test]
    fn fragment_with_bad_path_is_ignored() {
        let deep = format!(r#"{{"jsonPath":"${}","stringValue":"x"}}"#, ".a".repeat(100_000));
        let a = arguments(&[
            &deep,
            r#"{"jsonPath":"$.l[4000000000]","stringValue":"x"}"#,
            r#"{"jsonPath":"a","stringValue":"x"}"#,
            r#"{"jsonPath":"$[","stringValue":"x"}"#,
            r#"{"jsonPath":"$['é","stringValue":"x"}"#,
        ]);
        assert_eq!(a.json(true), r#"{"l":[]}"#);
    }
}
