//! Maps the endings that Codex records to the common vocabulary.
//!
//! ```text
//! let ending = ending::of_error("stream disconnected", Some(&json!("server_overloaded")));
//! ```

use crate::model::Ending;
use crate::read::build::fields::http_status;
use serde_json::Value;

/// Creates the ending of a completed task.
pub(super) fn complete(native: &str, answer: Option<String>) -> Ending<'static> {
    Ending { answer: answer.map(Into::into), ..ending("final", native) }
}

/// Creates the ending of an aborted task.
pub(super) fn aborted(reason: &str) -> Ending<'static> {
    let said = match reason {
        "interrupted" | "replaced" | "review_ended" => "cancelled",
        "budget_limited" => "cost_limit",
        _ => "unknown",
    };
    ending(said, reason)
}

/// Creates the ending for an error, from its message and its kind, if one is recorded.
pub(super) fn of_error(message: &str, kind: Option<&Value>) -> Ending<'static> {
    // The status is a member of the kind: `{"http_connection_failed":{"http_status_code":413}}`.
    let details = kind.and_then(Value::as_object).and_then(|kind| kind.values().next());
    let http_status = http_status(details.and_then(|details| details.get("http_status_code")));
    let kind = kind.and_then(|kind| match kind {
        Value::String(kind) => Some(kind.as_str()),
        // A kind with details is an object with a single field.
        Value::Object(map) => map.keys().next().map(String::as_str),
        _ => None,
    });
    let reason = match kind {
        Some("context_window_exceeded") => "context_overflow",
        Some("session_budget_exceeded") => "cost_limit",
        Some("sandbox_error") => "harness_error",
        // Versions that record no kind use this sentence for a full context window.
        None if message.contains("model's context window") => "context_overflow",
        _ => "provider_error",
    };
    Ending {
        failure_mode: Some(message.to_owned().into()),
        http_status,
        ..ending(reason, kind.unwrap_or("error"))
    }
}

fn ending(reason: &'static str, native: &str) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.to_owned().into()), ..Ending::default() }
}
