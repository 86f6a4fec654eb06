//! Termination signal from the metadata of an Anthropic message that another client library parsed.
//! The stop reason is `stop_reason`, or `stopReason` in camel case.
//!
//! ```
//! use serde_json::json;
//! let metadata = json!({"stopReason": "pause_turn"});
//! let s = endstop_wire::codec::anthropic::detect_metadata(metadata.as_object(), true);
//! assert!(!s.should_terminate);
//! ```

use crate::dialect::WireFormat;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// Returns the signal for a message's metadata. `finished` is `true` if the stream has ended or the
/// response is complete. A stop reason that ends a turn does so in an unfinished stream too.
pub fn detect_metadata(metadata: Option<&Map<String, Value>>, finished: bool) -> TerminationSignal {
    use SignalReason as R;
    let field = |snake: &str, camel: &str| {
        metadata
            .and_then(|m| m.get(snake).filter(|v| !v.is_null()).or_else(|| m.get(camel)))
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
    };
    let Some(raw) = field("stop_reason", "stopReason") else {
        let mut s = TerminationSignal::new(R::Unknown, Confidence::Low)
            .from_field("finished", if finished { "true" } else { "false" });
        // Without a stop reason only the end of the stream can end the turn.
        s.should_terminate = finished;
        return s;
    };
    let (reason, confidence) = match finish_of(WireFormat::Anthropic, raw) {
        Finish::Natural => (R::NaturalCompletion, Confidence::High),
        Finish::Length | Finish::ContextExceeded => (R::TokenLimitReached, Confidence::High),
        Finish::StopSequence => (R::StopSequence, Confidence::High),
        Finish::ContentFilter => (R::ContentFiltered, Confidence::High),
        Finish::ToolUse => (R::ToolUse, Confidence::High),
        Finish::Paused if raw == "compaction" => (R::Paused, Confidence::Medium),
        Finish::Paused => (R::Paused, Confidence::High),
        _ => (R::Unknown, Confidence::Medium),
    };
    let mut s = TerminationSignal::new(reason, confidence).from_field("stop_reason", raw);
    // An unknown stop reason must not end a stream that is still running.
    if reason == R::Unknown {
        s.should_terminate = finished;
    }
    s.provider_specific.metadata = metadata.cloned().unwrap_or_default();
    s
}
