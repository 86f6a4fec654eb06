//! `reward_threshold`: stops when the sum of the rewards reaches a threshold, or gives up after
//! too many negative rewards in a row.
//!
//! The reward of a step is `metrics.last_reward`. A step without a reward, or with one that is not
//! a number, counts as 0, which ends a negative streak.
//!
//! ```
//! use endstop_core::Registry;
//! let policy = Registry::new().build(&serde_json::json!({"reward_threshold": {"min_reward_threshold": 0.5}}));
//! assert!(policy.is_ok());
//! ```
//!
//! Source: `reward_threshold` of RLM Code. Differences: the threshold is met within 1e-9, the
//! streak is also checked while the policy waits for a final action, and a streak gives no answer.

use super::config::{Config, PolicyError};
use super::verdict::{PolicyEnd, StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use crate::run_data::RunData;
use serde_json::{Value, json};

const NAME: &str = "reward_threshold";

/// Distance below the threshold at which a sum still meets it, because sums of decimal fractions
/// are not exact in binary: 0.1 added eight times is less than 0.8.
const TOLERANCE: f64 = 1e-9;

/// Stops when the sum of the rewards reaches a threshold, or after a streak of negative rewards.
#[derive(Clone, Debug)]
pub struct RewardThreshold {
    threshold: f64,
    max_negative_streak: Option<u64>,
    require_final_action: bool,
    total: f64,
    streak: u64,
}

impl RewardThreshold {
    /// One-line description.
    pub const DESCRIPTION: &'static str = "Stop when the sum of the rewards reaches a threshold";

    /// Returns the configuration that applies if nothing is configured: `min_reward_threshold` 0.8,
    /// `max_negative_streak` 3 (null switches it off), `require_final_action` false.
    pub fn defaults() -> Value {
        json!({"min_reward_threshold": 0.8, "max_negative_streak": 3, "require_final_action": false})
    }

    /// Builds the policy from its configuration.
    pub fn from_config(config: &Value) -> Result<RewardThreshold, PolicyError> {
        let config = Config::new(NAME, config)?;
        config.only(&["min_reward_threshold", "max_negative_streak", "require_final_action"])?;
        Ok(RewardThreshold {
            threshold: config.number("min_reward_threshold", 0.8)?,
            max_negative_streak: config.count("max_negative_streak", 3)?,
            require_final_action: config.flag("require_final_action", false)?,
            total: 0.0,
            streak: 0,
        })
    }
}

/// Reads a reward, also one that is written as a string. Other strings, and values that are no finite
/// number, are none.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_f64(),
    };
    number.filter(|number: &f64| number.is_finite())
}

impl TerminationPolicy for RewardThreshold {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        Self::DESCRIPTION
    }

    fn default_config(&self) -> Value {
        Self::defaults()
    }

    fn needs(&self) -> Vec<RunData> {
        vec![RunData::Reward]
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        let reward = context.metrics.get("last_reward").and_then(number).unwrap_or(0.0);
        self.total += reward;
        self.streak = if reward < 0.0 { self.streak.saturating_add(1) } else { 0 };
        // The sum is not reset while the stop is held back, so that a later final action stops the
        // run.
        let held_back = self.require_final_action && step.action_type != "final";
        if self.total >= self.threshold - TOLERANCE && !held_back {
            let answer = match step.output.as_deref() {
                Some(output) if !output.is_empty() => output.to_owned(),
                // A submitted run needs an answer, also if the step has no text.
                _ => format!("Reward threshold reached: {:.2}", self.total),
            };
            let evidence = format!(
                "the rewards add up to {}, the threshold is {}",
                self.total, self.threshold
            );
            return Verdict::Stop(Stop::submitted(NAME, evidence).answer(answer));
        }
        // Checked after the sum, because a run that has reached its threshold has succeeded.
        if self.max_negative_streak.is_some_and(|n| self.streak >= n) {
            let evidence = format!("{} negative rewards in a row", self.streak);
            return Verdict::Stop(Stop {
                ends_as: PolicyEnd::ConsecutiveMistakes,
                ..Stop::submitted(NAME, evidence)
            });
        }
        Verdict::Continue
    }

    fn reset(&mut self) {
        self.total = 0.0;
        self.streak = 0;
    }
}
