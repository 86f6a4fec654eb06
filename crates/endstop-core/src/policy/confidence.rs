//! `confidence`: stops when the step's reported confidence reaches a threshold.
//!
//! The confidence is `metadata[confidence_key]`: a number from 0 to 1, or a string such as `"0.9"`
//! or `"90%"`. Any other value is ignored, and the evidence of a stop reports that. No step before
//! `min_steps_before_termination` stops, except an explicit final action. If the confidence does
//! not decide, `final_pattern` with its defaults may. Inside an AND it may not, because it would
//! make both members agree for the same reason.
//!
//! ```
//! use endstop_core::{Registry, StepContext, StepResult, TerminationPolicy};
//! let mut policy = Registry::new().build(&serde_json::json!("confidence")).unwrap();
//! let mut step = StepResult { output: Some("42".into()), ..StepResult::default() };
//! step.metadata.insert("confidence".into(), "90%".into());
//! let context = StepContext { step: 2, ..StepContext::default() };
//! let verdict = policy.should_terminate(&step, &context);
//! assert_eq!(verdict.stop().unwrap().answer.as_deref(), Some("42"));
//! ```
//!
//! Source: `confidence` of RLM Code.

use super::config::{Config, PolicyError};
use super::final_pattern::FinalPattern;
use super::verdict::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use crate::run_data::RunData;
use serde_json::{Value, json};

const NAME: &str = "confidence";

/// Stops when the confidence that the step reports reaches a threshold.
#[derive(Clone, Debug)]
pub struct Confident {
    threshold: f64,
    min_steps: f64,
    key: String,
    fallback: Option<FinalPattern>,
}

impl Confident {
    /// One-line description.
    pub const DESCRIPTION: &'static str = "Stop when the model's confidence reaches a threshold";

    /// Returns the configuration that applies if nothing is configured: `confidence_threshold`
    /// 0.85, `min_steps_before_termination` 2, `confidence_key` `confidence`,
    /// `fallback_to_final_pattern` true.
    pub fn defaults() -> Value {
        json!({
            "confidence_threshold": 0.85,
            "min_steps_before_termination": 2,
            "confidence_key": "confidence",
            "fallback_to_final_pattern": true
        })
    }

    /// Builds the policy from its configuration. A threshold above 1 is never reached.
    pub fn from_config(config: &Value) -> Result<Confident, PolicyError> {
        let config = Config::new(NAME, config)?;
        config.only(&[
            "confidence_threshold",
            "min_steps_before_termination",
            "confidence_key",
            "fallback_to_final_pattern",
        ])?;
        Ok(Confident {
            threshold: config.number("confidence_threshold", 0.85)?,
            min_steps: config.number("min_steps_before_termination", 2.0)?,
            key: config.text("confidence_key", "confidence")?,
            fallback: config.flag("fallback_to_final_pattern", true)?.then(FinalPattern::default),
        })
    }

    /// Returns the confidence of a step, or `None` and a note if the reported value is not valid.
    fn read(&self, step: &StepResult) -> (Option<f64>, Option<String>) {
        // A step that reports no confidence counts as 0 and is not noted as invalid, because RLM
        // Code documents it so and most steps report none.
        let Some(value) = step.metadata.get(&self.key).filter(|v| !v.is_null()) else {
            return (Some(0.0), None);
        };
        let number = match value {
            Value::String(text) => parse(text),
            other => other.as_f64(),
        };
        match number.filter(|n| (0.0..=1.0).contains(n)) {
            Some(n) => (Some(n), None),
            None => (
                None,
                Some(format!("`{}` {value} is not a number in 0..1 and was ignored", self.key)),
            ),
        }
    }
}

/// Parses a confidence that is written as `0.9` or `90%`.
fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok().map(|n| n / 100.0),
        None => text.parse().ok(),
    }
}

impl TerminationPolicy for Confident {
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
        vec![RunData::Confidence]
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        // A final action is exempt from the minimum, because a finished answer must not be lost.
        if (context.step as f64) < self.min_steps && step.action_type != "final" {
            return Verdict::Continue;
        }
        let (confidence, ignored) = self.read(step);
        if let Some(n) = confidence.filter(|&n| n >= self.threshold) {
            let evidence = format!("confidence {n}, the threshold is {}", self.threshold);
            let mut stop = Stop::submitted(NAME, evidence);
            stop.answer = step.output.clone().filter(|o| !o.is_empty());
            return Verdict::Stop(stop);
        }
        // An ignored value does not prevent the fallback, because it states nothing about the
        // answer.
        let Some(fallback) = &mut self.fallback else {
            return Verdict::Continue;
        };
        match fallback.should_terminate(step, context) {
            Verdict::Stop(mut stop) => {
                // The outcome names the configured policy; the evidence names the fallback.
                NAME.clone_into(&mut stop.policy);
                stop.evidence = match ignored {
                    Some(note) => format!("final pattern: {}; {note}", stop.evidence),
                    None => format!("final pattern: {}", stop.evidence),
                };
                Verdict::Stop(stop)
            }
            other => other,
        }
    }

    fn join_all(&mut self) {
        self.fallback = None;
    }

    fn reset(&mut self) {}
}
