//! Helpers for the author of a custom termination detection.
//!
//! ```
//! use endstop_core::signal::{calculate_confidence, create_signal, is_signal};
//! use endstop_core::{Confidence, SignalReason};
//! let mut signal = create_signal(true, "finish_reason", "stop");
//! assert_eq!((signal.reason, signal.confidence), (SignalReason::Unknown, Confidence::Low));
//! signal.reason = SignalReason::NaturalCompletion;
//! signal.confidence = calculate_confidence(true, true);
//! assert!(is_signal(&serde_json::to_value(&signal).unwrap()));
//! ```
//!
//! Source: Burnside's `createTerminationSignal`, `calculateTerminationConfidence` and
//! `isUnifiedTerminationSignal`.

use super::termination_signal::{Confidence, ProviderSpecific, SignalReason, TerminationSignal};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Creates a signal of unknown reason and low confidence; the caller sets the other fields.
pub fn create_signal(
    should_terminate: bool,
    original_field: impl Into<Cow<'static, str>>,
    original_value: impl Into<String>,
) -> TerminationSignal {
    TerminationSignal {
        should_terminate,
        reason: SignalReason::Unknown,
        confidence: Confidence::Low,
        provider_specific: ProviderSpecific {
            original_field: original_field.into(),
            original_value: original_value.into(),
            metadata: Map::new(),
        },
        message: None,
    }
}

/// Returns `High` for an explicit signal with a well-known value, `Medium` if only one of the two
/// is true, else `Low`.
pub const fn calculate_confidence(explicit_signal: bool, well_known_value: bool) -> Confidence {
    match (explicit_signal, well_known_value) {
        (true, true) => Confidence::High,
        (true, false) | (false, true) => Confidence::Medium,
        (false, false) => Confidence::Low,
    }
}

/// Returns `true` if a JSON value is a termination signal, with keys in snake case
/// (`should_terminate`) or as Burnside spells them (`shouldTerminate`). Further keys are allowed.
/// Differences from Burnside: the reason must be known, a message must be a string, and the
/// metadata must be an object.
pub fn is_signal(value: &Value) -> bool {
    let Value::Object(signal) = value else {
        return false;
    };
    let field = |map: &Map<String, Value>, ours: &str, theirs: &str| {
        map.get(ours).or_else(|| map.get(theirs)).cloned()
    };
    // The reason and the confidence are spelt alike in both, so only the other keys need two names.
    let reason = signal.get("reason").and_then(Value::as_str);
    let confidence = signal.get("confidence").and_then(Value::as_str);
    let specific = field(signal, "provider_specific", "providerSpecific");
    let Some(Value::Object(specific)) = specific else {
        return false;
    };
    field(signal, "should_terminate", "shouldTerminate").is_some_and(|v| v.is_boolean())
        && reason.is_some_and(|r| SignalReason::ALL.iter().any(|known| known.as_str() == r))
        && confidence.is_some_and(|c| matches!(c, "low" | "medium" | "high"))
        && field(&specific, "original_field", "originalField").is_some_and(|v| v.is_string())
        && field(&specific, "original_value", "originalValue").is_some_and(|v| v.is_string())
        && specific.get("metadata").is_none_or(|m| m.is_object() || m.is_null())
        && signal.get("message").is_none_or(|m| m.is_string() || m.is_null())
}
