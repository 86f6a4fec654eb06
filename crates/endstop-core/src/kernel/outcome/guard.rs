//! Guards the kernel against user code that panics: a panic becomes the ending of the run.

use super::decided_by::{Decision, Layer};
use super::ending::Ending;
use crate::kernel::event::HookDecision;
use crate::policy::PolicyFault;
use crate::termination::Termination;
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `Continue` if the run continues, `Break` with the decided ending if it ends. Both a success and a
/// failure are endings, so that `?` leaves every nested step at once.
pub(crate) type Flow<T = ()> = ControlFlow<Box<Ending>, T>;

/// Runs user code; a panic becomes the ending of the run instead of unwinding through the driver.
pub(crate) fn guarded<T>(name: String, code: impl FnOnce() -> T) -> Flow<T> {
    // `AssertUnwindSafe` is sound here because the policy is never used again after a panic: the
    // run ends.
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Continue(value),
        Err(payload) => {
            // User code in another language unwinds with its own description of the failure.
            if let Some(PolicyFault { evidence, diagnostic }) = payload.downcast_ref() {
                return Break(fault(name, evidence.clone()).diagnostic(diagnostic.clone()));
            }
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            Break(fault(name, format!("panicked: {message}")))
        }
    }
}

pub(crate) fn fault(name: String, message: String) -> Box<Ending> {
    let decision = Decision::of(Layer::Fault, name);
    Ending::new(Termination::ErrorDuringExecution, Layer::Fault, decision, message.clone())
        .diagnostic(message)
}

/// Returns the ending of a run in which user code gave an answer that has no meaning at its point.
pub(crate) fn misplaced(point: &Decision, answer: &HookDecision) -> Box<Ending> {
    let message = format!("the answer `{}` is not valid at `{point}`", answer.name());
    fault(point.as_str().to_owned(), message)
}
