//! The events of a run as updates of a task.

use super::task::{Known, status};
use crate::backend::event_of;
use crate::clock::wall_ms;
use serde_json::{Value, json};

/// The meaning of an event for the reader of a task.
#[derive(Debug, PartialEq)]
pub(super) enum Update {
    /// The task works, and this is what it said.
    Working(Option<String>),
    /// The task waits for a decision about this call.
    Waits(Value),
    /// The run has ended.
    Ended,
}

/// Returns the meaning of a frame; `None` if it has none, as for a delta.
pub(super) fn of_frame(frame: &[u8]) -> Option<Update> {
    let event = event_of(frame)?;
    // The calls of nested runs are details of the outer call.
    if event.get("path").is_some() {
        return None;
    }
    match event["type"].as_str()? {
        "turn_finished" => {
            let text = event["text"].as_str().filter(|text| !text.trim().is_empty());
            // The last text of a run is its result, which the end brings.
            let goes_on = event["tool_calls"].as_u64().unwrap_or(0) > 0;
            text.filter(|_| goes_on).map(|text| Update::Working(Some(text.to_owned())))
        }
        "tool_started" => Some(Update::Working(None)),
        "approval_requested" => Some(Update::Waits(request_of(&event))),
        "finished" => Some(Update::Ended),
        _ => None,
    }
}

/// Returns a request for approval, as a message shows it.
fn request_of(event: &Value) -> Value {
    json!({
        "request_id": event["request_id"], "tool": event["name"], "arguments": event["canonical"],
    })
}

/// Returns the update of a task that has not ended.
pub(super) fn status_update(id: &str, update: &Update) -> Value {
    let (state, parts) = match update {
        Update::Waits(request) => {
            ("TASK_STATE_INPUT_REQUIRED", Some(vec![json!({"data": request})]))
        }
        Update::Working(text) => {
            ("TASK_STATE_WORKING", text.as_ref().map(|text| vec![json!({"text": text})]))
        }
        Update::Ended => ("TASK_STATE_WORKING", None),
    };
    let status = status(id, state, parts, wall_ms());
    json!({"statusUpdate": {"taskId": id, "contextId": id, "status": status}})
}

/// Returns the last updates of a task: its result, and its state.
pub(super) fn last_updates(known: &Known) -> Vec<Value> {
    let id = &known.run.id;
    // The result first: clients stop reading at the last state.
    let artifact = known.artifact().map(|artifact| {
        json!({"artifactUpdate": {
            "taskId": id, "contextId": id, "artifact": artifact, "lastChunk": true,
        }})
    });
    let ended = json!({"statusUpdate": {
        "taskId": id, "contextId": id, "status": known.status(),
        "metadata": {"endstop": known.facts()},
    }});
    artifact.into_iter().chain([ended]).collect()
}
