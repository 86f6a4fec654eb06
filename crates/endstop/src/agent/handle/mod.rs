//! The handle of a run: a stream of its events and a future of its outcome.
//!
//! Dropping the handle cancels the run; [`RunHandle::detach`] prevents that. A slow reader may miss
//! the rest of a turn's deltas (the event that ends the turn has the whole text), but no other event.

pub(super) mod approvals;
pub(super) mod ending;
#[cfg(all(test, endstop_loom))]
mod loom_tests;
pub(super) mod steering;
pub(super) mod streams;

use super::shared::Shared;
use crate::control::Control;
use crate::event::queue::{EventSink, EventSource, queue};
use crate::event::{AgentEvent, RequestId, RunPlace};
use crate::park::RunStatus;
use approvals::{AnswerError, Approval, Approvals};
use ending::EndingCell;
use endstop_core::{LimitChanges, Outcome};
use endstop_wire::redact::KnownKeys;
use futures_core::Stream;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use steering::{SteerError, Steering};

/// A handle to a running or ended run.
///
/// It is a stream of [`AgentEvent`]s and a future of the [`Outcome`]. [`text`](Self::text),
/// [`sse`](Self::sse) and [`json_lines`](Self::json_lines) are streams of what a program usually
/// needs of them.
///
/// Dropping it cancels the run, and so does dropping the future that awaits it: the stream and the tools
/// are stopped, and a session is free for its next run. A handler of a web server is dropped when its
/// client disconnects, so that no run continues without a reader; [`detach`](Self::detach) is for one
/// that must.
#[must_use = "dropping the handle cancels the run"]
pub struct RunHandle {
    events: EventSource,
    ending: EndingCell,
    control: Control,
    run: Arc<RunPlace>,
    agent: Option<Arc<Shared>>,
    /// The values of the run's headers, which are secrets.
    keys: KnownKeys,
    approvals: Approvals,
    cancel_on_drop: bool,
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run_id", &self.run_id())
            .field("ended", &self.ending.get().is_some())
            .finish_non_exhaustive()
    }
}

impl RunHandle {
    pub(super) fn new(ending: EndingCell, control: Control) -> (RunHandle, EventSink) {
        let (sink, events) = queue();
        let handle = RunHandle {
            events,
            ending,
            approvals: Approvals::new(control.clone()),
            control,
            run: Arc::default(),
            agent: None,
            keys: KnownKeys::default(),
            cancel_on_drop: true,
        };
        (handle, sink)
    }

    /// Names the run and its agent. `keys` are the secrets of the run itself.
    pub(super) fn describe(
        mut self,
        run: Arc<RunPlace>,
        agent: Arc<Shared>,
        keys: KnownKeys,
    ) -> RunHandle {
        (self.run, self.agent, self.keys) = (run, Some(agent), keys);
        self
    }

    /// Returns the id of the run, which its events, its outcome and its journal have, too.
    pub fn run_id(&self) -> &str {
        &self.run.id
    }

    /// Returns the next event, or `None` after the event with the outcome. Cancel-safe: if the
    /// future is dropped, no event is lost.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        self.events.poll(cx)
    }

    /// Passes each event of the run, beginning with the next one, to `take` before this handle gets it. Only
    /// the events that `take` returns are those of [`next`](Self::next). A later call replaces `take`.
    ///
    /// `take` is called on the task of the run, or of a run nested in it, so that a program that only writes the
    /// events down needs no task that waits for each of them. It must not block. If it panics, the next
    /// poll of this handle panics, and the run continues.
    ///
    /// ```
    /// # use endstop::{Agent, AgentEventKind, testkit::{ScriptedModel, Turn}};
    /// # use std::sync::{Arc, Mutex};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("It is 42.")])).build()?;
    /// let mut run = agent.run("What is it?")?;
    /// let text = Arc::new(Mutex::new(String::new()));
    /// let written = Arc::clone(&text);
    /// run.intercept(move |event| match event.kind {
    ///     AgentEventKind::TextDelta { text, .. } => {
    ///         written.lock().unwrap().push_str(&text);
    ///         None
    ///     }
    ///     _ => Some(event),
    /// });
    /// while let Some(event) = run.next().await {
    ///     assert!(!matches!(event.kind, AgentEventKind::TextDelta { .. }));
    /// }
    /// assert_eq!(*text.lock().unwrap(), "It is 42.");
    /// # Ok(()) }
    /// ```
    pub fn intercept(
        &mut self,
        take: impl FnMut(AgentEvent) -> Option<AgentEvent> + Send + 'static,
    ) {
        self.events.intercept(take);
    }

    /// `true` if the event is of this run and not of one nested in it.
    pub(super) fn is_own(&self, event: &AgentEvent) -> bool {
        Arc::ptr_eq(&event.origin.run, &self.run)
    }

    /// Returns the run's agent.
    pub(super) fn agent(&self) -> Option<Arc<Shared>> {
        self.agent.clone()
    }

    /// Returns the values that must not appear in the written events.
    pub(super) fn secrets(&self) -> KnownKeys {
        let own = self.agent.as_ref().map(|agent| agent.config.known_keys());
        endstop_process::environment_secrets().and(&own.unwrap_or_default()).and(&self.keys)
    }

    /// Cancels this run only; a late call cannot stop a later run of the same session. Like
    /// [`Agent::cancel`](super::Agent::cancel), it guarantees that nothing of the run starts after
    /// it has returned.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Terminates this run only, without a grace period; the session can run again. Idempotent,
    /// never fails or panics. No event of the run reaches an observer after that, and the run ends
    /// as `terminated`, unless it had ended before.
    pub fn terminate(&self) {
        self.control.terminate();
    }

    /// Answers a request for approval
    /// ([`AgentBuilder::approval_events`](super::AgentBuilder::approval_events)).
    ///
    /// ```
    /// # use endstop::testkit::{ScriptedModel, Turn};
    /// # use endstop::tool::{ToolOutput, tool_fn};
    /// # use endstop::{Agent, Permission};
    /// # use endstop::{AgentEventKind, Approval};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let model = ScriptedModel::new([Turn::call("rm", &serde_json::json!({})), Turn::text("Done.")]);
    /// # let rm = tool_fn("rm", "Deletes.", |_: serde_json::Value, _| async { ToolOutput::ok("deleted") });
    /// let agent = Agent::builder(model)
    ///     .tool(rm)
    ///     .permission("rm", Permission::Ask)
    ///     .approval_events(true)
    ///     .build()?;
    /// let mut run = agent.run("Clean up.")?;
    /// while let Some(event) = run.next().await {
    ///     if let AgentEventKind::ApprovalRequested { request_id, name, canonical, .. } = event.kind {
    ///         println!("{name} {canonical}");
    ///         run.answer(request_id, Approval::Allow)?;
    ///     }
    /// }
    /// # assert_eq!(run.await.termination.as_str(), "stop"); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// There is no such request, it was answered before, or the run no longer waits for it.
    pub fn answer(&self, id: RequestId, approval: Approval) -> Result<(), AnswerError> {
        self.approvals.answer(id, approval)
    }

    /// Returns the run's requests for approval, to answer them from another task.
    pub fn approvals(&self) -> Approvals {
        self.approvals.clone()
    }

    /// Sends the model a message of the user; see [`Steering::say`].
    ///
    /// # Errors
    /// Those of [`Steering::say`].
    pub fn say(&self, text: impl Into<String>) -> Result<(), SteerError> {
        self.steering().say(text)
    }

    /// Changes limits of the run; see [`Steering::set_limits`].
    ///
    /// # Errors
    /// Those of [`Steering::set_limits`].
    pub fn set_limits(&self, changes: LimitChanges) -> Result<(), SteerError> {
        self.steering().set_limits(changes)
    }

    /// Returns a handle that steers the run, for example from another task.
    pub fn steering(&self) -> Steering {
        Steering::new(self.control.clone(), self.ending.clone(), self.agent.clone())
    }

    /// Drops the handle without cancelling the run.
    pub fn detach(mut self) {
        self.cancel_on_drop = false;
    }

    /// Returns the status of the run.
    pub fn status(&self) -> RunStatus {
        match (self.ending.parked(), self.ending.get()) {
            (Some(request), _) => RunStatus::Parked(request),
            (None, Some(outcome)) => RunStatus::Ended(outcome),
            (None, None) => RunStatus::Running,
        }
    }

    /// Waits until the run is parked or has ended, and discards all further events.
    pub async fn wait_for_status(mut self) -> RunStatus {
        self.events.close();
        self.ending.wait().await;
        self.status()
    }

    /// Returns the outcome if the run has ended.
    pub fn try_outcome(&self) -> Option<Arc<Outcome>> {
        self.ending.get()
    }

    /// Waits for the outcome and discards all further events.
    ///
    /// A run that is [parked](crate::park) has no outcome yet. What this returns then is that of
    /// its part in this process: `cancelled`, with the cost so far, and evidence that names the
    /// park. The journal does not have it. An agent whose runs may be parked should be awaited with
    /// [`wait_for_status`](Self::wait_for_status).
    pub async fn outcome(mut self) -> Outcome {
        self.events.close();
        let outcome = self.ending.wait().await;
        // The run has ended, so dropping the handle must not request a cancel.
        self.cancel_on_drop = false;
        drop(self);
        Arc::unwrap_or_clone(outcome)
    }
}

impl Stream for RunHandle {
    type Item = AgentEvent;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        self.get_mut().poll_event(cx)
    }
}

impl IntoFuture for RunHandle {
    type Output = Outcome;
    type IntoFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.outcome())
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if self.cancel_on_drop && !self.ending.is_written() {
            self.control.cancel();
        }
    }
}
