//! The outcome of a run.

use crate::errors::{Result, from_json, to_json};
use crate::usage::Usage;
use endstop_core::NanoUsd;
use napi_derive::napi;

/// The decision that ended a run.
#[napi(object)]
pub struct DecidedBy {
    /// Layer of the check: for example `limit`, `policy` or `signal`.
    #[napi(readonly)]
    pub layer: String,
    /// Name of the check.
    #[napi(readonly)]
    pub name: String,
    /// The reason, for a person to read.
    #[napi(readonly)]
    pub evidence: String,
}

/// The ending of a run: one, typed, priced and explained.
#[napi(object, use_nullable = true)]
pub struct OutcomeFields {
    /// The termination.
    #[napi(readonly, ts_type = "Termination")]
    pub termination: String,
    /// The category, which determines what to do next.
    #[napi(readonly, ts_type = "Category")]
    pub category: String,
    /// True if the run succeeded.
    #[napi(readonly)]
    pub is_success: bool,
    /// The reason for the ending, for a person to read.
    #[napi(readonly)]
    pub evidence: String,
    /// The check that ended the run.
    #[napi(readonly)]
    pub decided_by: DecidedBy,
    /// Other terminations that also applied.
    #[napi(readonly, ts_type = "readonly Termination[]")]
    pub also: Vec<String>,
    /// The answer of a success: what was declared, else the visible part of the last text. Null if the run
    /// is not a success; see `lastText`.
    #[napi(readonly)]
    pub answer: Option<String>,
    /// The last visible text that is not blank; partial if the response was cut.
    #[napi(readonly)]
    pub last_text: Option<String>,
    /// Number of responses that became part of the conversation.
    #[napi(readonly)]
    pub turns: u32,
    /// Number of attempts at model calls.
    #[napi(readonly)]
    pub model_calls: u32,
    /// Number of tool calls that were answered.
    #[napi(readonly)]
    pub tool_calls: u32,
    /// Token usage of all attempts.
    #[napi(readonly)]
    pub usage: Usage,
    /// Known cost in US dollars.
    #[napi(readonly)]
    pub cost_usd: f64,
    /// Upper bound on the cost in US dollars; null if no bound is known.
    #[napi(readonly)]
    pub cost_upper_usd: Option<f64>,
    /// True if part of the cost is unknown. `costUsd` is then a lower bound.
    #[napi(readonly)]
    pub cost_unknown: bool,
    /// Milliseconds from start to end.
    #[napi(readonly)]
    pub duration_ms: f64,
    /// Wait time in milliseconds that the provider asked for, if that is why the run ended.
    #[napi(readonly)]
    pub retry_after_ms: Option<f64>,
    /// Details of a failure, for example the stack of a policy that threw.
    #[napi(readonly)]
    pub error_diagnostic: Option<String>,
    /// Exit status for a process whose run ended so: 0 success, 10 retryable, 20 capacity, 30
    /// fatal, 130 cancelled, 143 terminated.
    #[napi(readonly)]
    pub exit_status: u8,
    /// The outcome as JSON, as in the last line of `endstop run --json`.
    #[napi(readonly)]
    pub json: String,
}

impl OutcomeFields {
    pub(crate) fn of(outcome: &endstop_core::Outcome) -> Result<OutcomeFields> {
        let decided = &outcome.decided_by;
        // The layer and the name as the JSON form spells them.
        let decided_json = serde_json::to_value(decided).unwrap_or_default();
        let part = |name: &str| decided_json[name].as_str().unwrap_or_default().to_owned();
        Ok(OutcomeFields {
            termination: outcome.termination.as_str().to_owned(),
            category: outcome.category().as_str().to_owned(),
            is_success: outcome.is_success(),
            evidence: decided.evidence.clone(),
            decided_by: DecidedBy {
                layer: part("layer"),
                name: part("name"),
                evidence: decided.evidence.clone(),
            },
            also: outcome.also.iter().map(|one| one.as_str().to_owned()).collect(),
            answer: outcome.answer(),
            last_text: outcome.last_text.clone(),
            turns: outcome.turns,
            model_calls: outcome.model_calls,
            tool_calls: outcome.tool_calls,
            usage: Usage::from(&outcome.usage),
            cost_usd: outcome.cost.to_usd(),
            cost_upper_usd: outcome.cost_upper.map(NanoUsd::to_usd),
            cost_unknown: outcome.cost_unknown,
            duration_ms: outcome.duration.as_secs_f64() * 1e3,
            retry_after_ms: outcome.retry_after.map(|time| time.as_secs_f64() * 1e3),
            error_diagnostic: outcome.error_diagnostic.clone(),
            exit_status: outcome.exit_status(),
            // The whole outcome, because the members above leave out what few programs read.
            json: to_json(outcome)?,
        })
    }
}

/// Reads an outcome from its JSON, also that of another process or of an earlier version.
#[napi(catch_unwind)]
pub fn read_outcome(json: String) -> Result<OutcomeFields> {
    let outcome: endstop_core::Outcome = from_json(&json, "outcome")?;
    OutcomeFields::of(&outcome)
}
