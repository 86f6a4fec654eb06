//! Stores what ATIF has no field for in its `extra` objects: under names that other tools also use,
//! and otherwise under `endstop`, so that a run is unchanged after writing and reading it.
//!
//! ```json
//! {"outcome": {"reward": 1.0, "success": true}, "termination": {"reason": "final"},
//!  "endstop": {"notes": ["result without a call: c7"]}}
//! ```
//!
//! A member of a run's own `extra` that has one of these names is moved to `endstop.extra`.

use serde_json::{Map, Value};

/// The member that holds Endstop's extension.
pub(crate) const OURS: &str = "endstop";
/// The member of the extension that holds renamed members.
const MOVED: &str = "extra";

/// Reserved names in the `extra` of a run.
pub(crate) const ROOT: &[&str] = &["outcome", "termination", "task_id", "trial", "tags", "labels"];
/// Reserved names in the `extra` of a step.
pub(crate) const STEP: &[&str] = &["reward", "finish_reason", "stop_reason"];
/// Reserved names in the `extra` of a result.
pub(crate) const RESULT: &[&str] = &["is_error", "tool_result_is_error", "exit_code"];
/// Reserved names in the `extra` of a step's metrics.
pub(crate) const METRICS: &[&str] =
    &["cache_write_tokens", "cache_creation_input_tokens", "reasoning_tokens"];
/// Reserved names in the `extra` of a run's metrics.
pub(crate) const TOTALS: &[&str] = &["wall_s", "turns"];

/// Adds a run's own members to an `extra` object.
pub(crate) fn pack(
    known: &mut Map<String, Value>,
    ours: Map<String, Value>,
    own: Map<String, Value>,
    taken: &[&str],
) {
    pack_moved(known, ours, Map::new(), own, taken);
}

/// As [`pack`], with members that were moved before.
pub(crate) fn pack_moved(
    known: &mut Map<String, Value>,
    mut ours: Map<String, Value>,
    mut moved: Map<String, Value>,
    own: Map<String, Value>,
    taken: &[&str],
) {
    for (name, value) in own {
        // A reserved name would be read back as Endstop's own field, so the member is moved.
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

/// Removes and returns `endstop` from an `extra` object.
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

/// Restores the moved members, and those of `endstop` that the reader does not know.
pub(crate) fn give_back(extra: &mut Map<String, Value>, mut ours: Map<String, Value>) {
    if let Some(Value::Object(moved)) = ours.get_mut(MOVED) {
        let moved = std::mem::take(moved);
        ours.shift_remove(MOVED);
        extra.extend(moved);
    }
    // Unknown members of the extension may come from a newer version, so they are kept.
    if !ours.is_empty() && !extra.contains_key(OURS) {
        extra.insert(OURS.to_owned(), Value::Object(ours));
    }
}

/// Merges the members of an `extra` object into the members next to it. Members that exist already
/// are stored under `extra`.
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
