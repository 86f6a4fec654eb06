//! How a run ended: one of a closed list, each with a category that says what to do next.
//!
//! ```
//! use endstop_core::{Category, Termination};
//! let t: Termination = "error_max_turns".parse().unwrap();
//! assert_eq!(t.category(), Category::Capacity);
//! assert!(!t.is_success());
//! assert_eq!(t.category().exit_status(t), 20);
//! // A name of a newer version reads as a failure, never as a success.
//! assert!(Termination::is_success_str("stop") && !Termination::is_success_str("error_of_2030"));
//! ```
//!
//! Source: ExAthena's `Terminations` (14 subtypes); those marked "ours" name events that the
//! sources have without a run-level name.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What to do about an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Nothing: the work is done.
    Success,
    /// Running again may help.
    Retryable,
    /// A limit was met: raise it, or ask for less.
    Capacity,
    /// Running again will not help.
    Fatal,
}

impl Category {
    /// The string form: `capacity`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Category::Success => "success",
            Category::Retryable => "retryable",
            Category::Capacity => "capacity",
            Category::Fatal => "fatal",
        }
    }

    /// The exit status of a process whose run ended as `termination`: 0 success, 10 retryable,
    /// 20 capacity, 30 fatal, and by the shell's convention 130 cancelled, 143 terminated.
    pub const fn exit_status(self, termination: Termination) -> u8 {
        match (termination, self) {
            (Termination::Cancelled, _) => 130,
            (Termination::Terminated, _) => 143,
            (_, Category::Success) => 0,
            (_, Category::Retryable) => 10,
            (_, Category::Capacity) => 20,
            (_, Category::Fatal) => 30,
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The five reasons of Burnside's multi-turn loop, for whoever knows those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MultiTurnReason {
    /// The work was finished.
    NaturalCompletion,
    /// The turn cap.
    MaxIterations,
    /// The clock.
    Timeout,
    /// A person.
    Cancelled,
    /// Everything else.
    Error,
}

macro_rules! terminations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $category:ident;)*) => {
        /// Why a run ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Termination {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Termination {
            const ALL: &[Termination] = &[$(Termination::$variant,)*];

            /// The string form: `error_max_turns`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Termination::$variant => $name,)* }
            }

            /// What to do about it.
            pub const fn category(self) -> Category {
                match self { $(Termination::$variant => Category::$category,)* }
            }
        }
    };
}

terminations! {
    /// The model answered in text, asked for no tool, and the signal says the answer is whole.
    Stop = "stop", Success;
    /// The answer was declared, by the `finish` tool or found by a policy.
    Submitted = "submitted", Success;
    /// The turn cap.
    ErrorMaxTurns = "error_max_turns", Capacity;
    /// The cost ceiling.
    ErrorMaxBudgetUsd = "error_max_budget_usd", Capacity;
    /// The run's token ceiling (ours).
    ErrorMaxTokens = "error_max_tokens", Capacity;
    /// The run's wall-clock ceiling (ours).
    ErrorTimeout = "error_timeout", Capacity;
    /// The repairs of a structured answer are spent.
    ErrorMaxStructuredOutputRetries = "error_max_structured_output_retries", Capacity;
    /// Mistakes in a row, or a policy that gave up.
    ErrorConsecutiveMistakes = "error_consecutive_mistakes", Capacity;
    /// The context was exceeded, and compaction did not help.
    ErrorPromptTooLong = "error_prompt_too_long", Capacity;
    /// Stuck; the outcome's `no_progress_snapshot` carries the proof.
    ErrorNoProgress = "error_no_progress", Capacity;
    /// The turn's output budget went into reasoning, and one larger retry did not help.
    ErrorThinkingStarved = "error_thinking_starved", Capacity;
    /// The final answer was cut by the token limit (ours).
    ErrorOutputTruncated = "error_output_truncated", Capacity;
    /// A provider or tool failure that retries did not mend.
    ErrorDuringExecution = "error_during_execution", Retryable;
    /// The output could not be parsed as structured output or tool calls.
    ErrorSchemaValidation = "error_schema_validation", Retryable;
    /// A refusal or a safety filter (ours).
    ErrorContentFiltered = "error_content_filtered", Fatal;
    /// The provider refuses, and repeating will not help (ours).
    ErrorProviderRejected = "error_provider_rejected", Fatal;
    /// The model declared through `finish` that the task cannot be done (ours).
    GaveUp = "gave_up", Fatal;
    /// A hook or a tool said halt.
    ErrorHalted = "error_halted", Fatal;
    /// Compaction failed.
    ErrorCompactionFailed = "error_compaction_failed", Fatal;
    /// 401 or 403.
    ErrorProviderAuth = "error_provider_auth", Fatal;
    /// The caller cancelled; the loop is usable again (ours).
    Cancelled = "cancelled", Fatal;
    /// The loop was terminated (ours).
    Terminated = "terminated", Fatal;
}

impl Termination {
    /// Every termination, in the order of the documentation.
    pub fn all() -> &'static [Termination] {
        Self::ALL
    }

    /// `true` for `stop` and `submitted`, and for nothing else.
    pub const fn is_success(self) -> bool {
        matches!(self, Termination::Stop | Termination::Submitted)
    }

    /// `true` for all that are not a success.
    pub const fn is_error(self) -> bool {
        !self.is_success()
    }

    /// [`is_success`](Self::is_success) of a name; a name that this version does not know is a
    /// failure.
    pub fn is_success_str(name: &str) -> bool {
        name.parse().is_ok_and(Termination::is_success)
    }

    /// [`category`](Self::category) of a name; a name that this version does not know is fatal:
    /// nothing should repeat what it does not understand.
    pub fn category_str(name: &str) -> Category {
        name.parse().map_or(Category::Fatal, Termination::category)
    }

    /// What Burnside's five multi-turn reasons would call it.
    pub const fn multi_turn_reason(self) -> MultiTurnReason {
        match self {
            Termination::Stop | Termination::Submitted => MultiTurnReason::NaturalCompletion,
            Termination::ErrorMaxTurns => MultiTurnReason::MaxIterations,
            Termination::ErrorTimeout => MultiTurnReason::Timeout,
            Termination::Cancelled | Termination::Terminated => MultiTurnReason::Cancelled,
            _ => MultiTurnReason::Error,
        }
    }

    /// The process exit status for a run that ended so.
    pub const fn exit_status(self) -> u8 {
        self.category().exit_status(self)
    }
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no termination of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTermination(pub String);

impl fmt::Display for UnknownTermination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Termination::ALL.iter().map(|t| t.as_str()).collect();
        write!(f, "unknown termination `{}`; known are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownTermination {}

impl FromStr for Termination {
    type Err = UnknownTermination;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|t| t.as_str() == name)
            .ok_or_else(|| UnknownTermination(name.to_owned()))
    }
}
