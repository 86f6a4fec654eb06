//! Determines how a session ended, as far as its file records it.
//!
//! ```text
//! run.ending = ending::of_transcript(&run.steps);        // a transcript: the last stop reason, or None
//! run.ending = Some(ending::of_result(&mut map, &run));  // a stream: its last record
//! ```

use crate::model::{Ending, Role, Step, Trajectory};
use crate::read::build::aside::is_aside;
use crate::read::build::fields::{Fields, http_status, is_true, text};
use serde_json::Value;

/// Prefix of the message that the harness writes when a person interrupts it.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Derives the ending of a transcript from the model's last stop reason, if no message follows it.
pub(super) fn of_transcript(steps: &[Step<'static>]) -> Option<Ending<'static>> {
    let last = steps.iter().rev().find(|step| !is_aside(step))?;
    if last.role != Role::Agent {
        return if last.text.starts_with(INTERRUPTED) {
            Some(ending("cancelled", Some(last.text.lines().next().unwrap_or_default())))
        } else if last.extra.as_ref().is_some_and(|extra| is_true(extra, "isApiErrorMessage")) {
            // The text is the provider's, so it is the message of the failure and not its name.
            let status = last.extra.as_ref().and_then(|extra| extra.get("apiErrorStatus"));
            Some(api_error(last.text.lines().next().unwrap_or_default(), http_status(status)))
        } else {
            None
        };
    }
    let native = last.finish_reason.as_deref()?;
    let reason = match native {
        "end_turn" | "stop_sequence" => "final",
        "max_tokens" => "output_length",
        "model_context_window_exceeded" => "context_overflow",
        // The model requested tools or a continuation, so the file ends in the middle of a run.
        "tool_use" | "pause_turn" => return None,
        _ => "unknown",
    };
    let mut ending = ending(reason, Some(native));
    if reason == "final" {
        ending.answer = Some(last.text.clone());
    }
    Some(ending)
}

/// Derives the ending of a stream from its last record.
pub(super) fn of_result(map: &mut Fields, run: &Trajectory<'static>) -> Ending<'static> {
    let native = text(map, "subtype").unwrap_or_default();
    let failed = is_true(map, "is_error");
    let reason = match native.as_str() {
        // The run completed, but its result is an API error.
        "success" if failed => "provider_error",
        "success" => match run.turns().last().and_then(|step| step.finish_reason.as_deref()) {
            Some("max_tokens") => "output_length",
            Some("refusal") => "unknown",
            _ => "final",
        },
        "error_max_turns" => "max_turns",
        "error_max_budget_usd" => "cost_limit",
        "error_during_execution" | "error_max_structured_output_retries" => "agent_error",
        _ => "unknown",
    };
    let answer = text(map, "result");
    let mut ending = ending(reason, Some(&native));
    if reason == "final" {
        ending.answer = answer.map(Into::into).or_else(|| last_text(run));
    } else if let Some(answer) = answer {
        // The text is not an answer, so it stays with the record's other members.
        map.insert("result".to_owned(), Value::String(answer));
    }
    ending
}

/// Creates the ending for the turn limit, which a transcript records as an attachment.
pub(super) fn max_turns() -> Ending<'static> {
    ending("max_turns", Some("max_turns_reached"))
}

fn last_text(run: &Trajectory<'static>) -> Option<std::borrow::Cow<'static, str>> {
    let text = run.turns().last()?.text.clone();
    (!text.is_empty()).then_some(text)
}

/// Creates the ending of a session whose last model call failed, also after its retries.
pub(super) fn api_error(message: &str, http_status: Option<u16>) -> Ending<'static> {
    Ending {
        failure_mode: Some(message.to_owned().into()),
        http_status,
        ..ending("provider_error", Some("api_error"))
    }
}

fn ending(reason: &'static str, native: Option<&str>) -> Ending<'static> {
    Ending {
        reason: reason.into(),
        native: native.map(|native| native.to_owned().into()),
        ..Ending::default()
    }
}
