//! Reader for Codex: the rollouts of `~/.codex/sessions`, and the output of `codex exec --json`.
//!
//! ```text
//! {"timestamp":…,"type":"response_item","payload":{"type":"function_call","call_id":…, …}}
//! {"type":"item.completed","item":{"id":"item_1","type":"command_execution", …}}
//! ```
//!
//! Quirks of rollouts:
//!
//! - The items of a response follow one another without an end marker. A response ends at a tool
//!   result, at a message to the model, or at a token count that grew. A count is repeated when
//!   rate limits change; such a repetition ends nothing.
//! - Items and events carry the same content (`agent_message` is the message of the item before
//!   it). The reader uses the items, and from the events only token counts, endings and tool
//!   outcomes.
//! - The exit code is in the text that the model received (`Process exited with code 1`, or
//!   `{"output":…,"metadata":{"exit_code":1}}`), or in an event with the call's id.
//! - A forked session begins with the lines of the other one. They are steps that are context
//!   (`copied.rs`).
//! - Before September 2025 a line was the item itself, and the first line the session. The earliest
//!   rollouts were a single document, `{"session":…,"items":[…]}`.
//!
//! Quirks of `exec --json`:
//!
//! - It records items but not responses. A message, a thought or a call after a result begins a
//!   turn; calls that run at the same time belong to one turn. Turns are therefore estimated, and
//!   the run has the tag `estimated_turns`.
//! - The `usage` is the sum of all responses.

mod copied;
mod ending;
mod exec;
mod rollout;

use crate::model::{Origin, Trajectory};
use crate::read::build::fields::{self, Fields, peek};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use endstop_core::bounded_json;
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "codex",
    about: "Codex: session rollouts, and output of codex exec --json",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

/// The record types of a rollout.
const KINDS: &[&str] = &["session_meta", "response_item", "turn_context", "event_msg", "compacted"];

fn recognises(head: &Head<'_>) -> bool {
    if head.name.starts_with("rollout-") && as_document(head.bytes).is_some() {
        return true;
    }
    let objects = json_lines::first_objects(head);
    objects.iter().any(is_of_rollout) || objects.iter().any(is_of_exec) || is_bare(objects)
}

fn is_of_rollout(map: &Fields) -> bool {
    peek(map, "type").is_some_and(|kind| KINDS.contains(&kind))
        && map.get("payload").is_some_and(Value::is_object)
}

/// Returns `true` if an object is a line of its own. An item of an early rollout could also be the payload
/// of a line.
fn is_record(map: &Fields) -> bool {
    peek(map, "type").is_some_and(|kind| {
        map.get("payload").is_some_and(Value::is_object)
            || ["thread.", "turn.", "item."].iter().any(|of| kind.starts_with(of))
    })
}

fn is_of_exec(map: &Fields) -> bool {
    match peek(map, "type") {
        Some("thread.started") => map.contains_key("thread_id"),
        Some("item.started" | "item.updated" | "item.completed") => {
            map.get("item").is_some_and(|item| item.get("type").is_some())
        }
        _ => false,
    }
}

/// Returns `true` if the lines are those of an early rollout: a session, then items.
fn is_bare(objects: &[Fields]) -> bool {
    let Some((first, others)) = objects.split_first() else { return false };
    let is_meta = !first.contains_key("type")
        && first.contains_key("id")
        && first.contains_key("timestamp")
        && ["instructions", "git"].iter().any(|key| first.contains_key(*key));
    is_meta && others.iter().all(|map| map.contains_key("record_type") || rollout::is_item(map))
}

/// Parses the earliest form: a single document.
fn as_document(bytes: &[u8]) -> Option<Fields> {
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let map: Fields = bounded_json::from_slice(bytes).ok()?;
    let is = map.get("session").is_some_and(Value::is_object)
        && map.get("items").is_some_and(Value::is_array);
    is.then_some(map)
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let run = if let Some(mut document) = as_document(bytes) {
        let mut rollout = rollout::Rollout::default();
        rollout.session(fields::object(&mut document, "session").unwrap_or_default());
        for item in fields::list(&mut document, "items").unwrap_or_default() {
            match item {
                Value::Object(item) => rollout.item(item, None),
                other => rollout.odd(fields::kind_of(&other)),
            }
        }
        rollout.finish(place.file_of)
    } else {
        let mut rollout = rollout::Rollout::default();
        let mut exec = exec::Exec::default();
        json_lines::each_object(bytes, place, sink, is_record, |map| {
            // Event names contain a dot, such as `item.completed`; record types of a rollout do
            // not.
            let named = peek(&map, "type").is_some_and(|kind| kind.contains('.'));
            if named || (exec.is_begun() && !map.contains_key("payload")) {
                exec.take(map)
            } else {
                rollout.take(map)
            }
        });
        match (rollout.finish(place.file_of), exec.finish()) {
            (None, exec) => exec,
            (rollout, None) => rollout,
            // A file with both forms is two runs, for example if two outputs were concatenated.
            (rollout, Some(exec)) => {
                give(exec, Some(1), sink);
                rollout
            }
        }
    };
    match run {
        Some(run) => give(run, None, sink),
        None => sink(Err(json_lines::nothing(place, "no record of a session"))),
    }
}

fn give(mut run: Trajectory<'static>, at: Option<u64>, sink: &mut Sink<'_>) {
    run.origin = Origin { at, ..Origin::default() };
    run.agent.get_or_insert_with(|| "codex".into());
    sink(Ok(run));
}
