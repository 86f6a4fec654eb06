//! Hooks: asked at fixed points of a run; each may let it go on, tell the model something, refuse
//! a tool, veto a success, or halt the run.
//!
//! ```
//! use endstop::hook::{Hook, HookFuture};
//! use endstop::{Answer, ConsultPoint, Hooks};
//!
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

/// Asked at fixed points of a run.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a hook",
    note = "implement `points` (where it is asked) and `consult` (what it answers)"
)]
pub trait Hook: Send + Sync {
    /// Where it is asked.
    fn points(&self) -> Hooks;

    /// Answers.
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_>;
}

/// Asks a person whether a tool may be run.
pub trait Approver: Send + Sync {
    /// Answers; the future is dropped where the run ends first, and a prompt should then go away.
    fn approve(&self, call: ToolCall) -> HookFuture<'_>;
}

/// The future of a compactor's answer.
pub type CompactionFuture<'a> = Pin<Box<dyn Future<Output = Compaction> + Send + 'a>>;

/// Shortens a conversation. The built-in ones are in [`compaction`](crate::compaction).
///
/// What it gives is taken where it is enough shorter, a conversation that providers accept, and has
/// the task, what is pinned and what the model has not answered yet; else the compaction has failed,
/// and the conversation is as it was.
///
/// ```
/// use endstop::compaction::CompactionRequest;
/// use endstop::core::history;
/// use endstop::hook::{CompactionFuture, Compactor};
/// use endstop::{Compaction, Role};
///
/// /// Forgets all that is answered, but the task.
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
    /// Shortens it; the future is dropped where the run ends first.
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_>;
}

/// Whether two sets of points share the one of `point`.
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
