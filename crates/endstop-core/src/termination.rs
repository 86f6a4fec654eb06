//! The reason why a run ended: a closed list, each entry with a category that determines what to do next.
//!
//! ```
//! use endstop_core::{Category, Termination};
//! let t: Termination = "error_max_turns".parse().unwrap();
//! assert_eq!(t.category(), Category::Capacity);
//! assert!(!t.is_success());
//! assert_eq!(t.category().exit_status(t), 20);
//! // A name from a newer version counts as a failure, never as a success.
//! assert!(Termination::is_success_str("stop") && !Termination::is_success_str("error_of_2030"));
//! ```
//!
//! The specification closes the list of one version; a later one may have more entries. Code that matches
//! a [`Termination`] therefore needs a `_` arm, and takes the category there. A reader of names that
//! another version may have written, such as those in stored outcomes, uses
//! [`is_success_str`](Termination::is_success_str) and [`category_str`](Termination::category_str), or
//! the `category` that an outcome stores next to the name. Parsing and deserializing refuse an unknown
//! name, because no other entry means the same.
//!
//! Source: ExAthena's `Terminations` (14 subtypes). Entries marked "Endstop" are additions: events
//! that the sources have without a name at the level of a run.

use crate::nearest::did_you_mean;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The recommended reaction to an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// None: the work is done.
    Success,
    /// Run again: it may help.
    Retryable,
    /// Raise a limit, or ask for less.
    Capacity,
    /// Fix the cause: running again does not help.
    Fatal,
}

impl Category {
    /// The string form, for example `capacity`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Category::Success => "success",
            Category::Retryable => "retryable",
            Category::Capacity => "capacity",
            Category::Fatal => "fatal",
        }
    }

    /// Returns the exit status of a process whose run ended as `termination`: 0 success, 10
    /// retryable, 20 capacity, 30 fatal and, by the shell's convention for signals, 130 cancelled,
    /// 143 terminated.
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

/// The five end reasons of Burnside's multi-turn loop, for callers that use those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MultiTurnReason {
    /// The work is finished.
    NaturalCompletion,
    /// The turn limit.
    MaxIterations,
    /// The time limit.
    Timeout,
    /// Cancelled by a person.
    Cancelled,
    /// Everything else.
    Error,
}

macro_rules! terminations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $category:ident;)*) => {
        /// The reason why a run ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Termination {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Termination {
            const ALL: &[Termination] = &[$(Termination::$variant,)*];

            /// The string form, for example `error_max_turns`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Termination::$variant => $name,)* }
            }

            /// Returns the category, which determines what to do next.
            pub const fn category(self) -> Category {
                match self { $(Termination::$variant => Category::$category,)* }
            }
        }
    };
}

terminations! {
    /// The model answered in text, called no tool, and its stop signal says that the answer is
    /// complete.
    Stop = "stop", Success;
    /// The answer was declared with the `finish` tool, or found by a policy.
    Submitted = "submitted", Success;
    /// The turn limit was reached.
    ErrorMaxTurns = "error_max_turns", Capacity;
    /// The cost ceiling was reached.
    ErrorMaxBudgetUsd = "error_max_budget_usd", Capacity;
    /// A tool call would have exceeded the limit on the calls of the run or of its tool (Endstop).
    ErrorMaxToolCalls = "error_max_tool_calls", Capacity;
    /// The run's token ceiling was reached (Endstop).
    ErrorMaxTokens = "error_max_tokens", Capacity;
    /// A window of the subscription was used up to the limit; it resets after `retry_after` (Endstop).
    ErrorMaxWindow = "error_max_window", Capacity;
    /// The run's wall-clock ceiling was reached (Endstop).
    ErrorTimeout = "error_timeout", Capacity;
    /// The structured answer was still invalid after the allowed repairs.
    ErrorMaxStructuredOutputRetries = "error_max_structured_output_retries", Capacity;
    /// Too many consecutive mistakes, or a policy that gave up.
    ErrorConsecutiveMistakes = "error_consecutive_mistakes", Capacity;
    /// The prompt exceeded the context window, and compaction did not help.
    ErrorPromptTooLong = "error_prompt_too_long", Capacity;
    /// The run was stuck; the outcome's `no_progress_snapshot` contains the evidence.
    ErrorNoProgress = "error_no_progress", Capacity;
    /// The turn's output budget was spent on reasoning, and one retry with a larger cap did not
    /// help.
    ErrorThinkingStarved = "error_thinking_starved", Capacity;
    /// The final answer was truncated by the token limit (Endstop).
    ErrorOutputTruncated = "error_output_truncated", Capacity;
    /// The verifier rejected the answer of every allowed round (Endstop).
    ErrorNotVerified = "error_not_verified", Capacity;
    /// A provider or tool failure that retries did not fix.
    ErrorDuringExecution = "error_during_execution", Retryable;
    /// The output could not be parsed as structured output or as tool calls.
    ErrorSchemaValidation = "error_schema_validation", Retryable;
    /// A refusal, or a safety filter (Endstop).
    ErrorContentFiltered = "error_content_filtered", Fatal;
    /// The provider rejected the request, and repeating it does not help (Endstop).
    ErrorProviderRejected = "error_provider_rejected", Fatal;
    /// The model declared through `finish` that the task is not feasible (Endstop).
    GaveUp = "gave_up", Fatal;
    /// A hook or a tool requested a halt.
    ErrorHalted = "error_halted", Fatal;
    /// A compaction failed, and the run could not continue without it.
    ErrorCompactionFailed = "error_compaction_failed", Fatal;
    /// The provider rejected the credentials (HTTP 401 or 403).
    ErrorProviderAuth = "error_provider_auth", Fatal;
    /// The caller cancelled the run; the loop can be used again (Endstop).
    Cancelled = "cancelled", Fatal;
    /// The loop was terminated (Endstop).
    Terminated = "terminated", Fatal;
}

impl Termination {
    /// Returns every termination, in the order of the documentation.
    pub fn all() -> &'static [Termination] {
        Self::ALL
    }

    /// `true` for `stop` and `submitted`, and for nothing else.
    pub const fn is_success(self) -> bool {
        matches!(self, Termination::Stop | Termination::Submitted)
    }

    /// `true` for every termination that is not a success.
    pub const fn is_error(self) -> bool {
        !self.is_success()
    }

    /// [`is_success`](Self::is_success) for a name. A name that this version does not know is a
    /// failure, so that a newer writer cannot make an older reader report success.
    pub fn is_success_str(name: &str) -> bool {
        name.parse().is_ok_and(Termination::is_success)
    }

    /// [`category`](Self::category) for a name. A name that this version does not know is fatal,
    /// because repeating an unknown failure may do harm.
    pub fn category_str(name: &str) -> Category {
        name.parse().map_or(Category::Fatal, Termination::category)
    }

    /// Returns the corresponding reason of Burnside's multi-turn loop.
    pub const fn multi_turn_reason(self) -> MultiTurnReason {
        match self {
            Termination::Stop | Termination::Submitted => MultiTurnReason::NaturalCompletion,
            Termination::ErrorMaxTurns => MultiTurnReason::MaxIterations,
            Termination::ErrorTimeout => MultiTurnReason::Timeout,
            Termination::Cancelled | Termination::Terminated => MultiTurnReason::Cancelled,
            _ => MultiTurnReason::Error,
        }
    }

    /// Returns the process exit status for this termination.
    pub const fn exit_status(self) -> u8 {
        self.category().exit_status(self)
    }
}

impl fmt::Display for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a name that is not a termination of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTermination(
    /// The name.
    pub String,
);

impl fmt::Display for UnknownTermination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = || Termination::ALL.iter().map(|t| t.as_str());
        let near = did_you_mean(&self.0, names());
        write!(f, "unknown termination `{}`", self.0)?;
        if near.is_empty() {
            let names: Vec<&str> = names().collect();
            write!(f, "; expected one of {}", names.join(", "))
        } else {
            f.write_str(&near)
        }
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
