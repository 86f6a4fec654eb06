//! The first turn in which two runs differ.
//!
//! ```text
//! let found = divergence(&a, &b); // Some(Divergence { turn: 12, kind: Kind::Calls })
//! ```

use super::path::{Call, Path, Step};
use serde::Serialize;
use serde_json::Value;

/// The first turn in which two runs differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divergence {
    pub(crate) turn: u64,
    pub(crate) kind: Kind,
}

/// A difference in a turn. The first one that applies is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The text of the model.
    Text,
    /// The tools that it called, or their arguments.
    Calls,
    /// The results of the same calls.
    Results,
    /// One of the runs has no such turn.
    Ended,
}

/// Returns the first turn that differs. Turns that are not known of one of the runs are not compared.
pub(crate) fn divergence(a: &Path, b: &Path) -> Option<Divergence> {
    let turns = a.first().max(b.first())..=a.last().max(b.last());
    turns.into_iter().find_map(|turn| {
        let kind = match (a.at(turn), b.at(turn)) {
            (Some(a), Some(b)) => difference(a, b)?,
            _ => Kind::Ended,
        };
        Some(Divergence { turn, kind })
    })
}

/// Returns the first difference of two turns.
fn difference(a: &Step, b: &Step) -> Option<Kind> {
    if a.text != b.text {
        return Some(Kind::Text);
    }
    let called = |step: &Step| -> Vec<(String, Value)> {
        step.calls.iter().map(|call| (call.name.clone(), arguments(call))).collect()
    };
    if called(a) != called(b) {
        return Some(Kind::Calls);
    }
    let result = |call: &Call| (call.status.clone(), call.result.clone());
    a.calls.iter().map(result).ne(b.calls.iter().map(result)).then_some(Kind::Results)
}

/// Returns the arguments as a value, because providers space and order them differently.
fn arguments(call: &Call) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str, result: &str) -> Call {
        let (name, arguments, result) = (name.into(), arguments.into(), result.into());
        Call { name, arguments, status: "ok".into(), result }
    }

    fn step(text: &str, calls: &[Call]) -> Step {
        Step { text: text.into(), calls: calls.to_vec() }
    }

    #[test]
    fn first_difference_is_reported() {
        let base = step("a", &[call("ls", r#"{"x":1,"y":2}"#, "one")]);
        for (other, expected) in [
            (base.clone(), None),
            (step("a", &[call("ls", r#"{ "y": 2, "x": 1 }"#, "one")]), None),
            (step("b", &[call("rm", "{}", "two")]), Some(Kind::Text)),
            (step("a", &[call("rm", r#"{"x":1,"y":2}"#, "one")]), Some(Kind::Calls)),
            (step("a", &[call("ls", r#"{"x":1,"y":3}"#, "one")]), Some(Kind::Calls)),
            (step("a", &[]), Some(Kind::Calls)),
            (step("a", &[call("ls", r#"{"x":1,"y":2}"#, "two")]), Some(Kind::Results)),
        ] {
            assert_eq!(difference(&base, &other), expected, "{other:?}");
        }
    }
}
