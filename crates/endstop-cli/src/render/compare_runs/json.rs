//! The comparison of runs as JSON.

use super::path::Path;
use super::{Comparison, Pair};
use endstop::NanoUsd;
use serde_json::{Value, json};

/// Returns the comparison as one object.
pub(crate) fn json(compared: &Comparison) -> Value {
    let runs = compared.runs.iter().enumerate().map(|(nth, run)| of_run(nth, run));
    let pairs = compared.pairs.iter().map(|pair| of_pair(compared, pair));
    json!({
        "type": "run_comparison",
        "runs": runs.collect::<Vec<_>>(),
        "pairs": pairs.collect::<Vec<_>>(),
    })
}

fn of_run(nth: usize, run: &Path) -> Value {
    let mut value = json!({
        "name": Comparison::letter(nth),
        "run_id": run.name,
        "state": run.timeline.state,
        "task": run.timeline.run.as_ref().map(|about| &about.task),
        "turns": run.last() - run.before,
        "turns_before": run.before,
        "branched_from": run.branched_from(),
        "problems": run.problems,
    });
    if let (Some(ending), Some(all)) = (&run.timeline.ending, value.as_object_mut()) {
        let of_ending = json!({
            "termination": ending.termination,
            "category": ending.category(),
            "decided_by": ending.decided_by,
            "verified": ending.verified,
            "turns": ending.turns,
            "model_calls": ending.model_calls,
            "tool_calls": ending.tool_calls,
            "tokens": ending.usage.total_tokens(),
            "cost_usd": ending.known_cost().map(NanoUsd::to_usd),
            "cost_unknown": ending.cost_unknown,
            "duration_ms": ending.duration.as_micros() as f64 / 1e3,
            "model": ending.model,
            "provider": ending.provider,
        });
        if let Value::Object(more) = of_ending {
            all.extend(more);
        }
    }
    value
}

fn of_pair(compared: &Comparison, pair: &Pair) -> Value {
    let diverge = pair.diverge.map(|found| {
        let at = |nth: usize| compared.runs[nth].at(found.turn);
        json!({"turn": found.turn, "kind": found.kind, "a": at(0), "b": at(pair.other)})
    });
    json!({
        "a": Comparison::letter(0),
        "b": Comparison::letter(pair.other),
        "same_turns": pair.same,
        "diverge": diverge,
    })
}
