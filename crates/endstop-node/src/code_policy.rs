//! A termination policy that is a JavaScript function.
//!
//! The kernel calls a policy in the middle of a step, and a policy of Rust must be `Send`. A
//! reference to a function is; the environment in which it may be called is not, so a step stores
//! the environment for its thread, and the policy finds it there.

use crate::verdict::VerdictFields;
use endstop_core::policy::PolicyFault;
use endstop_core::{StepContext, StepResult, TerminationPolicy, Verdict};
use endstop_wire::redact::secrets_out;
use napi::Env;
use napi::bindgen_prelude::{FnArgs, FunctionRef};
use napi_derive::napi;
use std::cell::Cell;
use std::sync::Arc;

/// The result of a policy function, as the JavaScript half reports it.
#[napi(object, use_nullable = true)]
pub struct CodeAnswer {
    /// The verdict.
    pub verdict: Option<VerdictFields>,
    /// The message of the exception that the function threw.
    pub failed: Option<String>,
    /// Stack of that exception.
    pub stack: Option<String>,
}

/// A function of the JavaScript half: it calls a policy with the step and the context as JSON.
pub(crate) type Code = FunctionRef<FnArgs<(String, String)>, CodeAnswer>;

/// A function of the JavaScript half: it makes the policy for one run.
pub(crate) type Factory = FunctionRef<(), Code>;

thread_local! {
    /// The environment of the call that is under way on this thread.
    static CURRENT: Cell<Option<Env>> = const { Cell::new(None) };
}

/// Runs a call during which policies may be asked.
pub(crate) fn with_policies<T>(env: Env, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(Some(env));
    // Restored also if the call unwinds.
    let _restored = Restore(before);
    work()
}

struct Restore(Option<Env>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// A policy in JavaScript.
pub(crate) struct CodePolicy {
    source: Arc<Source>,
    /// The function of this copy. Made at the first step, so that each run has its own.
    code: Option<Code>,
}

struct Source {
    name: String,
    description: String,
    factory: Factory,
}

impl CodePolicy {
    pub(crate) fn new(name: String, description: String, factory: Factory) -> CodePolicy {
        CodePolicy { source: Arc::new(Source { name, description, factory }), code: None }
    }

    fn evaluate(&mut self, step: &StepResult, context: &StepContext) -> napi::Result<CodeAnswer> {
        let env = CURRENT.get().ok_or_else(|| {
            napi::Error::from_reason("a policy was called outside of a run's call")
        })?;
        let code = match self.code.take() {
            Some(code) => code,
            None => self.source.factory.borrow_back(&env)?.call(())?,
        };
        let code = self.code.insert(code);
        let broken = |e: serde_json::Error| napi::Error::from_reason(e.to_string());
        let step = serde_json::to_string(step).map_err(broken)?;
        let context = serde_json::to_string(context).map_err(broken)?;
        code.borrow_back(&env)?.call(FnArgs::from((step, context)))
    }

    /// Returns the verdict, or the failure of the policy.
    fn judge(&mut self, step: &StepResult, context: &StepContext) -> Result<Verdict, PolicyFault> {
        let fault = |reason: String, stack: Option<String>| {
            // A stack shows source lines and messages, either of which may contain a key.
            let diagnostic = secrets_out(stack.as_deref().unwrap_or(&reason));
            PolicyFault { evidence: secrets_out(&reason), diagnostic }
        };
        let answer = self.evaluate(step, context).map_err(|e| fault(e.reason.clone(), None))?;
        if let Some(reason) = answer.failed {
            return Err(fault(reason, answer.stack));
        }
        let read = |fields: VerdictFields| fields.read(&self.source.name);
        let verdict = answer.verdict.map_or(Ok(Verdict::Continue), read);
        verdict.map_err(|e| fault(e.reason.clone(), None))
    }
}

/// A copy has a state of its own.
impl Clone for CodePolicy {
    fn clone(&self) -> CodePolicy {
        CodePolicy { source: Arc::clone(&self.source), code: None }
    }
}

impl TerminationPolicy for CodePolicy {
    fn name(&self) -> &str {
        &self.source.name
    }

    fn description(&self) -> &str {
        &self.source.description
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        // The kernel catches this, and ends the run as a failure of the policy.
        self.judge(step, context).unwrap_or_else(|fault| fault.raise())
    }

    fn reset(&mut self) {
        // The factory makes a new function at the next step, because the state is in its closure.
        self.code = None;
    }
}
