//! The input of a run: its options, model calls, and the results of tools.

use crate::errors::{Result, config, from_json};
use crate::run_state::Ask;
use endstop_core::{ToolReport, ToolStatus, TurnDelta};
use napi_derive::napi;
use std::time::Duration;

/// A model call that the caller is about to make.
#[napi(object)]
#[derive(Default)]
pub struct AskFields {
    /// Messages of the user that continue the conversation.
    pub input: Option<Vec<String>>,
    /// True if the call repeats the last one.
    pub retry: Option<bool>,
    /// Bytes of the prompt: an upper bound on its tokens.
    pub prompt_bytes: Option<f64>,
    /// Most tokens of output that the call allows.
    pub output_cap: Option<f64>,
    /// True if the response is streamed.
    pub streaming: Option<bool>,
}

impl AskFields {
    pub(crate) fn read(self) -> Ask {
        Ask {
            input: self.input.unwrap_or_default(),
            retry: self.retry.unwrap_or(false),
            prompt_bytes: self.prompt_bytes.map(crate::usage::count),
            output_cap: self.output_cap.map(crate::usage::count),
            streaming: self.streaming.unwrap_or(false),
        }
    }
}

/// The result of a tool.
#[napi(object)]
pub struct Report {
    /// Status of the call: `ok`, `error`, `denied`, `timeout` or `aborted`.
    pub status: String,
    /// Text for the model.
    pub content: String,
    /// Named values for policies, as JSON.
    pub variables: Option<String>,
    /// Measurements for policies, as JSON.
    pub metrics: Option<String>,
    /// A reason to end the run as `error_halted`.
    pub halt: Option<String>,
}

impl Report {
    pub(crate) fn read(self) -> Result<ToolReport> {
        // Without `skipped`, because only the kernel decides that a call is skipped.
        let choices = [
            ToolStatus::Ok,
            ToolStatus::Error,
            ToolStatus::Denied,
            ToolStatus::Timeout,
            ToolStatus::Aborted,
        ];
        let Some(status) = choices.into_iter().find(|one| one.as_str() == self.status) else {
            let names: Vec<&str> = choices.iter().map(|one| one.as_str()).collect();
            let given = self.status;
            let message =
                format!("invalid `status` `{given}`: expected one of {}", names.join(", "));
            return Err(config(message));
        };
        let mut report = ToolReport::new(status, self.content);
        report.variables = read_map(self.variables.as_deref(), "variables")?;
        report.metrics = read_map(self.metrics.as_deref(), "metrics")?;
        report.halt = self.halt;
        Ok(report)
    }
}

/// Reads named values from JSON.
pub(crate) fn read_map(
    json: Option<&str>,
    name: &str,
) -> Result<serde_json::Map<String, serde_json::Value>> {
    json.map(|json| from_json(json, name)).transpose().map(Option::unwrap_or_default)
}

/// Reads streamed content.
pub(crate) fn read_delta(text: String, kind: &str) -> Result<TurnDelta> {
    let chars = text.chars().count() as u64;
    match kind {
        "text" => Ok(TurnDelta::Text(text)),
        // Only their length is needed, to estimate the tokens of a response that is cut.
        "arguments" | "call" => Ok(TurnDelta::ToolArguments(chars)),
        // A refusal is content, but not text that a policy may read as an answer.
        "reasoning" | "refusal" => Ok(TurnDelta::Reasoning(chars)),
        _ => Err(config(format!("invalid `kind` `{kind}`: expected the kind of a Delta"))),
    }
}

/// Reads a time since the start of the run, in milliseconds.
pub(crate) fn read_time(ms: f64) -> Duration {
    // Negative and broken numbers are the start.
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}
