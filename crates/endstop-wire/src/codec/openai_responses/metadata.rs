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
