//! Hooks: user code called at fixed points of a run. A hook may let the run proceed, inject a
//! message for the model, deny a tool call, veto a success, or halt the run.
//!
//! ```
//! use endstop::hook::{Hook, HookFuture};
//! use endstop::hook::{ConsultPoint, HookDecision, Hooks};
//! /// Vetoes a success until the tests were run.
//! struct TestsFirst;
//! impl Hook for TestsFirst {
//!     fn points(&self) -> Hooks { Hooks { stop: true, ..Hooks::default() } }
//!     fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
//!         Box::pin(async move {
//!             match point {
//!                 ConsultPoint::Stop { answer: Some(a) } if !a.contains("passed") =>
//!                     HookDecision::Deny("Run the tests, and say that they passed.".into()),
//!                 _ => HookDecision::Proceed,
//!             }
//!         })
//!     }
//! }
//! ```

pub use crate::compaction::{CompactionFuture, Compactor};
pub use endstop_core::{ConsultPoint, HookDecision, Hooks};

use endstop_core::ToolCall;
use std::future::Future;
use std::pin::Pin;

/// The future of a hook's answer.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = HookDecision> + Send + 'a>>;

/// User code that is called at fixed points of a run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    note = "implement `points` (when it is called) and `consult` (its answer)"
)]
pub trait Hook: Send + Sync {
    /// Returns the points at which the hook is called.
    fn points(&self) -> Hooks;

    /// Returns the answer at a point.
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_>;
}

/// Asks a person for approval of a tool call.
pub trait Approver: Send + Sync {
    /// Returns the decision. The future is dropped if the run ends first; a prompt should then be
    /// dismissed.
    fn approve(&self, call: ToolCall) -> HookFuture<'_>;
}

/// `true` if `points` includes the one of `point`.
pub(crate) fn asks(points: Hooks, point: &ConsultPoint) -> bool {
    match point {
        ConsultPoint::Prompt => points.prompt,
        ConsultPoint::PreIteration { .. } => points.pre_iteration,
        ConsultPoint::ChatParams { .. } => points.chat_params,
        ConsultPoint::PreTool { .. } => points.pre_tool,
        ConsultPoint::Stop { .. } => points.stop,
        ConsultPoint::Reply => points.reply,
        _ => false,
    }
}
