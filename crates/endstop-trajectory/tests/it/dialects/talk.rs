//! A random conversation with tool calls.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A tool call with its result.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) name: String,
    pub(super) arguments: Value,
    /// The result; it begins with `Error: ` if the call failed, because some dialects have no flag.
    pub(super) told: String,
    pub(super) failed: bool,
    /// The rank of the result among those of the turn.
    pub(super) rank: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Talk {
    pub(super) prompt: String,
    /// The text of each turn with its calls, which are at least one.
    pub(super) turns: Vec<(String, Vec<Asked>)>,
    pub(super) answer: String,
}

impl Talk {
    pub(super) fn id(turn: usize, call: usize) -> String {
        format!("call-{turn}-{call}")
    }

    /// The results of a turn with their call ids, in the order in which they were recorded.
    pub(super) fn results(&self, turn: usize) -> Vec<(String, &Asked)> {
        let calls = self.turns[turn].1.iter().enumerate();
        let mut results: Vec<_> = calls.map(|(at, call)| (Talk::id(turn, at), call)).collect();
        results.sort_by_key(|(_, call)| call.rank);
        results
    }

    /// The calls of a turn, each as `make` writes it.
    pub(super) fn calls(&self, turn: usize, make: impl Fn(String, &Asked) -> Value) -> Vec<Value> {
        let calls = self.turns[turn].1.iter().enumerate();
        calls.map(|(at, call)| make(Talk::id(turn, at), call)).collect()
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{1,12}",
        "\\PC{1,8}",
        Just("é\u{2028}\u{1f600} \"quoted\" \\ \t end".to_owned()),
        Just("two\nlines".to_owned()),
    ]
    .prop_filter("a plain word at both ends", |text| {
        !text.starts_with("Error") && !text.trim().is_empty()
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let argument = prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!({"nested": [1, null, {"b": "c"}]})),
        Just(Value::Null),
    ];
    ("[a-z_]{1,8}", vec(("[a-z]{1,4}", argument), 0..3), text(), any::<bool>(), any::<u8>())
        .prop_map(|(name, arguments, told, failed, rank)| Asked {
            name,
            arguments: arguments.into_iter().collect(),
            told: if failed { format!("Error: {told}") } else { told },
            failed,
            rank,
        })
}

pub(super) fn talk() -> impl Strategy<Value = Talk> {
    let said = prop_oneof![Just(String::new()), text()];
    let turns = vec((said, vec(asked(), 1..4)), 0..4);
    (text(), turns, text()).prop_map(|(prompt, turns, answer)| Talk { prompt, turns, answer })
}
