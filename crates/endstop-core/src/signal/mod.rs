//! Why the model stopped this turn: one signal for every provider's finish field.
//!
//! ```
//! use endstop_core::{Confidence, SignalReason, TerminationSignal};
//! let s = TerminationSignal::new(SignalReason::TokenLimitReached, Confidence::High)
//!     .from_field("finish_reason", "length");
//! assert!(s.should_terminate);
//! assert_eq!(s.provider_specific.original_value, "length");
//! ```
//!
//! Source: Burnside's unified termination signals; the three reasons that do not end a turn's
//! part in the run (`tool_use`, `paused`, `in_progress`) are ours.

mod default_detection;
mod helpers;

pub use default_detection::{NoDetection, YesNo, default_detection, known_value};
pub use helpers::{calculate_confidence, create_signal, is_signal};

use crate::Termination;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The unified reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalReason {
    /// The model finished.
    NaturalCompletion,
    /// The output cap or the context window cut it.
    TokenLimitReached,
    /// A refusal or a safety filter.
    ContentFiltered,
    /// A stop string of the request matched.
    StopSequence,
    /// The response is an error, or was cut.
    ErrorTermination,
    /// A value that is not understood.
    Unknown,
    /// The model asks for tools; does not end its part in the run.
    ToolUse,
    /// The provider wants to be called again as is; does not end its part in the run.
    Paused,
    /// The provider is still working; does not end its part in the run.
    InProgress,
}

impl SignalReason {
    /// All reasons, in the order of the documentation.
    pub const ALL: [SignalReason; 9] = [
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

    /// Whether it ends the turn's part in the run.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, SignalReason::ToolUse | SignalReason::Paused | SignalReason::InProgress)
    }

    /// How a run ends on a turn with text and this reason, where nothing else decides: no policy, no
    /// hook, no continuation, every retry spent. `None`: the run goes on.
    pub const fn ends_as(self) -> Option<Termination> {
        match self {
            SignalReason::NaturalCompletion | SignalReason::StopSequence => Some(Termination::Stop),
            SignalReason::TokenLimitReached => Some(Termination::ErrorOutputTruncated),
            SignalReason::ContentFiltered => Some(Termination::ErrorContentFiltered),
            SignalReason::ErrorTermination | SignalReason::Unknown | SignalReason::InProgress => {
                Some(Termination::ErrorDuringExecution)
            }
            SignalReason::ToolUse | SignalReason::Paused => None,
        }
    }

    /// The string form: `token_limit_reached`.
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

/// How sure the reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A guess.
    Low,
    /// An explicit signal that contradicts something, or a known value without one.
    Medium,
    /// An explicit, well-known value.
    High,
}

impl Confidence {
    /// The string form: `high`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// Where the reading comes from; the raw value is always kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProviderSpecific {
    /// The field it was read from (`finish_reason`, `error.type`).
    pub original_field: String,
    /// The field's raw value (empty: the field was missing or null).
    pub original_value: String,
    /// Anything else that the provider said about the ending.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// Why the model stopped this turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TerminationSignal {
    /// Whether this turn ends the model's part: false for tools, pauses and turns in progress.
    pub should_terminate: bool,
    /// The unified reason.
    pub reason: SignalReason,
    /// How sure the reading is.
    pub confidence: Confidence,
    /// Where it was read from.
    pub provider_specific: ProviderSpecific,
    /// More for a person to read, where there is more.
    #[serde(default)]
    pub message: Option<String>,
}

impl TerminationSignal {
    /// A signal of this reason; `should_terminate` follows from it.
    pub fn new(reason: SignalReason, confidence: Confidence) -> TerminationSignal {
        TerminationSignal {
            should_terminate: reason.is_terminal(),
            reason,
            confidence,
            provider_specific: ProviderSpecific::default(),
            message: None,
        }
    }

    /// Names the field it was read from and that field's raw value.
    #[must_use]
    pub fn from_field(mut self, field: impl Into<String>, value: impl Into<String>) -> Self {
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
