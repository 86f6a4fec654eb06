//! Reader for the ReAct baselines of the ToT-HF survey: one run per file.
//!
//! ```json
//! {"run_id": "BASELINE-REACT-…", "condition_id": "baseline-react", "task_id": "subset-sum-demo",
//!   "item_id": "ss-v1-002", "input_data": …, "outcome": "timeout", "error_type": "max_steps_exceeded",
//!   "metrics": {"success": 0, "tokens_in": 1496, "tokens_out": 614, …}, "max_steps": 5,
//!   "trace": ["STEP 1 MODEL: THINK: …\nACTION: calc 1 + 1", "STEP 1 OBSERVATION: 2"]}
//! ```
//!
//! Quirks:
//!
//! - The model's text is cut after some 900 characters. If the action was in the part that was cut,
//!   the observation is a result without a known call.
//! - The harness runs the first `ACTION:` of a text, and ignores what follows it; its first word is
//!   the tool. The observation `no-action` means that the text contained no action.
//! - A tool's failure begins with `error` or `invalid`.
//! - `outcome` is `timeout` if the steps ran out; `error_type` distinguishes the two. Tokens are
//!   counted for the whole run.

#[cfg(feature = "benchmarks")]
mod reader;

use crate::read::format::{Format, Head};
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[
    Format {
        name: "tothf",
        about: ABOUT,
        recognises: of_lines,
        of_a_person: false,
        shape: benchmark!(Lines(reader::run_of)),
    },
    Format {
        name: "tothf",
        about: ABOUT,
        recognises,
        of_a_person: false,
        shape: benchmark!(Whole(reader::read)),
    },
];

const ABOUT: &str = "ReAct baselines of the ToT-HF survey";

fn recognises(head: &Head<'_>) -> bool {
    head.first.and_then(Value::as_object).is_some_and(|run| {
        run.contains_key("condition_id")
            && run.contains_key("item_id")
            && run.get("trace").is_some_and(Value::is_array)
    })
}

fn of_lines(head: &Head<'_>) -> bool {
    recognises(head) && head.is_lines()
}
