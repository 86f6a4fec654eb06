//! Anthropic Messages API.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's events into a turn |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//!
//! Thinking is stored twice: as plain text in [`endstop_core::Part::Reasoning`], to show and count
//! it, and as the complete signed block in [`endstop_core::Part::Opaque`], to send it back. Blocks
//! of the server's own work (server tools and their results, compaction, fallback) are stored as
//! opaque parts only. A `tool_use` block that server-side code called (`caller.type` =
//! `code_execution_…`) is the client's work only if the turn stopped with `tool_use`, because only
//! then the API waits for its result.

mod call_ids;
mod decode;
mod encode;
pub(super) mod read;
mod wire;
pub(super) mod write;

use crate::codec::format::{Format, ResponseWriter};
use crate::codec::response::write::sse;
use crate::dialect::WireFormat;
use crate::signal::finish::{Finish, finish_of};
pub(super) use decode::Accumulator;
pub(super) use encode::Encoder;
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|dialect, spec| {
        Box::new(match dialect.version_in_body {
            Some(version) => Encoder::addressed(spec, version, spec.stream),
            None => Encoder::new(spec),
        })
    }),
    read: |_| Some(&read::READER),
    decode: |_, _| Box::new(Accumulator::new()),
    write: Some(&WRITER),
    error: write::error,
    unknown_response: Some(write::unknown_response),
};

static WRITER: ResponseWriter = ResponseWriter {
    body: write::body,
    events: write::events,
    frame: sse,
    watch: write::Following::start,
};

/// Returns the signal for the metadata of a message that another client library parsed, with `stop_reason` or
/// `stopReason`. `finished` is `true` if the stream has ended or the
/// response is complete. A stop reason that ends a turn does so in an unfinished stream too.
///
/// ```
/// use serde_json::json;
/// let metadata = json!({"stopReason": "pause_turn"});
/// let s = endstop_wire::codec::anthropic::detect_metadata(metadata.as_object(), true);
/// assert!(!s.should_terminate);
/// ```
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
