//! Hooks: user code called at fixed points of a run. A hook may let the run proceed, inject a
//! message for the model, change or deny a tool call, change its result, veto a success, or halt the
//! run.
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
pub use endstop_core::{ChangedResult, ConsultPoint, HookDecision, Hooks, Park};

use crate::event::AgentEvent;
use crate::provider::{ModelParams, ToolDefinition};
use endstop_core::{Message, ToolCall};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

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

    /// Returns the answer about a request to the model, at the point `pre_call`. `Deny` and `Halt`
    /// end the run before the request is sent. Not called again for a retry of the same request.
    ///
    /// The conversation is copied once for each call of this function, and not at all if no hook
    /// asks for the point.
    fn pre_call<'a>(&'a self, request: ModelRequest<'a>) -> HookFuture<'a> {
        let ModelRequest { turn, output_cap, .. } = request;
        self.consult(ConsultPoint::PreCall { turn, output_cap })
    }

    /// Receives an event of the run, at the point `on_event`. It is called on the run's task, so it
    /// should return quickly: the run cannot react to a stop in the meantime.
    fn on_event(&self, _event: &AgentEvent) {}
}

/// A request to the model that is about to be sent.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ModelRequest<'a> {
    /// The turn, from 1.
    pub turn: u32,
    /// The output cap of the call, unless a ceiling lowers it further.
    pub output_cap: Option<u64>,
    /// The system prompt.
    pub system: Option<&'a str>,
    /// The conversation.
    pub messages: &'a [Message],
    /// The tools that the model is offered.
    pub tools: &'a [ToolDefinition],
    /// The parameters.
    pub params: &'a ModelParams,
}

/// Asks a person for approval of a tool call. A program that shows requests elsewhere, for example
/// in a browser, can answer them [through the run's handle](crate::RunHandle::answer) instead.
pub trait Approver: Send + Sync {
    /// Returns the decision. The future is dropped if the run ends first; a prompt should then be
    /// dismissed.
    ///
    /// [`HookDecision::Park`] parks the run until a decision is made ([`park`](crate::park)). It
    /// needs a journal: without one, and in a run that is nested in another one, the call is
    /// denied.
    fn approve(&self, call: ToolCall) -> HookFuture<'_>;
}

/// An approver that decides nothing and parks the run at each request ([`park`](crate::park)).
///
/// ```
/// use endstop::hook::ParkApprovals;
/// use std::time::Duration;
/// let approver = ParkApprovals::new().expires_after(Duration::from_secs(3600));
/// # let _ = approver;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ParkApprovals(Park);

impl ParkApprovals {
    /// Creates an approver whose requests never expire.
    pub fn new() -> ParkApprovals {
        ParkApprovals::default()
    }

    /// Sets the time after which a request counts as denied by timeout.
    pub fn expires_after(mut self, time: Duration) -> ParkApprovals {
        self.0.expires_after_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Sets the reason that is shown with each request.
    pub fn reason(mut self, reason: impl Into<String>) -> ParkApprovals {
        self.0.reason = Some(reason.into());
        self
    }
}

impl Approver for ParkApprovals {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        Box::pin(async move { HookDecision::Park(self.0.clone()) })
    }
}

/// `true` if `points` includes the one of `point`.
pub(crate) fn asks(points: Hooks, point: &ConsultPoint) -> bool {
    match point {
        ConsultPoint::Prompt => points.prompt,
        ConsultPoint::PreIteration { .. } => points.pre_iteration,
        ConsultPoint::ChatParams { .. } => points.chat_params,
        ConsultPoint::PreCall { .. } => points.pre_call,
        ConsultPoint::PreTool { .. } => points.pre_tool,
        ConsultPoint::PostTool { .. } => points.post_tool,
        ConsultPoint::Stop { .. } => points.stop,
        ConsultPoint::Reply => points.reply,
        _ => false,
    }
}
