//! Termination signal from the metadata of a Responses API response that another client library
//! parsed. The metadata has `status` and `incomplete_details` as on the wire, or a `finish_reason`
//! with Chat Completions values.
//!
//! ```
//! use serde_json::json;
//! let metadata = json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
//! let s = endstop_wire::codec::openai_responses::detect_metadata(metadata.as_object(), true);
//! assert_eq!(s.provider_specific.original_value, "max_output_tokens");
//! ```

use crate::dialect::WireFormat;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// Returns the signal for a response's metadata. `finished` is `true` if the stream has ended or
/// the response is complete. A value that ends a turn does so in an unfinished stream too, and so
/// does an `eventType` that ends the stream.
pub fn detect_metadata(metadata: Option<&Map<String, Value>>, finished: bool) -> TerminationSignal {
    use SignalReason as R;
    let get = |name: &str| {
        let value = metadata.and_then(|m| m.get(name));
        value.and_then(Value::as_str).filter(|s| !s.is_empty())
    };
    let event = get("eventType").and_then(|kind| kind.strip_prefix("response."));
    let finished = finished || matches!(event, Some("completed" | "incomplete" | "failed"));
    let details = metadata.and_then(|m| m.get("incomplete_details"));
    let reason = details.and_then(|d| d["reason"].as_str()).filter(|s| !s.is_empty());
    let status = get("status").or(event.filter(|e| matches!(*e, "incomplete" | "failed")));
    // Precedence: a translated `finish_reason`, the reason of an incomplete response, the status.
    let (family, field, raw) = match (get("finish_reason"), reason, status) {
        (Some(raw), _, _) => (WireFormat::OpenAiChat, "finish_reason", raw),
        (None, Some(raw), Some("incomplete")) => {
            (WireFormat::OpenAiResponses, "incomplete_details.reason", raw)
        }
        (None, _, Some(raw)) => (WireFormat::OpenAiResponses, "status", raw),
        (None, _, None) => {
            let mut s = TerminationSignal::new(R::Unknown, Confidence::Low)
                .from_field("finished", if finished { "true" } else { "false" });
            s.should_terminate = finished;
            return s;
        }
    };
    let (reason, confidence) = meaning(finish_of(family, raw));
    let mut s = TerminationSignal::new(reason, confidence).from_field(field, raw);
    // An unknown value must not end a stream that is still running.
    if reason == R::Unknown {
        s.should_terminate = finished;
    }
    s.provider_specific.metadata = metadata.cloned().unwrap_or_default();
    s
}

/// Returns the reason that a value stands for on its own, and the confidence in it.
pub(super) fn meaning(finish: Finish) -> (SignalReason, Confidence) {
    use SignalReason as R;
    match finish {
        Finish::Natural => (R::NaturalCompletion, Confidence::High),
        Finish::Length | Finish::ContextExceeded => (R::TokenLimitReached, Confidence::High),
        Finish::ContentFilter => (R::ContentFiltered, Confidence::High),
        Finish::StopSequence => (R::StopSequence, Confidence::High),
        Finish::ToolUse => (R::ToolUse, Confidence::High),
        Finish::InProgress => (R::InProgress, Confidence::High),
        Finish::Error => (R::ErrorTermination, Confidence::High),
        Finish::Aborted => (R::ErrorTermination, Confidence::Medium),
        _ => (R::Unknown, Confidence::Medium),
    }
}

/// Returns the signal for the metadata of an xAI response. The statuses are OpenAI's, but an `incomplete` one needs no
/// details, and a content filter is reported in `finish_reason`. `finished` is `true` if the stream has ended or
/// the response is complete. `delta` is `true` for a stream event, which has no details.
///
/// ```
/// use serde_json::json;
/// let metadata = json!({"status": "incomplete"});
/// let s = endstop_wire::codec::openai_responses::detect_xai_metadata(metadata.as_object(), true, false);
/// assert_eq!(s.reason, endstop_core::SignalReason::TokenLimitReached);
/// ```
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
