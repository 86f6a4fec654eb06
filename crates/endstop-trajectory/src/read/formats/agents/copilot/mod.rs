//! Reader for GitHub Copilot CLI: the events of a session,
//! `~/.copilot/session-state/ID/events.jsonl`, and the same events as written to a pipe.
//!
//! ```text
//! {"type":"assistant.message","data":{"messageId":…,"content":…,"toolRequests":[…]},"id":…,"timestamp":…}
//! {"type":"tool.execution_complete","data":{"toolCallId":…,"success":true,"result":{"content":…}}, …}
//! ```
//!
//! Quirks:
//!
//! - A message is one model response, unless the provider split a response into several messages,
//!   which then share an `apiCallId`. `assistant.turn_start` and `_end` enclose one or several
//!   responses, depending on the version.
//! - Streamed content is repeated in a complete message. A stream that was cut off leaves only
//!   deltas: these become a turn, and a note counts them.
//! - Results come in the order in which tools finish. In some files event ids repeat, so they do
//!   not identify an event.
//! - The model receives the exit code of a command in the last line: `<exited with exit code 1>`.
//! - Token usage is in `assistant.usage`, which stored files omit. They contain only the generated
//!   tokens, and the totals of the session if it was closed once and not resumed. A usage belongs
//!   to the message with the same `apiCallId`; without one it belongs to the last message that has
//!   no usage, or to the next one. Usage that matches no message, and the usage of compactions, is
//!   counted outside the turns (`totals.extra`). The `cost` is in requests of the subscription, not
//!   in dollars.
//! - Events of a subagent name the call that started it in `parentToolCallId`, or in `agentId`
//!   outside `data`; `subagent.started` has both. A subagent is a separate run among the children.

mod session;
mod thread;

use crate::model::Origin;
use crate::read::build::fields::{Fields, peek};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "copilot",
    about: "GitHub Copilot CLI: events of a session",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

/// Events that are frequent in a session, or that begin it.
const KINDS: &[&str] = &[
    "session.start",
    "session.resume",
    "session.info",
    "session.model_change",
    "session.mcp_servers_loaded",
    "session.tools_updated",
    "session.skills_loaded",
    "session.error",
    "session.idle",
    "session.shutdown",
    "system.message",
    "user.message",
    "assistant.turn_start",
    "assistant.intent",
    "assistant.reasoning",
    "assistant.reasoning_delta",
    "assistant.message",
    "assistant.message_start",
    "assistant.message_delta",
    "assistant.streaming_delta",
    "assistant.usage",
    "assistant.turn_end",
    "tool.execution_start",
    "tool.execution_complete",
    "hook.start",
    "hook.end",
    "abort",
];

fn recognises(head: &Head<'_>) -> bool {
    let objects = json_lines::first_objects(head);
    let events = objects
        .iter()
        .filter(|map| is_event(map) && peek(map, "type").is_some_and(|kind| KINDS.contains(&kind)));
    // At least half of the lines must match, so that a log with a few similar lines is not taken
    // for a session.
    let events = events.count();
    events > 0 && 2 * events >= objects.len()
}

fn is_event(map: &Fields) -> bool {
    map.get("data").is_some_and(Value::is_object)
        && ["id", "timestamp", "type"].iter().all(|key| peek(map, key).is_some())
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut session = session::Session::default();
    json_lines::each_object(bytes, place, sink, is_event, |map| session.take(map));
    let origin = Origin { at: None, ..Origin::default() };
    match session.finish(&origin) {
        Some(run) => sink(Ok(run)),
        None => sink(Err(json_lines::nothing(place, "no event of a session"))),
    }
}
