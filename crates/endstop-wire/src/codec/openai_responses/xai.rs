//! xAI's responses whose fields somebody else has parsed: its own statuses are those of OpenAI's,
//! but an `incomplete` one needs no details, and a filter is told by a `finish_reason`.
//!
//! ```
//! use serde_json::json;
//! let metadata = json!({"status": "incomplete"});
//! let s = endstop_wire::codec::openai_responses::detect_xai_metadata(metadata.as_object(), true, false);
//! assert_eq!(s.reason, endstop_core::SignalReason::TokenLimitReached);
//! ```

use super::metadata::meaning;
use crate::dialect::Family;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// The signal of a response's metadata; `finished` says whether its stream has ended (a whole
/// response has), `delta` that it is a piece of a stream, which has no details of its own.
///
/// The order: a filter, what cut the answer, the status, the event that ends the stream, any other
/// `finish_reason`. A value that ends a turn does so in an unfinished stream too.
pub fn detect_xai_metadata(
    metadata: Option<&Map<String, Value>>,
    finished: bool,
    delta: bool,
) -> TerminationSignal {
    use SignalReason as R;
    let get = |name: &str| {
        let value = metadata.and_then(|m| m.get(name));
        value.and_then(Value::as_str).filter(|s| !s.is_empty())
    };
    let details = metadata.and_then(|m| m.get("incomplete_details"));
    let details = details.and_then(|d| d["reason"].as_str()).filter(|s| !s.is_empty());
    let status = get("status");
    let event = get("eventType");
    let chat = get("finish_reason").map(|raw| (finish_of(Family::OpenAiChat, raw), raw));
    let of = |finish, field, raw| (meaning(finish), field, raw);
    let found = match (chat, details, status, event) {
        (Some((finish @ Finish::ContentFilter, raw)), ..) => of(finish, "finish_reason", raw),
        (_, Some(raw @ "content_filter"), ..) => {
            of(Finish::ContentFilter, "incomplete_details.reason", raw)
        }
        // Details are of an incomplete answer, also where the status says that it is whole.
        (_, Some(raw), Some("incomplete" | "completed") | None, _) if !delta => {
            let finish = match finish_of(Family::OpenAiResponses, raw) {
                Finish::Unknown if raw == "max_tokens" => Finish::Length,
                finish => finish,
            };
            of(finish, "incomplete_details.reason", raw)
        }
        (_, _, Some("completed") | None, Some(raw @ "response.completed")) => {
            of(whole(chat, metadata), "eventType", raw)
        }
        (_, _, Some(raw @ "incomplete"), _) => of(Finish::Length, "status", raw),
        (_, _, Some(raw @ "completed"), _) => of(whole(chat, metadata), "status", raw),
        (_, _, Some(raw), _) => of(finish_of(Family::OpenAiResponses, raw), "status", raw),
        (_, _, None, Some(raw @ "response.incomplete")) => of(Finish::Length, "eventType", raw),
        (_, _, None, Some(raw @ "response.failed")) => of(Finish::Error, "eventType", raw),
        (Some((finish, raw)), ..) => of(finish, "finish_reason", raw),
        (None, _, None, Some(raw)) => ((R::Unknown, Confidence::Low), "eventType", raw),
        (None, _, None, None) => {
            let raw = if finished { "true" } else { "false" };
            ((R::Unknown, Confidence::Low), "finished", raw)
        }
    };
    let ((reason, confidence), field, raw) = found;
    let mut s = TerminationSignal::new(reason, confidence).from_field(field, raw);
    if reason == R::Unknown {
        s.should_terminate = finished;
    }
    s.provider_specific.metadata = metadata.cloned().unwrap_or_default();
    s
}

/// What a response that says it is whole asks for.
fn whole(chat: Option<(Finish, &str)>, metadata: Option<&Map<String, Value>>) -> Finish {
    let calls = metadata.and_then(|m| m.get("tool_calls")).and_then(Value::as_array);
    match chat {
        Some((finish @ (Finish::Length | Finish::ToolUse), _)) => finish,
        _ if calls.is_some_and(|list| !list.is_empty()) => Finish::ToolUse,
        _ => Finish::Natural,
    }
}
