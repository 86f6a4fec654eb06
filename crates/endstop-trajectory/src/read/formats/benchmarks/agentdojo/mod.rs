//! Reader for AgentDojo: the file of one task, with or without an attack.
//!
//! ```json
//! {"suite_name": "banking", "pipeline_name": "gpt-4o-2024-05-13", "user_task_id": "user_task_0",
//!  "injection_task_id": null, "messages": […], "error": null, "utility": true, "security": false}
//! ```
//!
//! Quirks: content parts hold their text in `content`. A call has `function` and `args`. A result
//! repeats its call, and its `error` is a string or `null`; if it is a string, the model received
//! that string. A run succeeded if `utility` is `true`; `security` is a label about the attack: if
//! there was one, `true` means that it succeeded. The pipeline is named after its model, and after
//! its defence if it has one. An `error` of the run is the reason why it stopped, in free text, so
//! its ending is `unknown`.

#[cfg(feature = "benchmarks")]
mod reader;

use crate::read::format::{Format, Head};

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "agentdojo",
    about: "runs of AgentDojo's tasks",
    recognises,
    of_a_person: false,
    shape: benchmark!(Whole(reader::read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    !head.is_lines()
        && ["suite_name", "pipeline_name", "user_task_id"]
            .iter()
            .all(|name| head.member(name).is_some())
}
