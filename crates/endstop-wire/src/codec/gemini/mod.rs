//! Google `generateContent`, of the Gemini API and of Vertex AI.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request, incrementally |
//! | `read` | reads a request, as a server does |
//! | `decode` | collects a body or a stream's chunks into a turn |
//! | `arguments` | assembles the arguments of a call that is streamed in fragments |
//! | `write` | writes a response, as a server does, and ends a stream that is cut |
//! | `wire` | JSON shapes of responses |
//!
//! Only candidate 0 is read. A stream consists of events (`alt=sse`) or of one JSON array whose
//! elements arrive over time. It has no end marker, so only a finish value makes it complete.
//!
//! `STOP` also ends a turn that requests tools, so the presence of a call decides. A call without
//! an id receives one that is never sent back. Thoughts are stored as plain text in
//! [`endstop_core::Part::Reasoning`], to show and count them; only signed ones are sent back. A
//! `thoughtSignature` is stored as an [`endstop_core::Part::Opaque`] before the text or call that
//! carries it, and is inserted into that part again in the next request. Signed thoughts, signed
//! empty texts and parts of any other kind are stored as opaque parts unchanged.

mod arguments;
mod decode;
mod encode;
mod read;
mod wire;
mod write;

use crate::codec::format::{Format, ResponseWriter};
use crate::dialect::WireFormat;
use crate::signal::finish::{Finish, certainty, finish_of};
use decode::Accumulator;
use encode::Encoder;
use endstop_core::{Confidence, SignalReason, TerminationSignal};
use serde_json::{Map, Value};

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|_, spec| Box::new(Encoder::new(spec))),
    read: |_| Some(&read::READER),
    decode: |_, _| Box::new(Accumulator::new()),
    write: Some(&WRITER),
    error: write::error,
    unknown_response: None,
};

static WRITER: ResponseWriter = ResponseWriter {
    body: write::body,
    events: write::events,
    frame: write::frame,
    watch: write::Following::start,
};

/// Returns the signal for the metadata of a response that another client library parsed. `finished` is `true` if the stream has ended or
/// the response is complete. A finish value that ends a turn does so in an unfinished stream too.
/// `hasFunctionCall` marks a turn that requests tools, because the finish value is `STOP` in that
/// case as well.
///
/// ```
/// use serde_json::json;
/// let metadata = json!({"finishReason": "SAFETY"});
/// let s = endstop_wire::codec::gemini::detect_metadata(metadata.as_object(), true);
/// assert_eq!(s.reason.as_str(), "content_filtered");
/// ```
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
