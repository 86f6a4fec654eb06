//! Hooks: user code called at fixed points of a run. A hook may let the run proceed, inject a
//! message for the model, deny a tool call, veto a success, or halt the run.
//!
//! ```
//! use endstop::hook::{Hook, HookFuture};
//! use endstop::{Answer, ConsultPoint, Hooks};
//! /// Vetoes a success until the tests were run.
//! /// No success before the tests were run.
//! struct TestsFirst;
//! impl Hook for TestsFirst {
//!     fn points(&self) -> Hooks { Hooks { stop: true, ..Hooks::default() } }
//!     fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
//!         Box::pin(async move {
//!             match point {
//!                 ConsultPoint::Stop { answer: Some(a) } if !a.contains("passed") =>
//!                     Answer::Deny("Run the tests, and say that they passed.".into()),
//!                 _ => Answer::Proceed,
//!             }
//!         })
//!     }
//! }
//! ```

use crate::compaction::CompactionRequest;
use endstop_core::{Answer, Compaction, ConsultPoint, Hooks, ToolCall};
use std::future::Future;
use std::pin::Pin;

/// The future of a hook's answer.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

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

/// The future of a compactor's result.
pub type CompactionFuture<'a> = Pin<Box<dyn Future<Output = Compaction> + Send + 'a>>;

/// Shortens a conversation. The built-in compactors are in [`compaction`](crate::compaction).
///
/// The result is accepted if it is enough shorter, is valid for providers, and contains the task,
/// pinned messages and everything that the model has not answered yet. Otherwise the compaction has
/// failed, and the conversation stays unchanged.
///
/// ```
/// use endstop::compaction::CompactionRequest;
/// use endstop::core::history;
/// use endstop::hook::{CompactionFuture, Compactor};
/// use endstop::{Compaction, Role};
///
/// /// Drops everything that is answered, except the task.
/// struct Forget;
/// impl Compactor for Forget {
///     fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
///         let open = history::open_from(&request.messages);
///         let messages = request.messages.into_iter().enumerate().filter_map(|(at, message)| {
///             let stays = at >= open || request.task == Some(message.id) || message.pinned;
///             stays.then_some(message)
///         });
///         let done = Compaction::done("forget", messages.collect());
///         Box::pin(async { done })
///     }
/// }
/// # let _ = Forget;
/// ```
pub trait Compactor: Send + Sync {
    /// Shortens the conversation. The future is dropped if the run ends first.
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_>;
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
