//! A policy of any type, boxed.

use super::verdict::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use crate::run_data::RunData;
use serde_json::Value;
use std::fmt;

/// A boxed policy with the operators `|`, `&` and `!`.
#[derive(Clone)]
pub struct BoxPolicy(Box<dyn TerminationPolicy>);

impl BoxPolicy {
    /// Boxes a policy.
    pub fn new(policy: impl TerminationPolicy + 'static) -> BoxPolicy {
        BoxPolicy(Box::new(policy))
    }

    /// Returns the boxed policy.
    pub fn into_inner(self) -> Box<dyn TerminationPolicy> {
        self.0
    }
}

impl From<Box<dyn TerminationPolicy>> for BoxPolicy {
    fn from(inner: Box<dyn TerminationPolicy>) -> BoxPolicy {
        BoxPolicy(inner)
    }
}

impl fmt::Debug for BoxPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxPolicy").field(&self.0.name()).finish()
    }
}

impl TerminationPolicy for BoxPolicy {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn default_config(&self) -> Value {
        self.0.default_config()
    }
    fn specification(&self) -> Option<Value> {
        self.0.specification()
    }
    fn needs(&self) -> Vec<RunData> {
        self.0.needs()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        self.0.should_terminate(step, context)
    }
    fn begin_turn(&mut self) {
        self.0.begin_turn();
    }
    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        self.0.on_delta(piece, context)
    }
    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        self.0.on_text_complete(text, context)
    }
    fn join_all(&mut self) {
        self.0.join_all();
    }
    fn reset(&mut self) {
        self.0.reset();
    }
}
