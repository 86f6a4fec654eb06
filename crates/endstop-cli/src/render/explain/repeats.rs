//! Calls of a run that were repeated with the same results.

use super::turns::Turn;
use endstop::core::call_key;
use serde::Serialize;
use serde_json::Value;

/// Calls that were repeated with the same results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Repeat {
    /// The calls with their results.
    pub(crate) calls: Vec<Call>,
    /// The turns that made them, in order.
    pub(crate) turns: Vec<u64>,
    /// Cost of those turns except the first, in US dollars; `None` if no price is known.
    pub(crate) cost_usd: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) result: String,
}

/// Returns the repeats, in the order of their first turns.
pub(super) fn repeats_of(turns: &[Turn<'_>]) -> Vec<Repeat> {
    let mut repeats: Vec<Repeat> = Vec::new();
    // The identity of each repeat: the keys and results of its calls, sorted.
    let mut identities: Vec<Vec<(u64, &str)>> = Vec::new();
    let mut before = 0.0;
    for turn in turns {
        let spent = turn.cost.unwrap_or(before);
        let own = spent - before;
        before = spent;
        if turn.tools.is_empty() {
            continue;
        }
        let identity =
            turn.tools.iter().map(|tool| (call_key(tool.name, tool.arguments), tool.content));
        let mut identity: Vec<_> = identity.collect();
        // Sorted, because the order of the calls in a turn does not matter.
        identity.sort_unstable();
        if let Some(nth) = identities.iter().position(|other| *other == identity) {
            let repeat = &mut repeats[nth];
            repeat.turns.push(turn.number);
            repeat.cost_usd = Some(repeat.cost_usd.unwrap_or(0.0) + own);
            continue;
        }
        let mut calls: Vec<Call> = turn
            .tools
            .iter()
            .map(|tool| Call {
                name: tool.name.to_owned(),
                arguments: with_sorted_keys(tool.arguments),
                result: tool.content.to_owned(),
            })
            .collect();
        calls.sort_by(|a, b| (&a.name, &a.arguments).cmp(&(&b.name, &b.arguments)));
        identities.push(identity);
        repeats.push(Repeat { calls, turns: vec![turn.number], cost_usd: None });
    }
    repeats.retain(|repeat| repeat.turns.len() > 1);
    repeats
}

/// Returns arguments as they are shown, with sorted keys.
fn with_sorted_keys(arguments: &str) -> String {
    fn sorted(value: Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut members: Vec<(String, Value)> = map.into_iter().collect();
                members.sort_by(|a, b| a.0.cmp(&b.0));
                members.into_iter().map(|(key, value)| (key, sorted(value))).collect()
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
            other => other,
        }
    }
    endstop::core::bounded_json::from_str(arguments)
        .map_or_else(|_| arguments.to_owned(), |value| sorted(value).to_string())
}
