//! The input of a run: its options, model calls, and the results of tools.

use crate::errors::{Result, config, from_json};
use endstop_core::ToolReport;
use endstop_guest::choice;
use endstop_guest::run_state::Ask;
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
            prompt_bytes: self.prompt_bytes.map(crate::response::count),
            output_cap: self.output_cap.map(crate::response::count),
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
        let status = choice::tool_status(&self.status).map_err(config)?;
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

/// Reads a time since the start of the run, in milliseconds.
pub(crate) fn read_time(ms: f64) -> Duration {
    // Negative and broken numbers are the start.
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}
