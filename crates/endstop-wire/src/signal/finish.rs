//! Finish values: tables that map each format's spelling, with its dialects, to a [`Finish`].
//!
//! ```
//! use endstop_wire::signal::finish::{Finish, finish_of};
//! use endstop_wire::WireFormat;
//! assert_eq!(finish_of(WireFormat::OpenAiChat, "length"), Finish::Length);
//! assert_eq!(finish_of(WireFormat::Anthropic, "end_turn"), Finish::Natural);
//! assert_eq!(finish_of(WireFormat::OpenAiChat, "STOP"), Finish::Natural);
//! assert_eq!(finish_of(WireFormat::Anthropic, "END_TURN"), Finish::Unknown);
//! ```

use crate::dialect::WireFormat;
use endstop_core::{Confidence, ErrorClass};

/// Meaning of a finish value on its own, before the rest of the turn is considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Finish {
    /// The model finished by itself.
    Natural,
    /// The output cap was reached.
    Length,
    /// The context window is full.
    ContextExceeded,
    /// A refusal by the model, or a safety filter.
    ContentFilter,
    /// A stop string matched.
    StopSequence,
    /// The model requests tool calls.
    ToolUse,
    /// The provider paused and must be called again with the same conversation.
    Paused,
    /// The generation is still running.
    InProgress,
    /// The provider failed during the generation.
    Error,
    /// The provider aborted the generation for a reason that the value alone does not express.
    Aborted,
    /// The model's output cannot be used, for example a call that does not parse or a call of a
    /// tool that was not offered. The provider did answer, so this is not an error of the provider.
    Unusable,
    /// The request only made the server load or unload the model, so nothing was generated.
    NothingAsked,
    /// The provider stopped without stating a reason.
    Other,
    /// An unknown value.
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
    // Values that OpenAI-compatible servers send in addition.
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
    // Numbers appear with `enum-encoding=int`. Above 5 the Gemini API and Vertex AI number
    // differently, so those are not listed.
    ("0", Finish::Unknown),
    ("1", Finish::Natural),
    ("2", Finish::Length),
    ("3", Finish::ContentFilter),
    ("4", Finish::ContentFilter),
    ("5", Finish::Other),
];

/// Statuses of a response, and the reasons of an incomplete one.
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

/// Cohere v1 has no value for tool calls: a turn that requests them is complete.
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

/// Values of the text-only models. The other models use the values of their own format.
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
    // A guardrail overrides the model's own value.
    ("INTERVENED", Finish::ContentFilter),
];

/// Returns the values that this family is known to send.
pub const fn known(family: WireFormat) -> &'static [(&'static str, Finish)] {
    match family {
        WireFormat::OpenAiChat => OPENAI,
        WireFormat::Anthropic => ANTHROPIC,
        WireFormat::Gemini => GEMINI,
        WireFormat::OpenAiResponses => OPENAI_RESPONSES,
        WireFormat::CohereV2 => COHERE_V2,
        WireFormat::CohereV1 => COHERE_V1,
        WireFormat::Ollama => OLLAMA,
        WireFormat::BedrockConverse => BEDROCK_CONVERSE,
        WireFormat::BedrockInvoke => BEDROCK_INVOKE,
    }
}

impl Finish {
    /// `true` if the answer is cut, filtered or failed. A later value does not undo that: a proxy that ends the stream
    /// with a chunk of its own has not made the answer complete.
    pub(crate) const fn is_sticky(self) -> bool {
        matches!(
            self,
            Finish::Length
                | Finish::ContextExceeded
                | Finish::ContentFilter
                | Finish::Error
                | Finish::Aborted
        )
    }
}

/// Returns the meaning of `raw` in this family. Empty means missing. Case matters, except in the format of OpenAI's
/// chat completions: gateways that imitate it pass on the values of the provider behind them, in any spelling.
pub fn finish_of(family: WireFormat, raw: &str) -> Finish {
    if raw.is_empty() {
        return Finish::Missing;
    }
    match lookup(known(family), raw) {
        // An unlisted number of Google's enumeration is a real reason, but its meaning depends on
        // the API.
        Finish::Unknown if family == WireFormat::Gemini && raw != "0" && is_number(raw) => {
            Finish::Other
        }
        Finish::Unknown if family == WireFormat::OpenAiChat => {
            let mut all = [OPENAI, ANTHROPIC, GEMINI, COHERE_V2].into_iter().flatten();
            let found = all.find(|(value, _)| value.eq_ignore_ascii_case(raw));
            found.map_or(Finish::Unknown, |(_, finish)| *finish)
        }
        found => found,
    }
}

/// Returns the confidence in a value's meaning. A few known values describe only roughly what
/// happened.
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

/// Returns the meaning of `raw` in OpenAI's spelling or, failing that, in Anthropic's.
pub fn finish_of_any(raw: &str) -> Finish {
    match finish_of(WireFormat::OpenAiChat, raw) {
        Finish::Unknown => finish_of(WireFormat::Anthropic, raw),
        known => known,
    }
}

/// Returns the error class for a value of [`Finish::Error`] or [`Finish::Aborted`].
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
