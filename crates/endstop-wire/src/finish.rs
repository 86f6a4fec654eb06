//! What finish values mean, as data: each format's spelling and its dialects'.
//!
//! ```
//! use endstop_wire::finish::{Finish, finish_of};
//! use endstop_wire::Family;
//! assert_eq!(finish_of(Family::OpenAiChat, "length"), Finish::Length);
//! assert_eq!(finish_of(Family::Anthropic, "end_turn"), Finish::Natural);
//! assert_eq!(finish_of(Family::Anthropic, "END_TURN"), Finish::Unknown);
//! ```

use crate::api::Family;
use endstop_core::ErrorClass;

/// What a finish value means, before anything else about the turn is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finish {
    /// The model finished.
    Natural,
    /// The output cap was reached.
    Length,
    /// The context window is full.
    ContextExceeded,
    /// A refusal or a safety filter.
    ContentFilter,
    /// A stop string matched.
    StopSequence,
    /// The model asks for tools.
    ToolUse,
    /// The provider wants to be called again as is.
    Paused,
    /// The provider is still working.
    InProgress,
    /// The provider failed while generating.
    Error,
    /// The provider gave the generation up, for a reason that the value alone does not tell.
    Aborted,
    /// A value that is not known.
    Unknown,
    /// No value.
    Missing,
}

const OPENAI: &[(&str, Finish)] = &[
    ("stop", Finish::Natural),
    ("length", Finish::Length),
    ("tool_calls", Finish::ToolUse),
    ("function_call", Finish::ToolUse),
    ("content_filter", Finish::ContentFilter),
    // Dialects.
    ("end_turn", Finish::Natural),
    ("eos", Finish::Natural),
    ("eos_token", Finish::Natural),
    ("stop_sequence", Finish::StopSequence),
    ("model_length", Finish::Length),
    ("model_context_window_exceeded", Finish::ContextExceeded),
    ("sensitive", Finish::ContentFilter),
    ("error", Finish::Error),
    ("network_error", Finish::Error),
    ("insufficient_system_resource", Finish::Error),
    ("abort", Finish::Aborted),
    ("repetition", Finish::Aborted),
    ("null", Finish::Missing),
];

const ANTHROPIC: &[(&str, Finish)] = &[
    ("end_turn", Finish::Natural),
    ("max_tokens", Finish::Length),
    ("stop_sequence", Finish::StopSequence),
    ("tool_use", Finish::ToolUse),
    ("pause_turn", Finish::Paused),
    ("compaction", Finish::Paused),
    ("refusal", Finish::ContentFilter),
    ("model_context_window_exceeded", Finish::ContextExceeded),
];

/// Statuses, and the reasons of an incomplete one.
const OPENAI_RESPONSES: &[(&str, Finish)] = &[
    ("completed", Finish::Natural),
    ("max_output_tokens", Finish::Length),
    ("max_tool_calls", Finish::Length),
    ("max_messages", Finish::Length),
    ("content_filter", Finish::ContentFilter),
    ("failed", Finish::Error),
    ("cancelled", Finish::Aborted),
    ("queued", Finish::InProgress),
    ("in_progress", Finish::InProgress),
];

/// The values that a family of APIs is known to send.
pub const fn known(family: Family) -> &'static [(&'static str, Finish)] {
    match family {
        Family::OpenAiChat => OPENAI,
        Family::Anthropic => ANTHROPIC,
        Family::OpenAiResponses => OPENAI_RESPONSES,
    }
}

/// What `raw` means in this family; an empty value is a missing one. Spelling counts.
pub fn finish_of(family: Family, raw: &str) -> Finish {
    if raw.is_empty() {
        return Finish::Missing;
    }
    lookup(known(family), raw)
}

/// What `raw` means in whichever family knows it.
pub fn finish_of_any(raw: &str) -> Finish {
    match finish_of(Family::OpenAiChat, raw) {
        Finish::Unknown => finish_of(Family::Anthropic, raw),
        known => known,
    }
}

/// The class of the error that a finish value of [`Finish::Error`] or [`Finish::Aborted`] tells.
pub fn error_class_of(raw: &str) -> ErrorClass {
    match raw {
        "insufficient_system_resource" => ErrorClass::Overloaded,
        "cancelled" => ErrorClass::Cancelled,
        _ => ErrorClass::ServerError,
    }
}

fn lookup(table: &[(&str, Finish)], raw: &str) -> Finish {
    table.iter().find(|(value, _)| *value == raw).map_or(Finish::Unknown, |(_, finish)| *finish)
}
