//! Termination signal from the metadata of a Gemini response that another client library parsed.
//!
//! ```
//! use serde_json::json;
//! let metadata = json!({"finishReason": "SAFETY"});
//! let s = endstop_wire::codec::gemini::detect_metadata(metadata.as_object(), true);
//! assert_eq!(s.reason.as_str(), "content_filtered");
//! ```

use crate::dialect::WireFormat;
use crate::signal::finish::{Finish, certainty, finish_of};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// Returns the signal for a response's metadata. `finished` is `true` if the stream has ended or
/// the response is complete. A finish value that ends a turn does so in an unfinished stream too.
/// `hasFunctionCall` marks a turn that requests tools, because the finish value is `STOP` in that
/// case as well.
pub fn detect_metadata(metadata: Option<&Map<String, Value>>, finished: bool) -> TerminationSignal {
    use SignalReason as R;
    let field = |name: &str| metadata.and_then(|m| m.get(name)).filter(|v| !v.is_null());
    let raw = field("finishReason").or_else(|| field("finish_reason")).map(|v| match v {
        Value::String(text) => text.clone(),
        Value::Number(n) => n.to_string(),
        _ => String::new(),
    });
    let raw = raw.unwrap_or_default();
    let finish = finish_of(WireFormat::Gemini, &raw);
    let calls = field("hasFunctionCall") == Some(&Value::Bool(true));
    let (reason, confidence) = match finish {
        Finish::Natural if calls => (R::ToolUse, Confidence::High),
        Finish::Natural => (R::NaturalCompletion, Confidence::High),
        Finish::Length => (R::TokenLimitReached, Confidence::High),
        Finish::ContentFilter => (R::ContentFiltered, certainty(finish, &raw)),
        Finish::Unusable => (R::ErrorTermination, certainty(finish, &raw)),
        Finish::Paused => (R::Paused, certainty(finish, &raw)),
        Finish::Missing => (R::Unknown, Confidence::Low),
        // Values that state explicitly that no reason is given.
        Finish::Unknown if matches!(raw.as_str(), "FINISH_REASON_UNSPECIFIED" | "0") => {
            (R::Unknown, Confidence::Low)
        }
        _ => (R::Unknown, Confidence::Medium),
    };
    let s = TerminationSignal::new(reason, confidence);
    let mut s = if finish == Finish::Missing {
        s.from_field("finished", if finished { "true" } else { "false" })
    } else {
        s.from_field("finishReason", &raw)
    };
    // Without a known value only the end of the stream can end the turn.
    if matches!(finish, Finish::Missing | Finish::Unknown) {
        s.should_terminate = finished;
    }
    s.provider_specific.metadata = metadata.cloned().unwrap_or_default();
    s
}
