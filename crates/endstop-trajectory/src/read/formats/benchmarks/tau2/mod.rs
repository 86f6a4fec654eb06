//! Reader for tau2-bench: `results.json`, a simulation in a separate file, and rows of the
//! published collection.
//!
//! ```json
//! {"info": {"agent_info": {"llm": "m"}, "environment_info": {"domain_name": "retail"}, "max_steps": 100},
//!  "tasks": [], "simulations": [{"id": "s1", "task_id": "3", "termination_reason": "user_stop",
//!  "reward_info": {"reward": 1.0}, "messages": [{"role": "assistant", "content": "Hi!"}], "trial": 0}]}
//! ```
//!
//! Quirks: users have tools too; their calls and results are in the user's steps, which are not
//! turns. Spoken simulations are recorded in ticks of a fraction of a second (`ticks.rs`). The file
//! of a simulation contains neither model nor limits; these are in `results.json`, in the same
//! folder or the one above.

#[cfg(feature = "benchmarks")]
mod reader;
#[cfg(feature = "benchmarks")]
pub(crate) mod reason;
#[cfg(feature = "benchmarks")]
mod ticks;

use super::tau_bench::is_row;
#[cfg(feature = "benchmarks")]
use super::tau_bench::row;
use crate::read::format::{Format, Head};
use crate::read::io::unpack::HEAD;
use serde_json::Value;

const NAME: &str = "tau2-bench";
const ABOUT: &str = "results and simulations of tau2-bench, written or spoken";

pub(crate) const FORMATS: &[Format] = &[
    Format {
        name: NAME,
        about: ABOUT,
        recognises: is_results,
        of_a_person: false,
        shape: benchmark!(Parts(Some("simulations"), reader::read_part)),
    },
    Format {
        name: NAME,
        about: ABOUT,
        recognises: |head: &Head<'_>| head.first.is_some_and(is_simulation) && !head.is_lines(),
        of_a_person: false,
        shape: benchmark!(Whole(reader::read_file)),
    },
    Format {
        name: NAME,
        about: ABOUT,
        recognises: |head: &Head<'_>| head.first.is_some_and(is_simulation),
        of_a_person: false,
        shape: benchmark!(Lines(|line, sink| sink(reader::run(line, &serde_json::Map::new())))),
    },
    Format {
        name: NAME,
        about: ABOUT,
        recognises: |head: &Head<'_>| is_row(head, |name| name.starts_with("tau2")),
        of_a_person: false,
        shape: benchmark!(Lines(|line, sink| sink(row::run(line, row::Success::Score)))),
    },
];

fn is_results(head: &Head<'_>) -> bool {
    if head.member("simulations").is_some_and(Value::is_array) {
        return head.member("info").is_some() || head.member("tasks").is_some();
    }
    // The tasks come first, and may be longer than the part of the file that is inspected.
    let cut = head.bytes.len() >= HEAD;
    cut && head.member("info").is_some_and(|info| info.get("agent_info").is_some())
}

fn is_simulation(value: &Value) -> bool {
    value.get("task_id").is_some()
        && value.get("termination_reason").is_some()
        && ["messages", "ticks"].iter().any(|name| value.get(*name).is_some_and(Value::is_array))
}
