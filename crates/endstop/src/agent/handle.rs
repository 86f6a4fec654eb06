//! The handle of a run: a stream of what happens, and a future of the one outcome.
//!
//! Dropping the handle cancels the run; [`RunHandle::detach`] says otherwise. A reader that lags
//! may miss text (it is whole in the event that ends the turn), never a lifecycle event.

use super::control::Control;
use super::ending::EndingCell;
use endstop_core::{Outcome, RunEvent, TurnDelta};
use futures_core::Stream;
use serde::Serialize;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Pieces of text that may wait for a reader before further ones are dropped.
const MOST_DELTAS: usize = 1024;

/// What happens in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "it is moved once, and a box is one more to match")]
pub enum AgentEvent {
    /// A step of the run's life.
    Run(RunEvent),
    /// More of the turn that is under way.
    Delta(DeltaEvent),
    /// Something beside the run is not as it should be: its journal does not keep it.
    Warning(WarningEvent),
    /// The run has ended; always the last.
    Ended(Arc<Outcome>),
}

/// More of the turn that is under way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeltaEvent {
    /// Always `delta`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What came.
    #[serde(flatten)]
    pub delta: TurnDelta,
}

impl DeltaEvent {
    pub(crate) fn new(delta: TurnDelta) -> DeltaEvent {
        DeltaEvent { kind: "delta", delta }
    }
}

/// Something beside the run is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WarningEvent {
    /// Always `warning`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What, for a person.
    pub message: String,
}

impl WarningEvent {
    /// A warning of these words.
    pub fn new(message: impl Into<String>) -> WarningEvent {
        WarningEvent { kind: "warning", message: message.into() }
    }
}

/// A run under way.
#[must_use = "dropping the handle cancels the run"]
#[derive(Debug)]
pub struct RunHandle {
    events: mpsc::UnboundedReceiver<Box<AgentEvent>>,
    waiting: Arc<AtomicUsize>,
    ending: EndingCell,
    control: Control,
    cancel_on_drop: bool,
}

/// Where the driver puts what happens. The channel has room for some events from its beginning:
/// they are boxed, for a run that waits to hold less.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    events: mpsc::UnboundedSender<Box<AgentEvent>>,
    waiting: Arc<AtomicUsize>,
}

impl EventSink {
    /// Whether anybody reads.
    pub(crate) fn is_open(&self) -> bool {
        !self.events.is_closed()
    }

    pub(crate) fn send(&self, event: AgentEvent) {
        if matches!(event, AgentEvent::Delta(_)) {
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
        let sink = EventSink { events: sender, waiting: Arc::clone(&waiting) };
        (RunHandle { events, waiting, ending, control, cancel_on_drop: true }, sink)
    }

    /// The next event; `None` once the outcome was given.
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

    /// Cancels this run, and no other: an acknowledgement that comes late stops nothing else. As with
    /// [`AgentLoop::cancel`](super::AgentLoop::cancel), nothing of the run starts after it has returned.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Lets the run go on when the handle is dropped.
    pub fn detach(mut self) {
        self.cancel_on_drop = false;
    }

    /// The outcome, where the run has ended.
    pub fn try_outcome(&self) -> Option<Arc<Outcome>> {
        self.ending.get()
    }

    /// Waits for the one outcome; the events are no longer collected.
    pub async fn outcome(mut self) -> Outcome {
        self.events.close();
        let outcome = self.ending.wait().await;
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
