//! The handle of a run: a stream of its events and a future of its outcome.
//!
//! Dropping the handle cancels the run; [`RunHandle::detach`] prevents that. A slow reader may miss
//! text deltas (the event that ends the turn has the whole text), but never a lifecycle event.

use super::approvals::{AnswerError, Approval, ApprovalRequested, Approvals, RequestId};
use super::ending::EndingCell;
use crate::control::Control;
use endstop_core::{Outcome, RunEvent, TurnDelta};
use futures_core::Stream;
use serde::Serialize;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Number of text deltas that may wait for the reader. Further deltas are dropped.
const MOST_DELTAS: usize = 1024;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum AgentEvent {
    /// A step in the life of the run.
    Run(RunEvent),
    /// An increment of the current turn.
    Delta(DeltaEvent),
    /// A tool call waits for approval; see [`RunHandle::answer`].
    ApprovalRequested(ApprovalRequested),
    /// A problem that does not affect the run, for example a journal that cannot be written.
    Warning(WarningEvent),
    /// The run has ended. Always the last event.
    Ended(Arc<Outcome>),
}

/// An increment of the current turn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeltaEvent {
    /// Always `delta`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The received text, reasoning or tool-call fragment.
    #[serde(flatten)]
    pub delta: TurnDelta,
}

impl DeltaEvent {
    pub(crate) fn new(delta: TurnDelta) -> DeltaEvent {
        DeltaEvent { kind: "delta", delta }
    }
}

/// A problem that does not affect the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarningEvent {
    /// Always `warning`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// A description for people.
    pub message: String,
}

impl WarningEvent {
    /// Creates a warning with this message.
    pub fn new(message: impl Into<String>) -> WarningEvent {
        WarningEvent { kind: "warning", message: message.into() }
    }
}

/// A handle to a running or ended run.
#[must_use = "dropping the handle cancels the run"]
#[derive(Debug)]
pub struct RunHandle {
    events: mpsc::UnboundedReceiver<Box<AgentEvent>>,
    waiting: Arc<AtomicUsize>,
    ending: EndingCell,
    control: Control,
    approvals: Approvals,
    cancel_on_drop: bool,
}

/// The driver's end of the event channel. The channel allocates room for several events when it is
/// created; events are boxed so that a waiting run uses less memory.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    events: mpsc::UnboundedSender<Box<AgentEvent>>,
    waiting: Arc<AtomicUsize>,
    pub(super) approvals: Approvals,
}

impl EventSink {
    /// `true` while the reader still takes events.
    pub(crate) fn is_open(&self) -> bool {
        !self.events.is_closed()
    }

    pub(crate) fn send(&self, event: AgentEvent) {
        if matches!(event, AgentEvent::Delta(_)) {
            // Relaxed is enough because the count is only an approximate bound on memory.
            if self.waiting.load(Ordering::Relaxed) >= MOST_DELTAS {
                return;
            }
            self.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let _ = self.events.send(Box::new(event));
    }
}

impl RunHandle {
    pub(super) fn new(ending: EndingCell, control: Control) -> (RunHandle, EventSink) {
        let (sender, events) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        let approvals = Approvals::new(control.clone());
        let sink = EventSink {
            events: sender,
            waiting: Arc::clone(&waiting),
            approvals: approvals.clone(),
        };
        (RunHandle { events, waiting, ending, control, approvals, cancel_on_drop: true }, sink)
    }

    /// Returns the next event, or `None` after the event with the outcome.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        let polled = self.events.poll_recv(cx).map(|event| event.map(|event| *event));
        if let Poll::Ready(Some(AgentEvent::Delta(_))) = &polled {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        polled
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
    /// # use endstop::agent::{AgentEvent, Approval};
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
    ///     if let AgentEvent::ApprovalRequested(request) = event {
    ///         println!("{} {}", request.name, request.canonical);
    ///         run.answer(request.request_id, Approval::Allow)?;
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

    /// Drops the handle without cancelling the run.
    pub fn detach(mut self) {
        self.cancel_on_drop = false;
    }

    /// Returns the outcome if the run has ended.
    pub fn try_outcome(&self) -> Option<Arc<Outcome>> {
        self.ending.get()
    }

    /// Waits for the outcome and discards all further events.
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
        if self.cancel_on_drop && self.ending.get().is_none() {
            self.control.cancel();
        }
    }
}
