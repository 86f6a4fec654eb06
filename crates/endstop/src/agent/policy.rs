//! The loop's termination policy, shared by its runs in turn. Every run resets it at its start.
//!
//! The kernel catches panics of a policy and puts their messages into the outcome. This wrapper
//! removes credentials from those messages first.

use super::user_code;
use crate::provider::Provider;
use endstop_core::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone)]
pub(crate) struct SharedPolicy {
    name: Arc<str>,
    specification: Option<Value>,
    policy: Arc<Mutex<Box<dyn TerminationPolicy>>>,
    provider: Arc<dyn Provider>,
}

impl SharedPolicy {
    pub(crate) fn new(
        policy: Box<dyn TerminationPolicy>,
        provider: Arc<dyn Provider>,
    ) -> SharedPolicy {
        let (name, specification) = (policy.name().into(), policy.specification());
        SharedPolicy { name, specification, policy: Arc::new(Mutex::new(policy)), provider }
    }

    fn ask<T>(&self, question: impl FnOnce(&mut dyn TerminationPolicy) -> T) -> T {
        // Ignore poison: a policy that panicked is reset before it is used again.
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = catch_unwind(AssertUnwindSafe(|| question(&mut **policy)));
        drop(policy);
        answer.unwrap_or_else(|payload| {
            let message = user_code::message(&*self.provider, payload);
            resume_unwind(Box::new(message))
        })
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
        self.ask(|policy| policy.should_terminate(step, context))
    }
    fn begin_turn(&mut self) {
        self.ask(|policy| policy.begin_turn());
    }
    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        self.ask(|policy| policy.on_delta(piece, context))
    }
    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        self.ask(|policy| policy.on_text_complete(text, context))
    }
    fn reset(&mut self) {
        self.ask(|policy| policy.reset());
    }
}
