//! What finish values mean, as data: each format's spelling and its dialects'.
//!
//! ```
//! use endstop_wire::signal::finish::{Finish, finish_of};
//! use endstop_wire::Family;
//! assert_eq!(finish_of(Family::OpenAiChat, "length"), Finish::Length);
//! assert_eq!(finish_of(Family::Anthropic, "end_turn"), Finish::Natural);
//! assert_eq!(finish_of(Family::Anthropic, "END_TURN"), Finish::Unknown);
//! ```

use crate::dialect::Family;
use endstop_core::{Confidence, ErrorClass};

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
    /// What the model wrote cannot be used: a call that does not parse, or of a tool that was not
    /// offered. The provider answered, so that this is no error of its own.
    Unusable,
    /// Nothing was to be generated: the request made the server load or unload the model.
    NothingAsked,
    /// It stopped for a reason that the provider does not tell.
    Other,
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

const GEMINI: &[(&str, Finish)] = &[
    ("STOP", Finish::Natural),
    ("MAX_TOKENS", Finish::Length),
    ("SAFETY", Finish::ContentFilter),
    ("RECITATION", Finish::ContentFilter),
    ("LANGUAGE", Finish::ContentFilter),
    ("BLOCKLIST", Finish::ContentFilter),
    ("PROHIBITED_CONTENT", Finish::ContentFilter),
    ("SPII", Finish::ContentFilter),
    ("IMAGE_SAFETY", Finish::ContentFilter),
    ("IMAGE_PROHIBITED_CONTENT", Finish::ContentFilter),
    ("IMAGE_RECITATION", Finish::ContentFilter),
    ("MODEL_ARMOR", Finish::ContentFilter),
    ("ESCALATION", Finish::ContentFilter),
    ("MALFORMED_FUNCTION_CALL", Finish::Unusable),
    ("UNEXPECTED_TOOL_CALL", Finish::Unusable),
    ("TOO_MANY_TOOL_CALLS", Finish::Unusable),
    ("MISSING_THOUGHT_SIGNATURE", Finish::Unusable),
    ("MALFORMED_RESPONSE", Finish::Unusable),
    ("PUP_LIMITED_DISABLED", Finish::Unusable),
    ("IMAGE_OTHER", Finish::Unusable),
    ("NO_IMAGE", Finish::Unusable),
    ("CONTINUATION", Finish::Paused),
    ("OTHER", Finish::Other),
    ("FINISH_REASON_UNSPECIFIED", Finish::Unknown),
    // With `enum-encoding=int`; above 5 Gemini and Vertex count differently.
    ("0", Finish::Unknown),
    ("1", Finish::Natural),
    ("2", Finish::Length),
    ("3", Finish::ContentFilter),
    ("4", Finish::ContentFilter),
    ("5", Finish::Other),
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

const COHERE_V2: &[(&str, Finish)] = &[
    ("COMPLETE", Finish::Natural),
    ("STOP_SEQUENCE", Finish::StopSequence),
    ("MAX_TOKENS", Finish::Length),
    ("TOOL_CALL", Finish::ToolUse),
    ("ERROR", Finish::Error),
    ("TIMEOUT", Finish::Error),
];

/// It has no value for tools: a turn that asks for them is complete.
const COHERE_V1: &[(&str, Finish)] = &[
    ("COMPLETE", Finish::Natural),
    ("STOP_SEQUENCE", Finish::StopSequence),
    ("MAX_TOKENS", Finish::Length),
    ("ERROR_LIMIT", Finish::ContextExceeded),
    ("ERROR_TOXIC", Finish::ContentFilter),
    ("USER_CANCEL", Finish::Error),
    ("ERROR", Finish::Error),
    ("TIMEOUT", Finish::Error),
];

const OLLAMA: &[(&str, Finish)] = &[
    ("stop", Finish::Natural),
    ("length", Finish::Length),
    ("load", Finish::NothingAsked),
    ("unload", Finish::NothingAsked),
];

const BEDROCK_CONVERSE: &[(&str, Finish)] = &[
    ("end_turn", Finish::Natural),
    ("tool_use", Finish::ToolUse),
    ("max_tokens", Finish::Length),
    ("stop_sequence", Finish::StopSequence),
    ("guardrail_intervened", Finish::ContentFilter),
    ("content_filtered", Finish::ContentFilter),
    ("malformed_model_output", Finish::Unusable),
    ("malformed_tool_use", Finish::Unusable),
    ("model_context_window_exceeded", Finish::ContextExceeded),
];

/// Those of the models that write text alone; the others have the values of their own format.
const BEDROCK_INVOKE: &[(&str, Finish)] = &[
    // Llama, Mistral, DeepSeek.
    ("stop", Finish::Natural),
    ("length", Finish::Length),
    // Titan.
    ("FINISH", Finish::Natural),
    ("FINISHED", Finish::Natural),
    ("LENGTH", Finish::Length),
    ("STOP_CRITERIA_MET", Finish::StopSequence),
    ("CONTENT_FILTERED", Finish::ContentFilter),
    // Claude's text completions.
    ("stop_sequence", Finish::StopSequence),
    ("max_tokens", Finish::Length),
    // Cohere.
    ("COMPLETE", Finish::Natural),
    ("MAX_TOKENS", Finish::Length),
    ("ERROR", Finish::Error),
    ("ERROR_TOXIC", Finish::ContentFilter),
    // Jurassic.
    ("endoftext", Finish::Natural),
    // A guardrail, whatever the model says.
    ("INTERVENED", Finish::ContentFilter),
];

/// The values that a family of APIs is known to send.
pub const fn known(family: Family) -> &'static [(&'static str, Finish)] {
    match family {
        Family::OpenAiChat => OPENAI,
        Family::Anthropic => ANTHROPIC,
        Family::Gemini => GEMINI,
        Family::OpenAiResponses => OPENAI_RESPONSES,
        Family::CohereV2 => COHERE_V2,
        Family::CohereV1 => COHERE_V1,
        Family::Ollama => OLLAMA,
        Family::BedrockConverse => BEDROCK_CONVERSE,
        Family::BedrockInvoke => BEDROCK_INVOKE,
    }
}

/// What `raw` means in this family; an empty value is a missing one. Spelling counts.
pub fn finish_of(family: Family, raw: &str) -> Finish {
    if raw.is_empty() {
        return Finish::Missing;
    }
    match lookup(known(family), raw) {
        // Another number of Google's enumeration: a reason, but which is not told.
        Finish::Unknown if family == Family::Gemini && raw != "0" && is_number(raw) => {
            Finish::Other
        }
        found => found,
    }
}

/// How sure the meaning of a value is, where it is known: a few say only roughly what happened.
pub(crate) fn certainty(finish: Finish, raw: &str) -> Confidence {
    match (finish, raw) {
        (Finish::Paused, "compaction" | "CONTINUATION")
        | (Finish::Length, "max_messages" | "max_tool_calls")
        | (Finish::ContentFilter, "LANGUAGE" | "OTHER")
        | (Finish::Unusable, "IMAGE_OTHER" | "NO_IMAGE") => Confidence::Medium,
        (Finish::ContentFilter, "BLOCKED_REASON_UNSPECIFIED") => Confidence::Low,
        _ => Confidence::High,
    }
}

fn is_number(raw: &str) -> bool {
    raw.bytes().all(|b| b.is_ascii_digit())
}

/// What `raw` means in OpenAI's or Anthropic's spelling, whichever knows it.
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
        "cancelled" | "USER_CANCEL" => ErrorClass::Cancelled,
        "TIMEOUT" => ErrorClass::Timeout,
        _ => ErrorClass::ServerError,
    }
}

fn lookup(table: &[(&str, Finish)], raw: &str) -> Finish {
    table.iter().find(|(value, _)| *value == raw).map_or(Finish::Unknown, |(_, finish)| *finish)
}
