//! Reader for InterCode: the logs of its experiments, one file with many numbered runs.
//!
//! ```json
//! {"0": {"environment": "ic_bash", "dataset": "./data/nl2bash/nl2bash_fs_1.json", "task_id": 0, "query": "…",
//!   "turn_history": {"actions": ["ls"], "observations": ["a\n"], "rewards": [1.0], "valid_action": [true]},
//!   "summary": {"max_reward": 1.0, "turns_taken": 1, "turns_max": 10}}}
//! ```
//!
//! Quirks: plans are under `logs`, next to `meta`. Runs by people have a `trajectory` of actions
//! and observations. The lists of a history may differ in length: an action may have no
//! observation. The ending is not recorded; it is derived from `submit`, from a reward of 1, at
//! which the environment stops, from the number of turns, or from the end of a plan. A result is a
//! failure if the action was not valid, or if its text is one of the environments' error messages.
//! No field contains the model.

#[cfg(feature = "benchmarks")]
mod reader;

use crate::read::format::{Format, Head};
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "intercode",
    about: "logs of InterCode's experiments: bash, SQL, Python, CTF",
    recognises,
    of_a_person: false,
    shape: benchmark!(Whole(reader::read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    let Some(Value::Object(file)) = head.first else { return false };
    let runs = file.get("logs").and_then(Value::as_object).unwrap_or(file);
    runs.values().next().is_some_and(|run| {
        let environment = run.get("environment").and_then(Value::as_str);
        environment.is_some_and(|name| name.starts_with("ic_")) && run.get("query").is_some()
    })
}
