//! A call's arguments that come in pieces, each with the JSONPath of where it belongs.

use super::wire::Piece;
use serde_json::{Map, Value};

/// The deepest place that is taken: no recursion over the value goes further.
const DEEPEST: usize = 64;

/// Arguments on their way.
#[derive(Default)]
pub(super) struct Arguments {
    root: Value,
    /// The place of the string that goes on with the next piece.
    open: String,
}

/// A step of a path.
enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl Arguments {
    /// Puts a piece where it belongs; one that belongs nowhere is passed over.
    pub(super) fn put(&mut self, piece: &Piece<'_>) {
        let path = piece.json_path.get();
        let Some(place) = steps(path).and_then(|steps| find(&mut self.root, &steps)) else {
            return;
        };
        match (place, &piece.string_value.0) {
            (Value::String(text), Some(more)) if self.open == path => text.push_str(more),
            (place, Some(text)) => *place = Value::from(text.as_ref()),
            (place, None) => {
                let raw = piece.number_value.or(piece.bool_value);
                *place =
                    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            }
        }
        self.open.clear();
        if piece.will_continue.get() == "true" {
            self.open.push_str(path);
        }
    }

    /// The arguments as JSON; what was cut lacks its end, so that it is not taken for whole.
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

/// The steps of `$.list[0].name` or `$['a name']`.
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

/// The value at the end of these steps, made where it is not there yet. A list grows by one at a
/// time, so that an index cannot ask for memory.
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
    fn pieces_find_their_places() {
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
    fn what_belongs_nowhere_is_passed_over() {
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
