//! What a provider implements to say why its response ended, and the one function that asks it.
//!
//! ```
//! use endstop_core::{Confidence, SignalReason, TerminationSignal};
//! use endstop_wire::detect::detector::{Provider, detect};
//! use serde_json::{Value, json};
//!
//! struct Plain;
//! impl Provider for Plain {
//!     fn is_terminal(&self, response: &Value) -> bool {
//!         response["done"] == true
//!     }
//! }
//! // It has no detection of its own: the default one is asked.
//! let by_flag = |provider: &dyn Provider, response: &Value| {
//!     let reason = if provider.is_terminal(response) { SignalReason::NaturalCompletion } else { SignalReason::InProgress };
//!     TerminationSignal::new(reason, Confidence::Low)
//! };
//! assert!(detect(&Plain, &json!({"done": true}), by_flag).should_terminate);
//! ```

use crate::codec::{anthropic, gemini, openai_responses};
use endstop_core::TerminationSignal;
use serde_json::{Map, Value};

/// A provider, as far as endings go.
pub trait Provider {
    /// Whether this response, or piece of a stream, is the last of its turn.
    fn is_terminal(&self, response: &Value) -> bool;

    /// Why it ended; `None` where the provider has no detection of its own.
    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let _ = response;
        None
    }
}

/// The provider's own detection where it has one, else `fallback`.
pub fn detect(
    provider: &dyn Provider,
    response: &Value,
    fallback: impl FnOnce(&dyn Provider, &Value) -> TerminationSignal,
) -> TerminationSignal {
    provider.detect_termination(response).unwrap_or_else(|| fallback(provider, response))
}

/// Anthropic, for responses that somebody else parsed:
/// `{"kind": "response" | "delta", "finished": bool, "metadata": {"stopReason": …}}`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic;

impl Provider for Anthropic {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        Some(anthropic::detect_metadata(metadata, finished))
    }
}

/// Google's `generateContent`, for responses that somebody else parsed:
/// `{"kind": "response" | "delta", "finished": bool, "metadata": {"finishReason": …}}`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

impl Provider for Gemini {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        Some(gemini::detect_metadata(metadata, finished))
    }
}

/// OpenAI's Responses, for responses that somebody else parsed, in the envelope of [`Anthropic`]:
/// its metadata has a `finish_reason` or a `status`, and that of a stream an `eventType`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

impl Provider for OpenAiResponses {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        Some(openai_responses::detect_metadata(metadata, finished))
    }
}

/// xAI, for responses that somebody else parsed, in the envelope of [`Anthropic`]: its metadata has
/// a `status`, with `incomplete_details` where the response is whole, and that of a stream an
/// `eventType`; a filter is told by `finish_reason`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xai;

impl Provider for Xai {
    fn is_terminal(&self, response: &Value) -> bool {
        self.detect_termination(response).is_some_and(|s| s.should_terminate)
    }

    fn detect_termination(&self, response: &Value) -> Option<TerminationSignal> {
        let (metadata, finished) = envelope(response);
        let delta = response["kind"] == "delta";
        Some(openai_responses::detect_xai_metadata(metadata, finished, delta))
    }
}

/// The metadata of a response that somebody else parsed, and whether its stream has ended.
fn envelope(response: &Value) -> (Option<&Map<String, Value>>, bool) {
    let finished = response["kind"] != "delta" || response["finished"] == true;
    // What is no envelope is the message itself.
    let metadata = if response.get("kind").is_some() || response.get("metadata").is_some() {
        response.get("metadata")
    } else {
        Some(response)
    };
    (metadata.and_then(Value::as_object), finished)
}
