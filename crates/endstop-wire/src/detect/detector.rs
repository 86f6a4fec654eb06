//! The trait for custom detection of why a response ended, and the function that applies it.
//!
//! ```
//! use endstop_core::{Confidence, SignalReason, TerminationSignal};
//! use endstop_wire::detect::detector::{FinishDetector, detect};
//! use serde_json::{Value, json};
//!
//! struct Plain;
//! impl FinishDetector for Plain {
//!     fn is_terminal(&self, response: &Value) -> bool {
//!         response["done"] == true
//!     }
//! }
//! // `Plain` does not detect the reason itself, so the fallback is called.
//! let by_flag = |provider: &dyn FinishDetector, response: &Value| {
//!     let reason = if provider.is_terminal(response) { SignalReason::NaturalCompletion } else { SignalReason::InProgress };
//!     TerminationSignal::new(reason, Confidence::Low)
//! };
//! assert!(detect(&Plain, &json!({"done": true}), by_flag).should_terminate);
//! ```

use crate::codec::{anthropic, gemini, openai_responses};
use endstop_core::TerminationSignal;
use serde_json::{Map, Value};

/// A provider that can tell if and why a response ended.
pub trait FinishDetector {
    /// Returns `true` if this response or stream event is the last of its turn.
    fn is_terminal(&self, response: &Value) -> bool;

    /// Returns the reason for the end, or `None` if the provider leaves detection to the fallback.
    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let _ = response;
        None
    }
}

/// Returns the provider's own detection result, or else that of `fallback`.
pub fn detect(
    provider: &dyn FinishDetector,
    response: &Value,
    fallback: impl FnOnce(&dyn FinishDetector, &Value) -> TerminationSignal,
) -> TerminationSignal {
    provider.detect_termination(response).unwrap_or_else(|| fallback(provider, response))
}

/// Anthropic, for responses that another client library parsed: `{"kind": "response" | "delta",
/// "finished": bool, "metadata": {"stopReason": …}}`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic;

impl FinishDetector for Anthropic {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        Some(anthropic::detect_metadata(metadata, finished))
    }
}

/// Google `generateContent`, for responses that another client library parsed: `{"kind": "response"
/// | "delta", "finished": bool, "metadata": {"finishReason": …}}`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

impl FinishDetector for Gemini {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        Some(gemini::detect_metadata(metadata, finished))
    }
}

/// OpenAI Responses, for responses that another client library parsed, in the envelope of
/// [`Anthropic`]. The metadata has a `finish_reason` or a `status`; that of a stream has an
/// `eventType`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

impl FinishDetector for OpenAiResponses {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        Some(openai_responses::detect_metadata(metadata, finished))
    }
}

/// xAI, for responses that another client library parsed, in the envelope of [`Anthropic`]. The
/// metadata has a `status`, with `incomplete_details` if the response is complete; that of a stream
/// has an `eventType`. A content filter is reported in `finish_reason`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xai;

impl FinishDetector for Xai {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        let delta = response["kind"] == "delta";
        Some(openai_responses::detect_xai_metadata(metadata, finished, delta))
    }
}

/// Returns the metadata of a parsed response, and `true` if its stream has ended.
fn envelope(response: &Value) -> (Option<&Map<String, Value>>, bool) {
    let finished = response["kind"] != "delta" || response["finished"] == true;
    // A value without the envelope's fields is the message itself.
    let metadata = if response.get("kind").is_some() || response.get("metadata").is_some() {
        response.get("metadata")
    } else {
        Some(response)
    };
    (metadata.and_then(Value::as_object), finished)
}
