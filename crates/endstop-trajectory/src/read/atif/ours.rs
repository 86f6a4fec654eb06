//! What ATIF has no place for, in its `extra` objects: what is said there in words that others read
//! too, and the rest under `endstop`, so that a run that was written and read again is the same.
//!
//! ```json
//! {"outcome": {"reward": 1.0, "success": true}, "termination": {"reason": "final"},
//!  "endstop": {"notes": ["result without a call: c7"]}}
//! ```
//!
//! A member of a run's own `extra` that has one of these names moves to `endstop.extra`.

use serde_json::{Map, Value};

/// The name under which the rest is.
pub(crate) const OURS: &str = "endstop";
/// In it, the members whose names were taken.
const MOVED: &str = "extra";

/// The names that are taken in the `extra` of a run.
pub(crate) const ROOT: &[&str] = &["outcome", "termination", "task_id", "trial", "tags", "labels"];
/// The names that are taken in the `extra` of a step.
pub(crate) const STEP: &[&str] = &["reward", "finish_reason", "stop_reason"];
/// The names that are taken in the `extra` of a result.
pub(crate) const RESULT: &[&str] = &["is_error", "tool_result_is_error", "exit_code"];
/// The names that are taken in the `extra` of a step's metrics.
pub(crate) const METRICS: &[&str] =
    &["cache_write_tokens", "cache_creation_input_tokens", "reasoning_tokens"];
/// The names that are taken in the `extra` of the metrics of a run.
pub(crate) const TOTALS: &[&str] = &["wall_s", "turns"];

/// Adds a run's own members to what is written in an `extra`.
pub(crate) fn pack(
    known: &mut Map<String, Value>,
    ours: Map<String, Value>,
    own: Map<String, Value>,
    taken: &[&str],
) {
    pack_moved(known, ours, Map::new(), own, taken);
}

/// The same, with members that have moved already.
pub(crate) fn pack_moved(
    known: &mut Map<String, Value>,
    mut ours: Map<String, Value>,
    mut moved: Map<String, Value>,
    own: Map<String, Value>,
    taken: &[&str],
) {
    for (name, value) in own {
        if name == OURS || taken.contains(&name.as_str()) || known.contains_key(&name) {
            moved.insert(name, value);
        } else {
            known.insert(name, value);
        }
    }
    if !moved.is_empty() {
        ours.insert(MOVED.to_owned(), Value::Object(moved));
    }
    if !ours.is_empty() {
        known.insert(OURS.to_owned(), Value::Object(ours));
    }
}

/// Takes `endstop` out of an `extra`.
pub(crate) fn take(extra: &mut Map<String, Value>) -> Map<String, Value> {
    match extra.get_mut(OURS) {
        Some(Value::Object(ours)) => {
            let ours = std::mem::take(ours);
            extra.shift_remove(OURS);
            ours
        }
        _ => Map::new(),
    }
}

/// Puts back what was moved, and what of `endstop` nobody knows.
pub(crate) fn give_back(extra: &mut Map<String, Value>, mut ours: Map<String, Value>) {
    if let Some(Value::Object(moved)) = ours.get_mut(MOVED) {
        let moved = std::mem::take(moved);
        ours.shift_remove(MOVED);
        extra.extend(moved);
    }
    if !ours.is_empty() && !extra.contains_key(OURS) {
        extra.insert(OURS.to_owned(), Value::Object(ours));
    }
}

/// Adds the members of an `extra` to those that stand beside it; one that is there already goes under
/// `extra`.
pub(crate) fn beside(own: &mut Map<String, Value>, extra: Map<String, Value>) {
    let mut twice = Map::new();
    for (name, value) in extra {
        if own.contains_key(&name) {
            twice.insert(name, value);
        } else {
            own.insert(name, value);
        }
    }
    if !twice.is_empty() {
        own.insert("extra".to_owned(), Value::Object(twice));
    }
}
