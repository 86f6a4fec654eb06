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
//!   are known. Its `cost` is in requests of the subscription, not in dollars.
//! - What an agent within does has the call that began it in `parentToolCallId`, or `agentId` around it: a
//!   run of its own, among the children.

mod session;

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

/// What the names of its events begin with.
const KINDS: &[&str] = &["session.", "assistant.", "user.", "tool.", "system."];

fn recognises(head: &Head<'_>) -> bool {
    pieces::first_objects(head, 20).iter().any(|map| {
        peek(map, "type").is_some_and(|kind| KINDS.iter().any(|start| kind.starts_with(start)))
            && map.get("data").is_some_and(Value::is_object)
            && map.contains_key("timestamp")
    })
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
