//! Combinators that build policies from policies in code: `a | b`, `a & b`, `!a`,
//! `a.after_steps(n)`, `a.sustained(n)`, `k_of(n, […])`.
//!
//! ```
//! use endstop_core::policy::{BoxPolicy, RewardThreshold, FinalPattern};
//! let reward = RewardThreshold::from_config(&serde_json::json!({}))?;
//! let answered = BoxPolicy::new(FinalPattern::default());
//! let policy = (answered | BoxPolicy::new(reward)).after_steps(3);
//! # let _ = policy;
//! # Ok::<(), endstop_core::policy::PolicyError>(())
//! ```
//!
//! Every member sees every step, even if another member has already decided, so that its state
//! does not depend on the order. While the text is streamed only an OR decides, if any of its
//! members does, because an AND, a NOT, a quorum and a streak need the complete step.

use super::composite::Composite;
use super::verdict::{BoxPolicy, StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use crate::run_data::RunData;
use std::ops::{BitAnd, BitOr, Not};

impl BoxPolicy {
    /// Returns a policy that stops as this one does, but not before `steps` turns are completed.
    #[must_use]
    pub fn after_steps(self, steps: i64) -> BoxPolicy {
        BoxPolicy::new(AfterSteps { inner: self, steps })
    }

    /// Returns a policy that stops when this one does for the `steps`-th step in a row (0 and 1
    /// change nothing).
    #[must_use]
    pub fn sustained(self, steps: u32) -> BoxPolicy {
        BoxPolicy::new(Sustained { inner: self, steps, streak: 0 })
    }
}

/// Returns a policy that stops when at least `n` members do, with the first answer among them.
pub fn k_of(n: usize, members: Vec<BoxPolicy>) -> BoxPolicy {
    BoxPolicy::new(Composite::at_least(n, members))
}

impl BitOr for BoxPolicy {
    type Output = BoxPolicy;
    fn bitor(self, other: BoxPolicy) -> BoxPolicy {
        BoxPolicy::new(Composite::any(vec![self, other]))
    }
}

impl BitAnd for BoxPolicy {
    type Output = BoxPolicy;
    fn bitand(self, other: BoxPolicy) -> BoxPolicy {
        BoxPolicy::new(Composite::all(vec![self, other]))
    }
}

impl Not for BoxPolicy {
    type Output = BoxPolicy;
    fn not(self) -> BoxPolicy {
        BoxPolicy::new(Negated { inner: self })
    }
}

/// Stops, without an answer, if the inner policy does not.
// `on_delta` keeps its default, because before the step is complete the inner policy may still stop.
#[derive(Clone)]
struct Negated {
    inner: BoxPolicy,
}

impl TerminationPolicy for Negated {
    fn name(&self) -> &'static str {
        "not"
    }
    fn description(&self) -> &'static str {
        "Stop when another policy does not"
    }
    fn needs(&self) -> Vec<RunData> {
        self.inner.needs()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        match self.inner.should_terminate(step, context) {
            Verdict::Stop(_) => Verdict::Continue,
            // The run stops here, so that the inner policy's message to the model has no reader.
            Verdict::Continue | Verdict::Tell(_) => Verdict::Stop(Stop::submitted(
                "not",
                format!("`{}` did not stop", self.inner.name()),
            )),
        }
    }
    fn join_all(&mut self) {
        self.inner.join_all();
    }
    fn begin_turn(&mut self) {
        self.inner.begin_turn();
    }
    fn reset(&mut self) {
        self.inner.reset();
    }
}

/// Suppresses the stops of the inner policy before a given step.
#[derive(Clone)]
struct AfterSteps {
    inner: BoxPolicy,
    steps: i64,
}

impl TerminationPolicy for AfterSteps {
    fn name(&self) -> &'static str {
        "after_steps"
    }
    fn description(&self) -> &'static str {
        "Stop as another policy does, but not before a given step"
    }
    fn needs(&self) -> Vec<RunData> {
        self.inner.needs()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        match self.inner.should_terminate(step, context) {
            Verdict::Stop(_) if context.step < self.steps => Verdict::Continue,
            verdict => verdict,
        }
    }
    fn begin_turn(&mut self) {
        self.inner.begin_turn();
    }
    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        // The inner policy reads the text even if its stop is suppressed, because it has to see
        // every chunk of a response to judge the next one.
        let stop = self.inner.on_delta(piece, context);
        stop.filter(|_| context.step >= self.steps)
    }
    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        let stop = self.inner.on_text_complete(text, context);
        stop.filter(|_| context.step >= self.steps)
    }
    fn join_all(&mut self) {
        self.inner.join_all();
    }
    fn reset(&mut self) {
        self.inner.reset();
    }
}

/// Stops when the inner policy stops for a number of consecutive steps.
// `on_delta` keeps its default, because a streak counts complete steps.
#[derive(Clone)]
struct Sustained {
    inner: BoxPolicy,
    steps: u32,
    streak: u32,
}

impl TerminationPolicy for Sustained {
    fn name(&self) -> &'static str {
        "sustained"
    }
    fn description(&self) -> &'static str {
        "Stop when another policy does so for a number of steps in a row"
    }
    fn needs(&self) -> Vec<RunData> {
        self.inner.needs()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        match self.inner.should_terminate(step, context) {
            Verdict::Stop(mut stop) => {
                self.streak = self.streak.saturating_add(1);
                if self.streak < self.steps {
                    return Verdict::Continue;
                }
                // With one step the combinator changes nothing, so the evidence stays as it is.
                if self.steps > 1 {
                    stop.evidence = format!("{}, {} steps in a row", stop.evidence, self.streak);
                }
                Verdict::Stop(stop)
            }
            verdict => {
                self.streak = 0;
                verdict
            }
        }
    }
    fn join_all(&mut self) {
        self.inner.join_all();
    }
    fn begin_turn(&mut self) {
        self.inner.begin_turn();
    }
    fn reset(&mut self) {
        self.streak = 0;
        self.inner.reset();
    }
}
