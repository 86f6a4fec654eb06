//! Reader for METR's MALT: transcripts of agents as trees of messages, in rows of the collection.
//!
//! ```json
//! {"run_id": 218596, "task_id": "password_check/1", "model": "…", "labels": ["normal"], "nodes": [
//!   {"node_id": 3, "parent_node_id": 1, "branch_id": 0, "node_data": {"first_called_at": 1735091488760,
//!     "message": {"role": "assistant", "content": "…", "function_call": null, "name": null},
//!     "metadata": {…}, "source_generation_index": 1475784247003432}}]}
//! ```
//!
//! Quirks:
//!
//! - A path from a root to a leaf is the input of a model call, followed by its output. An agent
//!   that rewrites its prompt for each call has a root for each of them; an agent that samples
//!   several responses has them as siblings. Each message of the model is a turn, whichever branch
//!   it is on. Steps are ordered by `first_called_at`, with a parent before its children. The
//!   step's extra contains the position of its message in the tree.
//! - A scaffold without function calling writes calls in the text, such as `<bash>ls</bash>`, and
//!   results in the next message, `<bash-output>…</bash-output>`, with `Exit code: 1` in it. Both
//!   are decoded if the result names the last call in the text. `<submit>` contains the final
//!   answer, and its end tag may be missing.
//! - Success is not recorded: `labels` describe the agent's behaviour.

#[cfg(feature = "benchmarks")]
mod reader;

use crate::read::build::fields::Fields;
use crate::read::format::{Format, Head};
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[
    Format {
        name: "malt",
        about: ABOUT,
        recognises,
        of_a_person: false,
        shape: benchmark!(Elements(None, reader::read)),
    },
    Format {
        name: "malt",
        about: ABOUT,
        recognises: of_lines,
        of_a_person: false,
        shape: benchmark!(Lines(reader::read)),
    },
    Format {
        name: "malt",
        about: ABOUT,
        recognises: is_one,
        of_a_person: false,
        shape: benchmark!(Whole(reader::read_one)),
    },
];

const ABOUT: &str = "METR's MALT: trees of messages, rows of the collection";

fn recognises(head: &Head<'_>) -> bool {
    head.element().and_then(Value::as_object).is_some_and(is_row)
}

fn of_lines(head: &Head<'_>) -> bool {
    is_one(head) && head.is_lines()
}

fn is_one(head: &Head<'_>) -> bool {
    head.first.and_then(Value::as_object).is_some_and(is_row)
}

fn is_row(map: &Fields) -> bool {
    let of_message = |node: &Value| node.pointer("/node_data/message").is_some();
    map.contains_key("run_id")
        && map.get("nodes").and_then(Value::as_array).is_some_and(|nodes| {
            // A row without messages is recognised by a member that only MALT has.
            nodes.first().map_or_else(|| map.contains_key("has_chain_of_thought"), of_message)
        })
}
