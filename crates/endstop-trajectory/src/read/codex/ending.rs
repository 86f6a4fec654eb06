//! How a session of Codex ended, in its own words.
//!
//! ```ignore
//! let ending = ending::of_error("stream disconnected", Some(&json!("server_overloaded")));
//! ```

use crate::model::Ending;
use serde_json::Value;

/// A task that came to its end.
pub(super) fn complete(native: &str, answer: Option<String>) -> Ending<'static> {
    Ending { answer: answer.map(Into::into), ..ending("final", native) }
}

/// A task that was stopped.
pub(super) fn aborted(reason: &str) -> Ending<'static> {
    let said = match reason {
        "interrupted" | "replaced" | "review_ended" => "cancelled",
        "budget_limited" => "cost_limit",
        _ => "unknown",
    };
    ending(said, reason)
}

/// An error that ended a task: what kind it is, where that is said, and the message.
pub(super) fn of_error(message: &str, kind: Option<&Value>) -> Ending<'static> {
    let kind = kind.and_then(|kind| match kind {
        Value::String(kind) => Some(kind.as_str()),
        // A kind with details is an object of one field.
        Value::Object(map) => map.keys().next().map(String::as_str),
        _ => None,
    });
    let reason = match kind {
        Some("context_window_exceeded") => "context_overflow",
        Some("session_budget_exceeded") => "cost_limit",
        Some("sandbox_error") => "harness_error",
        // Its one sentence for this, in the versions that name no kind.
        None if message.contains("model's context window") => "context_overflow",
        _ => "provider_error",
    };
    Ending {
        failure_mode: Some(message.to_owned().into()),
        ..ending(reason, kind.unwrap_or("error"))
    }
}

fn ending(reason: &'static str, native: &str) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.to_owned().into()), ..Ending::default() }
}
