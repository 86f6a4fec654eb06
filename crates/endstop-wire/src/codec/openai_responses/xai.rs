//! Termination signal from the metadata of an xAI response that another client library parsed. The
//! statuses are OpenAI's, but an `incomplete` one needs no details, and a content filter is
//! reported in `finish_reason`.
//!
//! ```
//! use serde_json::json;
//! let metadata = json!({"status": "incomplete"});
//! let s = endstop_wire::codec::openai_responses::detect_xai_metadata(metadata.as_object(), true, false);
//! assert_eq!(s.reason, endstop_core::SignalReason::TokenLimitReached);
//! ```

use super::metadata::meaning;
use crate::dialect::WireFormat;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// Returns the signal for a response's metadata. `finished` is `true` if the stream has ended or
/// the response is complete. `delta` is `true` for a stream event, which has no details.
///
/// Values are checked in this order: a filter, the reason of a cut answer, the status, the event
/// that ends the stream, any other `finish_reason`. A value that ends a turn does so in an
/// unfinished stream too.
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
    let chat = get("finish_reason").map(|raw| (finish_of(WireFormat::OpenAiChat, raw), raw));
    let of = |finish, field, raw| (meaning(finish), field, raw);
    let found = match (chat, details, status, event) {
        (Some((finish @ Finish::ContentFilter, raw)), ..) => of(finish, "finish_reason", raw),
        (_, Some(raw @ "content_filter"), ..) => {
            of(Finish::ContentFilter, "incomplete_details.reason", raw)
        }
        // Details mean that the answer is incomplete, even if the status reports it as complete.
        (_, Some(raw), Some("incomplete" | "completed") | None, _) if !delta => {
            let finish = match finish_of(WireFormat::OpenAiResponses, raw) {
                // xAI may also report the output cap as `max_tokens`.
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
        (_, _, Some(raw), _) => of(finish_of(WireFormat::OpenAiResponses, raw), "status", raw),
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
    // An unknown value must not end a stream that is still running.
    if reason == R::Unknown {
        s.should_terminate = finished;
    }
    s.provider_specific.metadata = metadata.cloned().unwrap_or_default();
    s
}

/// Returns the meaning of a response that is reported as complete.
fn whole(chat: Option<(Finish, &str)>, metadata: Option<&Map<String, Value>>) -> Finish {
    let calls = metadata.and_then(|m| m.get("tool_calls")).and_then(Value::as_array);
    match chat {
        Some((finish @ (Finish::Length | Finish::ToolUse), _)) => finish,
        _ if calls.is_some_and(|list| !list.is_empty()) => Finish::ToolUse,
        _ => Finish::Natural,
    }
}
