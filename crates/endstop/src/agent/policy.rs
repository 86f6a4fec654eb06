//! A loop's policy, lent to each of its runs in turn; every run resets it at its start.

use endstop_core::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
pub(crate) struct SharedPolicy {
    name: Arc<str>,
    specification: Option<Value>,
    policy: Arc<Mutex<Box<dyn TerminationPolicy>>>,
}

impl SharedPolicy {
    pub(crate) fn new(policy: Box<dyn TerminationPolicy>) -> SharedPolicy {
        SharedPolicy {
            name: policy.name().into(),
            specification: policy.specification(),
            policy: Arc::new(Mutex::new(policy)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn TerminationPolicy>> {
        // One that panicked is reset before it is used again.
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TerminationPolicy for SharedPolicy {
    fn name(&self) -> &str {
        &self.name
    }
    fn specification(&self) -> Option<Value> {
        self.specification.clone()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        self.lock().should_terminate(step, context)
    }
    fn begin_turn(&mut self) {
        self.lock().begin_turn();
    }
    fn look(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        self.lock().look(piece, context)
    }
    fn look_at_end(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        self.lock().look_at_end(text, context)
    }
    fn reset(&mut self) {
        self.lock().reset();
    }
}
