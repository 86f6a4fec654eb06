//! The termination policy of an agent, of which each run gets its own copy.
//!
//! The kernel catches panics of a policy and puts their messages into the outcome. A copy removes
//! credentials from those messages first.

use crate::agent::user_code;
use crate::provider::Provider;
use endstop_core::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The policy as the agent was given it. No run uses it directly, because a policy has state.
pub(in crate::agent) struct PolicyTemplate {
    name: Arc<str>,
    specification: Option<Value>,
    /// A lock because policies need not be `Sync`; it is held only while the policy is copied.
    policy: Mutex<Box<dyn TerminationPolicy>>,
    provider: Arc<dyn Provider>,
}

impl PolicyTemplate {
    pub(in crate::agent) fn new(
        policy: Box<dyn TerminationPolicy>,
        provider: Arc<dyn Provider>,
    ) -> PolicyTemplate {
        let (name, specification) = (policy.name().into(), policy.specification());
        PolicyTemplate { name, specification, policy: Mutex::new(policy), provider }
    }

    /// Returns a copy for one run. If copying panics, the copy panics with that message when the
    /// kernel resets it, which ends the run.
    pub(in crate::agent) fn copy(&self) -> Box<dyn TerminationPolicy> {
        let template = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = catch_unwind(AssertUnwindSafe(|| template.clone_policy()));
        drop(template);
        Box::new(RunPolicy {
            name: Arc::clone(&self.name),
            specification: self.specification.clone(),
            policy: policy.map_err(|payload| user_code::message(&*self.provider, payload)),
            provider: Arc::clone(&self.provider),
        })
    }
}

/// The policy of one run. `Err` has the message of the panic with which copying it failed.
#[derive(Clone)]
struct RunPolicy {
    name: Arc<str>,
    specification: Option<Value>,
    policy: Result<Box<dyn TerminationPolicy>, String>,
    provider: Arc<dyn Provider>,
}

impl RunPolicy {
    fn ask<T>(&mut self, question: impl FnOnce(&mut dyn TerminationPolicy) -> T) -> T {
        let policy = match &mut self.policy {
            Ok(policy) => &mut **policy,
            Err(message) => resume_unwind(Box::new(message.clone())),
        };
        catch_unwind(AssertUnwindSafe(|| question(policy))).unwrap_or_else(|payload| {
            let message = user_code::message(&*self.provider, payload);
            resume_unwind(Box::new(message))
        })
    }
}

impl TerminationPolicy for RunPolicy {
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
