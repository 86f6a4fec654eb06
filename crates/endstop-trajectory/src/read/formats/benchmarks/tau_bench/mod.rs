//! Reader for tau-bench: runs of a customer-service agent with a simulated user, as its `run.py`
//! writes them, and as rows of the published collection.
//!
//! ```json
//! [{"task_id": 0, "reward": 1.0, "info": {"task": {…}, "source": "user", "reward_info": {…}},
//!   "traj": [{"role": "system", "content": "# Airline Agent Policy …"}, …], "trial": 0}]
//! ```
//!
//! Quirks: no field holds the domain; it is in the first line of the agent's policy. The ending is
//! derived from the user's `###STOP###`, from the tool that hands over to a person, or from an
//! `info` without `reward_info`, which is written if the steps ran out. `info.error` marks a run
//! that crashed. A result that begins with `Error` is a failure. In a row, `db_match` is the
//! success, as defined by its authors; its `score` may differ. A row without messages is a
//! placeholder.

#[cfg(feature = "benchmarks")]
mod reader;
#[cfg(feature = "benchmarks")]
pub(crate) mod row;

use crate::read::format::{Format, Head};
use serde_json::Value;

const NAME: &str = "tau-bench";
const ABOUT: &str = "results of tau-bench: retail and airline, simulated users";

pub(crate) const FORMATS: &[Format] = &[
    Format {
        name: NAME,
        about: ABOUT,
        recognises: |head: &Head<'_>| head.element().is_some_and(is_result),
        of_a_person: false,
        shape: benchmark!(Parts(None, reader::read_part)),
    },
    Format {
        name: NAME,
        about: ABOUT,
        recognises: |head: &Head<'_>| head.first.is_some_and(is_result),
        of_a_person: false,
        shape: benchmark!(Lines(|line, sink| sink(reader::run(line, "")))),
    },
    Format {
        name: NAME,
        about: ABOUT,
        recognises: |head: &Head<'_>| is_row(head, |name| name == "taubench"),
        of_a_person: false,
        shape: benchmark!(Lines(|line, sink| sink(row::run(line, row::Success::DbMatch)))),
    },
];

fn is_result(value: &Value) -> bool {
    // The conversation may begin after the part of the file that is inspected.
    value.get("task_id").is_some()
        && value.get("info").is_some_and(Value::is_object)
        && (value.get("traj").is_some_and(Value::is_array) || value.get("reward").is_some())
}

/// Returns `true` if a file contains rows of a benchmark.
pub(crate) fn is_row(head: &Head<'_>, benchmark: impl Fn(&str) -> bool) -> bool {
    let name = head.member("benchmark_name").and_then(Value::as_str);
    name.is_some_and(benchmark) && head.member("messages").is_some()
}
