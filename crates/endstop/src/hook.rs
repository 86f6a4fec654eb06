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

use endstop_core::{Answer, Compaction, ConsultPoint, Hooks, Message, ToolCall};
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

/// Shortens a conversation.
pub trait Compactor: Send + Sync {
    /// Shortens it. `forced`: the provider has refused the prompt.
    fn compact(
        &self,
        messages: Vec<Message>,
        forced: bool,
    ) -> Pin<Box<dyn Future<Output = Compaction> + Send + '_>>;
}

/// Whether two sets of points share the one of `point`.
pub(crate) fn asks(points: Hooks, point: &ConsultPoint) -> bool {
    match point {
        ConsultPoint::Prompt => points.prompt,
        ConsultPoint::PreIteration { .. } => points.pre_iteration,
        ConsultPoint::ChatParams { .. } => points.chat_params,
        ConsultPoint::PreTool { .. } => points.pre_tool,
        ConsultPoint::Stop { .. } => points.stop,
        _ => false,
    }
}
