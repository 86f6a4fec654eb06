//! The termination signal of a turn, the reasons that it can have, and helpers for the author of a
//! custom termination detection.
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

use crate::termination::Termination;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// The reason why the model stopped, the same for all providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SignalReason {
    /// The model finished.
    NaturalCompletion,
    /// The output was cut at the output limit or at the end of the context window.
    TokenLimitReached,
    /// The model refused, or a safety filter removed the output.
    ContentFiltered,
    /// The model generated a stop string of the request.
    StopSequence,
    /// The response is an error, or the connection ended before it was complete.
    ErrorTermination,
    /// The provider sent a value that is not known.
    Unknown,
    /// The model calls tools; the run continues.
    ToolUse,
    /// The provider expects the same request again; the run continues.
    Paused,
    /// The provider is still working; the run continues.
    InProgress,
}

impl SignalReason {
    /// All reasons, in the order of the documentation.
    pub const ALL: &[SignalReason] = &[
        SignalReason::NaturalCompletion,
        SignalReason::TokenLimitReached,
        SignalReason::ContentFiltered,
        SignalReason::StopSequence,
        SignalReason::ErrorTermination,
        SignalReason::Unknown,
        SignalReason::ToolUse,
        SignalReason::Paused,
        SignalReason::InProgress,
    ];

    /// `true` if the model's part in the run is over.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, SignalReason::ToolUse | SignalReason::Paused | SignalReason::InProgress)
    }

    /// Returns the termination of a run after a turn with text and this reason, if no policy, hook
    /// or continuation decides and all retries are used. `None` if the run continues.
    pub const fn ends_as(self) -> Option<Termination> {
        match self {
            SignalReason::NaturalCompletion | SignalReason::StopSequence => Some(Termination::Stop),
            // Cut or filtered text is never a success, because the answer may be incomplete.
            SignalReason::TokenLimitReached => Some(Termination::ErrorOutputTruncated),
            SignalReason::ContentFiltered => Some(Termination::ErrorContentFiltered),
            // An unknown value does not prove that the answer is complete, and a response that is
            // still in progress after all retries has no answer.
            SignalReason::ErrorTermination | SignalReason::Unknown | SignalReason::InProgress => {
                Some(Termination::ErrorDuringExecution)
            }
            SignalReason::ToolUse | SignalReason::Paused => None,
        }
    }

    /// Returns the string form, for example `token_limit_reached`.
    pub const fn as_str(self) -> &'static str {
        match self {
            SignalReason::NaturalCompletion => "natural_completion",
            SignalReason::TokenLimitReached => "token_limit_reached",
            SignalReason::ContentFiltered => "content_filtered",
            SignalReason::StopSequence => "stop_sequence",
            SignalReason::ErrorTermination => "error_termination",
            SignalReason::Unknown => "unknown",
            SignalReason::ToolUse => "tool_use",
            SignalReason::Paused => "paused",
            SignalReason::InProgress => "in_progress",
        }
    }
}

impl fmt::Display for SignalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The confidence that the reason was read correctly. The three levels are complete: a reader may match
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A guess.
    Low,
    /// An explicit signal that contradicts other data, or a known value without an explicit signal.
    Medium,
    /// An explicit, well-known value.
    High,
}

impl Confidence {
    /// Returns the string form, for example `high`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// The field of the response that the reason was read from, with its raw value.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderSpecific {
    /// Name of the field, for example `finish_reason` or `error.type`.
    pub original_field: Cow<'static, str>,
    /// Raw value of the field; empty if the field was missing or null.
    pub original_value: String,
    /// Other data of the provider about the end of the turn.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

impl Clone for ProviderSpecific {
    fn clone(&self) -> ProviderSpecific {
        let ProviderSpecific { original_field, original_value, metadata } = self;
        ProviderSpecific {
            original_field: original_field.clone(),
            original_value: original_value.clone(),
            metadata: metadata.clone(),
        }
    }

    // By hand, because the derived one allocates again; a run keeps the signal of its last turn.
    fn clone_from(&mut self, from: &ProviderSpecific) {
        let ProviderSpecific { original_field, original_value, metadata } = from;
        self.original_field.clone_from(original_field);
        self.original_value.clone_from(original_value);
        self.metadata.clone_from(metadata);
    }
}

/// The reason why the model stopped a turn, with its source in the provider's response.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct TerminationSignal {
    /// `true` if the model's part in the run is over; `false` for tool calls, pauses and turns in
    /// progress.
    pub should_terminate: bool,
    /// The reason.
    pub reason: SignalReason,
    /// Confidence that the reason was read correctly.
    pub confidence: Confidence,
    /// The field that the reason was read from.
    pub provider_specific: ProviderSpecific,
    /// Further explanation for a person, if there is any.
    #[serde(default)]
    pub message: Option<String>,
}

impl Clone for TerminationSignal {
    fn clone(&self) -> TerminationSignal {
        let TerminationSignal { should_terminate, reason, confidence, provider_specific, message } =
            self;
        TerminationSignal {
            should_terminate: *should_terminate,
            reason: *reason,
            confidence: *confidence,
            provider_specific: provider_specific.clone(),
            message: message.clone(),
        }
    }

    fn clone_from(&mut self, from: &TerminationSignal) {
        let TerminationSignal { should_terminate, reason, confidence, provider_specific, message } =
            from;
        self.should_terminate = *should_terminate;
        self.reason = *reason;
        self.confidence = *confidence;
        self.provider_specific.clone_from(provider_specific);
        self.message.clone_from(message);
    }
}

impl TerminationSignal {
    /// Keeps this signal in the place of another, whose memory is used again.
    pub(crate) fn keep_in(&self, place: &mut Option<TerminationSignal>) {
        match place {
            Some(last) => last.clone_from(self),
            None => *place = Some(self.clone()),
        }
    }

    /// Creates a signal of this reason, which also determines `should_terminate`.
    pub fn new(reason: SignalReason, confidence: Confidence) -> TerminationSignal {
        TerminationSignal {
            should_terminate: reason.is_terminal(),
            reason,
            confidence,
            provider_specific: ProviderSpecific::default(),
            message: None,
        }
    }

    /// Sets the field that the reason was read from, and its raw value.
    #[must_use]
    pub fn from_field(
        mut self,
        field: impl Into<Cow<'static, str>>,
        value: impl Into<String>,
    ) -> Self {
        self.provider_specific.original_field = field.into();
        self.provider_specific.original_value = value.into();
        self
    }

    /// Adds a message for a person.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

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
