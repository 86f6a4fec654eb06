//! Reads `result.json`, which Harbor writes next to a trajectory: the reward, and the ending of the
//! trial.
//!
//! ```json
//! {"trial_name": "t__1", "task_name": "t", "verifier_result": {"rewards": {"reward": 1.0}},
//!  "exception_info": {"exception_type": "AgentTimeoutError", "exception_message": "…"}}
//! ```
//!
//! A trajectory contains neither. If there are several rewards, only one with the name `reward` is
//! used.

use crate::model::{Ending, Recorded, Trajectory};
use crate::read::build::record::count;
use crate::read::outcomes::is_success;
use endstop_core::bounded_json;
use serde_json::{Map, Value};

/// Adds the trial's result to its run; returns `false` if the file is not such a result.
pub(super) fn apply(run: &mut Trajectory<'_>, bytes: &[u8]) -> bool {
    let Ok(Value::Object(trial)) = bounded_json::from_slice::<Value>(bytes) else { return false };
    let part = |name: &str| trial.get(name).and_then(Value::as_object);
    // Other programs also write a `result.json`, so at least one member of Harbor's must be
    // present.
    if !["verifier_result", "exception_info", "trial_name"].iter().any(|n| trial.contains_key(*n)) {
        return false;
    }
    let text = |name: &str| trial.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(rewards) = part("verifier_result").and_then(|v| v.get("rewards")?.as_object()) {
        if let Some(reward) = the_reward(rewards) {
            let success = Some(is_success(reward));
            run.recorded = Recorded { reward: Some(reward), success };
        }
        if rewards.len() > 1 {
            run.labels.insert("rewards".to_owned(), Value::Object(rewards.clone()));
        }
    }
    if let Some(exception) = part("exception_info") {
        let field = |name: &str| exception.get(name).and_then(Value::as_str);
        let kind = field("exception_type").unwrap_or("unknown");
        run.ending = Some(Ending {
            reason: reason(kind).into(),
            native: Some(kind.to_owned().into()),
            failure_mode: field("exception_message").map(|text| text.to_owned().into()),
            // The exception replaces the ending, but the answer was still given.
            answer: run.ending.take().and_then(|ending| ending.answer),
            ..Ending::default()
        });
    }
    if let Some(used) = part("agent_result") {
        let number = |name: &str| used.get(name).and_then(count);
        let totals = &mut run.totals;
        // The totals of the trial only fill the gaps in those of the trajectory.
        totals.prompt_tokens = totals.prompt_tokens.or(number("n_input_tokens"));
        totals.completion_tokens = totals.completion_tokens.or(number("n_output_tokens"));
        totals.cached_tokens = totals.cached_tokens.or(number("n_cache_tokens"));
        totals.cost_usd = totals.cost_usd.or(used.get("cost_usd").and_then(Value::as_f64));
    }
    if run.task_id.is_none() {
        run.task_id = text("task_name").map(Into::into);
    }
    true
}

fn the_reward(rewards: &Map<String, Value>) -> Option<f64> {
    match rewards.get("reward") {
        Some(reward) => reward.as_f64(),
        None if rewards.len() == 1 => rewards.values().next()?.as_f64(),
        None => None,
    }
}

/// Maps Harbor's exceptions to the common reasons.
fn reason(exception: &str) -> &'static str {
    match exception {
        "AgentTimeoutError" => "timeout",
        "ContextWindowExceededError" => "context_overflow",
        "OutputTokenExceededError" => "output_length",
        "ApiRateLimitError" | "AgentSafetyRefusalError" => "provider_error",
        "NonZeroAgentExitCodeError" => "agent_error",
        "VerifierTimeoutError" => "verifier_timeout",
        "CancelledError" | "KeyboardInterrupt" => "cancelled",
        other if other.starts_with("Verifier") || other.starts_with("Reward") => "verifier_error",
        other if other.starts_with("Environment") || other.starts_with("AgentSetup") => {
            "harness_error"
        }
        _ => "unknown",
    }
}
