//! Determines how a sample ended: its limit, its error, or the model's last stop reason.
//!
//! ```text
//! let ending = ending::of(limit, error, &steps, output);
//! ```

use crate::model::{Ending, Role, Step};
use crate::read::build::fields::{Fields, peek};
use endstop_core::bounded_json;
use serde_json::Value;

pub(super) fn of(
    limit: Option<&Value>,
    error: Option<&Value>,
    steps: &[Step<'static>],
    output: &Fields,
) -> Option<Ending<'static>> {
    // An error comes before a limit, because an error can also occur while a limit is handled.
    if let Some(error) = error {
        let message = error.get("message").unwrap_or(error).as_str().unwrap_or_default();
        return Some(Ending {
            failure_mode: Some(message.to_owned().into()),
            ..ending("harness_error", "error")
        });
    }
    if let Some(limit) = limit {
        let native = limit.get("type").unwrap_or(limit).as_str().unwrap_or_default();
        let reason = match native {
            "context" => "context_overflow",
            "time" | "working" => "timeout",
            "message" => "max_steps",
            "token" => "token_limit",
            "turn" => "max_turns",
            "cost" => "cost_limit",
            "operator" => "cancelled",
            _ => "unknown",
        };
        return Some(ending(reason, native));
    }
    of_the_model(steps, output)
}

fn of_the_model(steps: &[Step<'static>], output: &Fields) -> Option<Ending<'static>> {
    let last = steps.iter().rev().find(|step| step.is_turn())?;
    // Inspect's agents submit their answer with this tool.
    if let Some(submit) = last.calls.iter().find(|call| call.name == "submit") {
        let arguments: Option<Fields> = bounded_json::from_str(&submit.arguments).ok();
        let answer = arguments.as_ref().and_then(|arguments| peek(arguments, "answer"));
        return Some(Ending {
            answer: answer.map(|answer| answer.to_owned().into()),
            ..ending("agent_submit", "submit")
        });
    }
    let said_after = steps.last().is_some_and(|step| step.role != Role::Agent);
    if said_after || !last.calls.is_empty() {
        return None;
    }
    let choice = output.get("choices").and_then(|choices| choices.get(0));
    let of_output = choice.and_then(|choice| choice.get("stop_reason")).and_then(Value::as_str);
    let native = last.finish_reason.as_deref().or(of_output)?;
    let reason = match native {
        "stop" => "final",
        "max_tokens" => "output_length",
        "model_length" => "context_overflow",
        _ => "unknown",
    };
    let mut ending = ending(reason, native);
    if reason == "final" {
        ending.answer = Some(last.text.clone());
    }
    Some(ending)
}

fn ending(reason: &'static str, native: &str) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.to_owned().into()), ..Ending::default() }
}
