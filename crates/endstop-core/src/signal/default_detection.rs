//! Default detection: the termination signal of a custom provider that only reports if a response
//! or a delta is the last one.
//!
//! A run with such a provider ends as `stop` only if the response contains more evidence than
//! that. The provider must do one of these:
//!
//! - set `metadata.finish_reason` (or `stop_reason`, `finishReason`) of the last response or delta
//!   to a well-known value: `stop`, `end_turn`;
//! - set `finished: true` (or `metadata.done`, `metadata.finished`) on the last delta;
//! - report `true` for a complete response with text that is not blank (medium confidence; if
//!   detection is strict, unknown with low confidence).
//!
//! ```
//! use endstop_core::signal::{YesNo, default_detection};
//! use endstop_core::{Confidence, SignalReason};
//! let response = serde_json::json!({
//!     "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
//!     "metadata": {"finish_reason": "length"}
//! });
//! let signal = default_detection(&YesNo { payload: &response, is_terminal: Some(true), own: None, strict: false })?;
//! assert_eq!(signal.reason, SignalReason::TokenLimitReached);
//! assert_eq!(signal.confidence, Confidence::High);
//! # Ok::<(), endstop_core::signal::NoDetection>(())
//! ```
//!
//! Source: the fallback of Burnside for providers without `detectTermination`. Differences: calls
//! of client tools outrank a stop-like value, finish reasons on deltas are read, values are
//! compared without regard to case, and an unknown first field does not hide a known later one.

use super::termination_signal::{Confidence, SignalReason, TerminationSignal};
use crate::visible::is_blank;
use serde_json::{Value, json};
use std::fmt;

/// The data that default detection reads.
#[derive(Clone, Debug)]
pub struct YesNo<'a> {
    /// The response (`message`, `usage`, `model`, `metadata`) or the delta (`delta`, `finished`,
    /// `usage`, `id`, `metadata`).
    pub payload: &'a Value,
    /// The provider's report that the payload is the last one, if it gives one.
    pub is_terminal: Option<bool>,
    /// The signal of the provider's own detection, if it has one; it is returned unchanged.
    pub own: Option<TerminationSignal>,
    /// `true` if `is_terminal` alone gives an unknown reason with low confidence, whatever the
    /// text.
    pub strict: bool,
}

/// The error of a provider that reports neither `is_terminal` nor a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDetection;

impl fmt::Display for NoDetection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the provider neither detects the termination nor says whether it is terminal")
    }
}

impl std::error::Error for NoDetection {}

/// The fields that contain a finish reason, in the order of precedence.
const FIELDS: [&str; 3] = ["finish_reason", "stop_reason", "finishReason"];

/// Returns the reason that most providers mean by a finish value; case is ignored.
pub fn known_value(value: &str) -> Option<SignalReason> {
    Some(match value.to_ascii_lowercase().as_str() {
        // OpenAI and Ollama send `stop`, Anthropic `end_turn`. Gemini sends upper case, which is
        // why the value was converted above.
        "stop" | "end_turn" => SignalReason::NaturalCompletion,
        "length" | "max_tokens" | "max_output_tokens" | "model_context_window_exceeded" => {
            SignalReason::TokenLimitReached
        }
        // The last five are reasons of Gemini.
        "content_filter" | "refusal" | "safety" | "recitation" | "blocklist"
        | "prohibited_content" | "spii" => SignalReason::ContentFiltered,
        "stop_sequence" => SignalReason::StopSequence,
        "tool_calls" | "function_call" | "tool_use" => SignalReason::ToolUse,
        "pause_turn" => SignalReason::Paused,
        "malformed_function_call" => SignalReason::ErrorTermination,
        _ => return None,
    })
}

/// Returns the signal for a provider that only reports if the payload is the last one.
///
/// # Errors
/// [`NoDetection`] if the provider reports neither that nor a signal.
pub fn default_detection(from: &YesNo<'_>) -> Result<TerminationSignal, NoDetection> {
    if let Some(own) = &from.own {
        return Ok(own.clone());
    }
    let terminal = from.is_terminal.ok_or(NoDetection)?;
    let payload = from.payload;
    let signal = finish_field(payload, terminal)
        .or_else(|| finished_delta(payload))
        .unwrap_or_else(|| yes_or_no(payload, terminal, from.strict));
    Ok(with_tool_calls(payload, signal))
}

/// Sets the metadata that the signal reports.
fn with_metadata(mut signal: TerminationSignal, metadata: &Value) -> TerminationSignal {
    signal.provider_specific.metadata = metadata.as_object().cloned().unwrap_or_default();
    signal
}

/// Reads the finish fields: the first known value, or else the first unknown value, for which
/// `terminal` decides if the turn is over.
fn finish_field(payload: &Value, terminal: bool) -> Option<TerminationSignal> {
    let metadata = payload.get("metadata")?;
    let given: Vec<(&str, &str)> = FIELDS
        .iter()
        .filter_map(|&f| metadata.get(f).and_then(Value::as_str).map(|v| (f, v)))
        .filter(|(_, v)| !v.is_empty())
        .collect();
    let &(first, first_value) = given.first()?;
    let known = given.iter().find_map(|&(f, v)| known_value(v).map(|reason| (f, v, reason)));
    let signal = if let Some((field, value, reason)) = known {
        // An unknown value in a field of higher precedence may contradict the known one.
        let confidence = if field == first { Confidence::High } else { Confidence::Medium };
        TerminationSignal::new(reason, confidence).from_field(field, value)
    } else {
        let mut signal = TerminationSignal::new(SignalReason::Unknown, Confidence::Medium)
            .from_field(first, first_value);
        signal.should_terminate = terminal;
        signal
    };
    Some(with_metadata(signal, metadata))
}

/// Reads the flags of a delta.
fn finished_delta(payload: &Value) -> Option<TerminationSignal> {
    payload.get("delta")?;
    let is_true = |v: Option<&Value>| v.and_then(Value::as_bool) == Some(true);
    let natural = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High);
    if is_true(payload.get("finished")) {
        let metadata = json!({
            "finished": true,
            "hasUsage": present(payload, "usage"),
            "deltaId": payload.get("id").unwrap_or(&Value::Null),
        });
        return Some(with_metadata(natural.from_field("finished", "true"), &metadata));
    }
    let metadata = payload.get("metadata")?;
    let field = [("done", "metadata.done"), ("finished", "metadata.finished")]
        .into_iter()
        .find_map(|(flag, field)| is_true(metadata.get(flag)).then_some(field))?;
    Some(with_metadata(natural.from_field(field, "true"), metadata))
}

/// Reads the bare report of the provider.
fn yes_or_no(payload: &Value, terminal: bool, strict: bool) -> TerminationSignal {
    let delta = payload.get("delta");
    let (reason, confidence) = if delta.is_some() || !terminal || strict {
        (SignalReason::Unknown, Confidence::Low)
    // A response without text is what a broken provider returns, too, so it is hardly evidence.
    } else if is_blank(&text(payload.get("message"))) {
        (SignalReason::NaturalCompletion, Confidence::Low)
    } else {
        (SignalReason::NaturalCompletion, Confidence::Medium)
    };
    let metadata = if let Some(delta) = delta {
        let parts = delta.get("content").and_then(Value::as_array);
        json!({
            "finished": payload.get("finished").unwrap_or(&Value::Null),
            "hasContent": parts.is_some_and(|p| !p.is_empty()),
            "deltaId": payload.get("id").unwrap_or(&Value::Null),
        })
    } else {
        json!({
            "model": payload.get("model").unwrap_or(&Value::Null),
            "hasUsage": present(payload, "usage"),
            "messageRole": payload.pointer("/message/role").unwrap_or(&Value::Null),
        })
    };
    let mut signal = TerminationSignal::new(reason, confidence)
        .from_field("isTerminal", if terminal { "true" } else { "false" });
    signal.should_terminate = terminal;
    with_metadata(signal, &metadata)
}

/// Changes the reason to `tool_use` if the payload has calls of client tools. Calls outrank a
/// stop-like value, because some providers report `stop` with calls. A token limit, a filter and
/// an error outrank calls, because the calls may be cut.
fn with_tool_calls(payload: &Value, signal: TerminationSignal) -> TerminationSignal {
    let outranked = matches!(
        signal.reason,
        SignalReason::NaturalCompletion | SignalReason::StopSequence | SignalReason::Unknown
    );
    if !outranked || !has_tool_calls(payload) {
        return signal;
    }
    let confidence = match signal.reason {
        // The calls and the value contradict each other.
        SignalReason::NaturalCompletion | SignalReason::StopSequence => Confidence::Medium,
        _ => Confidence::High,
    };
    TerminationSignal {
        should_terminate: false,
        reason: SignalReason::ToolUse,
        confidence,
        ..signal
    }
}

/// `true` if the payload has at least one call of a client tool.
fn has_tool_calls(payload: &Value) -> bool {
    // Custom providers put calls in any of these places, in camel case or snake case.
    const PLACES: [&str; 6] = [
        "/message/metadata/toolCalls",
        "/message/metadata/tool_calls",
        "/message/toolCalls",
        "/message/tool_calls",
        "/delta/toolCalls",
        "/delta/tool_calls",
    ];
    PLACES.iter().any(|place| {
        payload.pointer(place).and_then(Value::as_array).is_some_and(|calls| !calls.is_empty())
    })
}

fn present(payload: &Value, key: &str) -> bool {
    payload.get(key).is_some_and(|v| !v.is_null())
}

/// Returns the text of a message, which is a string or a list of text parts.
fn text(message: Option<&Value>) -> String {
    match message.and_then(|m| m.get("content")) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}
