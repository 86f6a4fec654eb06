//! GitHub Copilot CLI: the events of a session, `~/.copilot/session-state/ID/events.jsonl`, and the same
//! as it writes them to a pipe.
//!
//! ```text
//! {"type":"assistant.message","data":{"messageId":…,"content":…,"toolRequests":[…]},"id":…,"timestamp":…}
//! {"type":"tool.execution_complete","data":{"toolCallId":…,"success":true,"result":{"content":…}}, …}
//! ```
//!
//! Quirks:
//!
//! - A message is a response of the model, but where the provider split one into several, which have one
//!   `apiCallId`. `assistant.turn_start` and `_end` frame one response or several, as the version has it.
//! - What is streamed comes again whole. A stream that was cut has only its pieces: they are a turn, and a
//!   note says so.
//! - Results come in the order in which tools end. Ids of events repeat in some files: they name nothing.
//! - Of a command the model is told the exit code in the last line: `<exited with exit code 1>`.
//! - Tokens are in `assistant.usage`, which files that are kept leave out: there only the generated ones
//!   are known, and those of the whole session where it was closed once and not gone on with. A usage is
//!   its message's by the `apiCallId`; without one it is the last message's that has none, or the next
//!   one's. What no message takes, and what compactions used, is beside the turns (`totals.extra`). Its
//!   `cost` is in requests of the subscription, not in dollars.
//! - What an agent within does has the call that began it in `parentToolCallId`, or `agentId` around it,
//!   and `subagent.started` has both: a run of its own, among the children.

mod session;
mod thread;

use super::pieces::{self, peek};
use super::{Format, Head, Place, Shape, Sink};
use crate::model::Origin;
use serde_json::Value;

pub(crate) const FORMAT: Format = Format {
    name: "copilot",
    about: "GitHub Copilot CLI: events of a session",
    recognises,
    shape: Shape::Whole(read),
};

/// Events that a session has many of, or begins with.
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
    let objects = pieces::first_objects(head, 20);
    let events = objects.iter().filter(|map| {
        peek(map, "type").is_some_and(|kind| KINDS.contains(&kind))
            && map.get("data").is_some_and(Value::is_object)
            && peek(map, "timestamp").is_some()
            && peek(map, "id").is_some()
    });
    // One that other lines happen to be like is none.
    let events = events.count();
    events > 0 && 2 * events >= objects.len()
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut session = session::Session::default();
    pieces::each_object(bytes, place, sink, |map| session.take(map));
    let origin = Origin { format: FORMAT.name, file: place.file.to_owned(), at: None };
    match session.finish(&origin) {
        Some(run) => sink(Ok(run)),
        None => sink(Err(pieces::nothing(place, "no event of a session"))),
    }
}
