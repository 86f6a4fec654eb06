//! Termination policies, built in and written in JavaScript.

use crate::code_policy::{CodePolicy, Factory, with_policies};
use crate::errors::{Result, config, from_json, to_json};
use crate::slot::Slot;
use crate::verdict::VerdictFields;
use endstop_core::policy::PolicyFault;
use endstop_core::{BoxPolicy, Registry, StepContext, StepResult, TerminationPolicy};
use napi::Env;
use napi_derive::napi;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A rule that decides after each step if the run stops.
#[napi]
pub struct NativePolicy {
    rule: Slot<BoxPolicy>,
}

impl NativePolicy {
    fn wrap(policy: BoxPolicy) -> NativePolicy {
        NativePolicy { rule: Slot::new(policy) }
    }

    /// Returns a copy without state.
    pub(crate) fn copy(&self) -> Result<BoxPolicy> {
        let mut copy = self.rule.take("policy")?.clone();
        // The original may have judged steps by hand, which no run should inherit.
        copy.reset();
        Ok(copy)
    }
}

/// The verdict on a step, or the failure of the policy.
#[napi(object, use_nullable = true)]
pub struct Judged {
    /// The verdict; null if the policy failed.
    pub verdict: Option<VerdictFields>,
    /// The failure.
    pub failed: Option<String>,
}

#[napi]
impl NativePolicy {
    /// Builds a policy from a name or `name={json}`, or from a specification as JSON.
    #[napi(factory, catch_unwind)]
    pub fn build(text: String, is_json: bool) -> Result<NativePolicy> {
        let registry = Registry::new();
        let built = if is_json {
            registry.build(&from_json(&text, "policy")?)
        } else {
            registry.build_text(&text)
        };
        built.map(NativePolicy::wrap).map_err(config)
    }

    /// Makes a policy of a function of the JavaScript half.
    #[napi(
        factory,
        ts_args_type = "name: string, description: string, factory: () => (step: string, context: string) => CodeAnswer"
    )]
    pub fn of(name: String, description: String, factory: Factory) -> NativePolicy {
        NativePolicy::wrap(BoxPolicy::new(CodePolicy::new(name, description, factory)))
    }

    /// Returns a policy that stops when at least `n` of these do.
    #[napi(factory)]
    pub fn k_of(n: u32, policies: Vec<&NativePolicy>) -> Result<NativePolicy> {
        let n = n as usize;
        if n == 0 || n > policies.len() {
            return Err(config(format!("invalid `n` {n}: expected 1 to {}", policies.len())));
        }
        let members = policies.iter().map(|one| one.copy()).collect::<Result<Vec<_>>>()?;
        Ok(NativePolicy::wrap(endstop_core::policy::k_of(n, members)))
    }

    /// The name that outcomes use.
    #[napi(getter)]
    pub fn name(&self) -> Result<String> {
        Ok(self.rule.take("policy")?.name().to_owned())
    }

    /// One line about the policy.
    #[napi(getter)]
    pub fn description(&self) -> Result<String> {
        Ok(self.rule.take("policy")?.description().to_owned())
    }

    /// The specification that the policy was built from, as JSON; null for code.
    #[napi(getter)]
    pub fn specification(&self) -> Result<Option<String>> {
        self.rule.take("policy")?.specification().as_ref().map(to_json).transpose()
    }

    /// Judges a step, given as JSON. The policy keeps its state between calls, until `reset`.
    #[napi(catch_unwind)]
    pub fn should_stop(&self, env: Env, step: String, context: String) -> Result<Judged> {
        let step: StepResult = from_json(&step, "step")?;
        let context: StepContext = from_json(&context, "context")?;
        let mut policy = self.rule.take("policy")?;
        let judge = || with_policies(env, || policy.should_terminate(&step, &context));
        // A policy reports its failure by a panic with this payload, because the kernel's trait has
        // no error. Any other panic is a fault of Endstop, and continues.
        match catch_unwind(AssertUnwindSafe(judge)) {
            Ok(verdict) => Ok(Judged { verdict: Some(VerdictFields::of(&verdict)?), failed: None }),
            Err(payload) => match payload.downcast::<PolicyFault>() {
                Ok(fault) => Ok(Judged { verdict: None, failed: Some(fault.evidence) }),
                // The binding turns it into an exception of JavaScript.
                Err(panic) => resume_unwind(panic),
            },
        }
    }

    /// Discards the state.
    #[napi]
    pub fn reset(&self) -> Result<()> {
        self.rule.take("policy")?.reset();
        Ok(())
    }

    /// Returns a policy that stops as this one does, but not before `steps` turns are completed.
    #[napi]
    pub fn after_steps(&self, steps: u32) -> Result<NativePolicy> {
        Ok(NativePolicy::wrap(self.copy()?.after_steps(i64::from(steps))))
    }

    /// Returns a policy that stops when this one does for the `steps`-th step in a row.
    #[napi]
    pub fn sustained(&self, steps: u32) -> Result<NativePolicy> {
        Ok(NativePolicy::wrap(self.copy()?.sustained(steps)))
    }

    /// Returns a policy that stops when one of both does.
    #[napi]
    pub fn or(&self, other: &NativePolicy) -> Result<NativePolicy> {
        Ok(NativePolicy::wrap(self.copy()? | other.copy()?))
    }

    /// Returns a policy that stops when both do for the same step.
    #[napi]
    pub fn and(&self, other: &NativePolicy) -> Result<NativePolicy> {
        Ok(NativePolicy::wrap(self.copy()? & other.copy()?))
    }

    /// Returns a policy that stops when this one does not.
    #[napi]
    pub fn not(&self) -> Result<NativePolicy> {
        Ok(NativePolicy::wrap(!self.copy()?))
    }
}

/// Returns the names of the built-in policies.
#[napi]
pub fn policy_names() -> Vec<String> {
    Registry::new().names().map(str::to_owned).collect()
}
