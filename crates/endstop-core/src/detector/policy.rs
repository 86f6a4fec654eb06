//! Adapter that uses a detector rule as a termination policy: of a live run, in a composite, or in
//! `decide`.
//!
//! ```
//! use endstop_core::{Registry, StepContext, StepResult, TerminationPolicy};
//! let mut policy = Registry::new().build_text(r#"same_text={"times": 2}"#)?;
//! let step = StepResult { output: Some("I am done.".into()), ..StepResult::default() };
//! assert!(policy.should_terminate(&step, &StepContext::default()).stop().is_none());
//! let verdict = policy.should_terminate(&step, &StepContext::default());
//! assert_eq!(verdict.stop().unwrap().evidence, "same_text(2) at step 2");
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! The policy stops at every step at which the rule holds. A watch and a backtest count only the
//! first one.

use super::facts::StepFacts;
use super::rule::Rule;
use super::state::Detector;
use crate::policy::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use crate::run_data::RunData;
use serde_json::Value;

/// A detector rule as a termination policy.
#[derive(Clone, Debug)]
pub struct DetectorPolicy {
    book: StepFacts,
    detector: Detector,
}

impl DetectorPolicy {
    /// Creates the policy for a rule, in its state at the beginning of a run.
    pub fn new(rule: Rule) -> DetectorPolicy {
        DetectorPolicy { book: StepFacts::of([&rule]), detector: Detector::new(rule) }
    }

    fn stop(&self, evidence: String, step: &StepResult) -> Stop {
        let text = step.output.as_deref().unwrap_or_default();
        let results: Vec<_> = step.results().filter(|(.., success)| *success).collect();
        let results = results.into_iter().map(|(tool, result, _)| (tool, result));
        self.detector.rule().stop(evidence, text, results)
    }
}

impl TerminationPolicy for DetectorPolicy {
    fn name(&self) -> &str {
        self.detector.rule().name()
    }

    fn description(&self) -> &str {
        let name = self.name();
        let known = Rule::known().iter().find(|rule| rule.name == name);
        known.map_or("", |rule| rule.description)
    }

    fn default_config(&self) -> Value {
        // A rule without defaults (`tool_called` requires a name) has a null configuration here.
        let spec = Rule::from_config(self.name(), &Value::Null).map(|rule| rule.spec());
        spec.map_or(Value::Null, |spec| spec[self.name()].clone())
    }

    fn needs(&self) -> Vec<RunData> {
        self.detector.rule().needs()
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        let text = step.output.as_deref().unwrap_or_default();
        self.book.text(text);
        self.detector.text(text);
        for call in &step.calls {
            self.book.call(&call.name, &call.arguments);
        }
        for (tool, result, success) in step.results() {
            self.book.result(result, !success);
            if success {
                self.detector.succeeded(tool);
            }
        }
        // A step of which only its own success is known.
        if step.success && step.results().next().is_none() {
            for call in &step.calls {
                self.detector.succeeded(&call.name);
            }
        }
        if let Some(reward) = context.metrics.get("last_reward").and_then(Value::as_f64) {
            self.book.reward(reward);
        }
        if let Some(cost) = context.cost {
            self.book.cost(cost);
        }
        if context.message_arrived {
            self.book.message_arrived();
        }
        // The facts are complete only now, because hashes and streaks need all of the step.
        let facts = self.book.end();
        if !self.detector.step(facts) {
            return Verdict::Continue;
        }
        let evidence = format!("{} at step {}", self.detector.rule(), facts.step);
        Verdict::Stop(self.stop(evidence, step))
    }

    fn begin_turn(&mut self) {
        self.detector.begin_text();
    }

    fn on_delta(&mut self, piece: &str, _: &StepContext) -> Option<Stop> {
        // The text that is the answer is the kernel's, because it is not complete here.
        let evidence = self.detector.on_delta(piece)?;
        Some(self.stop(evidence, &StepResult::default()))
    }

    fn reset(&mut self) {
        self.book.reset();
        self.detector.reset();
    }
}
