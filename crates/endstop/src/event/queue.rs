//! The queue between a driver and the reader of its events.
//!
//! ```text
//! let (sink, mut events) = queue();
//! sink.send(event);
//! let event = ready!(events.poll(cx)); // `None` after the run's last event
//! events.intercept(|event| keep(event)); // on the driver's task, without a wake-up of the reader
//! ```
//!
//! Not a channel of tokio, because this one allocates nothing before the first event and nothing
//! for each event, and because it closes with the last event although nested runs have a sink.

use super::agent_event::{AgentEvent, RunPlace};
use super::kind::AgentEventKind;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::task::coop;

/// Number of deltas that may wait for the reader. Further deltas are dropped.
const MOST_DELTAS: usize = 1024;

/// Capacity that an empty queue may keep.
const MOST_SPARE: usize = 64;

#[derive(Debug)]
struct Queue {
    /// `true` while the reader takes events. Outside the lock, because it is read for each delta.
    open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<AgentEvent>,
    /// Number of deltas in `events`.
    deltas: usize,
    /// Runs whose deltas are dropped until their next turn. A reader that missed a delta gets no
    /// later one of the turn, so that the text that it has is a prefix of the turn's text.
    lagging: Vec<Arc<RunPlace>>,
    reader: Option<Waker>,
    /// Gets each event before the reader.
    interceptor: Option<Interceptor>,
    /// The panic of the interceptor, for the reader.
    panic: Option<Box<dyn Any + Send>>,
    /// `true` once the run's last event was sent.
    ended: bool,
}

/// The reader's code that gets each event on the driver's task.
struct Interceptor(Box<dyn FnMut(AgentEvent) -> Option<AgentEvent> + Send>);

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interceptor")
    }
}

/// The driver's end.
#[derive(Clone, Debug)]
pub(crate) struct EventSink(Arc<Queue>);

/// The reader's end. Dropping it closes the queue.
#[derive(Debug)]
pub(crate) struct EventSource(Arc<Queue>);

/// The place in which the runs that a tool call starts are nested.
#[derive(Clone, Debug)]
pub(crate) struct Nesting {
    /// The queue of the outermost run.
    pub(crate) sink: EventSink,
    /// The run of the call.
    pub(crate) run: Arc<RunPlace>,
}

/// Creates an empty queue.
pub(crate) fn queue() -> (EventSink, EventSource) {
    let queue = Arc::new(Queue { open: AtomicBool::new(true), state: Mutex::default() });
    (EventSink(Arc::clone(&queue)), EventSource(queue))
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `true` if the event may wait for the reader.
    fn admits(&mut self, event: &AgentEvent) -> bool {
        if self.ended {
            return false;
        }
        let run = &event.origin.run;
        if event.kind.is_delta() {
            if self.lagging.iter().any(|lagging| Arc::ptr_eq(lagging, run)) {
                return false;
            }
            if self.deltas >= MOST_DELTAS {
                self.lagging.push(Arc::clone(run));
                return false;
            }
        } else if !self.lagging.is_empty()
            && matches!(event.kind, AgentEventKind::TurnStarted { .. })
        {
            self.lagging.retain(|lagging| !Arc::ptr_eq(lagging, run));
        }
        self.ended =
            matches!(event.kind, AgentEventKind::Finished { .. } | AgentEventKind::Parked { .. });
        true
    }

    /// Passes an event to the interceptor, and appends it unless that took it. Returns `true` if the reader
    /// has something to do.
    fn append(&mut self, event: AgentEvent) -> bool {
        let event = match &mut self.interceptor {
            None => Some(event),
            // The caller's code, so a panic must not reach the driver.
            Some(Interceptor(take)) => match catch_unwind(AssertUnwindSafe(|| take(event))) {
                Ok(event) => event,
                Err(panic) => {
                    (self.interceptor, self.panic) = (None, Some(panic));
                    return true;
                }
            },
        };
        // A reader of which every event was taken still waits for the end.
        let Some(event) = event else { return self.ended };
        self.deltas += usize::from(event.kind.is_delta());
        self.events.push_back(event);
        true
    }
}

impl EventSink {
    /// `true` while the reader takes events.
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed, because an event that is built in vain costs only its time.
        self.0.open.load(Ordering::Relaxed)
    }

    /// Sends an event, unless the queue is closed. A delta may be dropped if the reader lags.
    pub(crate) fn send(&self, event: AgentEvent) {
        let reader = {
            let mut state = self.0.state();
            // Checked under the lock: a closed queue stays empty.
            if !self.is_open() || !state.admits(&event) {
                return;
            }
            if state.append(event) { state.reader.take() } else { None }
        };
        if let Some(reader) = reader {
            // The waker is the caller's code, so a panic must not reach the driver.
            let _ = catch_unwind(AssertUnwindSafe(|| reader.wake()));
        }
    }
}

impl EventSource {
    /// Polls for the next event; `None` after the last one.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        // A driver on another thread may produce events as fast as the reader takes them.
        let turn = ready!(coop::poll_proceed(cx));
        let mut state = self.0.state();
        if let Some(panic) = state.panic.take() {
            drop(state);
            resume_unwind(panic);
        }
        let event = state.events.pop_front();
        if event.is_none() && !state.ended {
            if state.events.capacity() > MOST_SPARE {
                state.events = VecDeque::new();
            }
            let waker = cx.waker();
            if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(waker)) {
                state.reader = Some(waker.clone());
            }
            return Poll::Pending;
        }
        state.deltas -= usize::from(event.as_ref().is_some_and(|event| event.kind.is_delta()));
        turn.made_progress();
        Poll::Ready(event)
    }

    /// Passes each event to `take` first, on the driver's task, beginning with those that wait. Only what it
    /// returns reaches the reader. A panic of it is one of the next [`poll`](Self::poll).
    pub(crate) fn intercept(
        &mut self,
        take: impl FnMut(AgentEvent) -> Option<AgentEvent> + Send + 'static,
    ) {
        let mut state = self.0.state();
        let before = state.interceptor.replace(Interceptor(Box::new(take)));
        state.deltas = 0;
        // Under the lock, so that no later event overtakes these.
        for event in std::mem::take(&mut state.events) {
            state.append(event);
        }
        drop(state);
        drop(before);
    }

    /// Closes the queue and drops the events in it.
    pub(crate) fn close(&mut self) {
        let mut state = self.0.state();
        self.0.open.store(false, Ordering::Relaxed);
        let gone = (
            std::mem::take(&mut state.events),
            state.reader.take(),
            state.interceptor.take(),
            state.panic.take(),
        );
        drop(state);
        // Without the lock, because the drop of a waker or an interceptor is the caller's code.
        drop(gone);
    }
}

impl Drop for EventSource {
    fn drop(&mut self) {
        self.close();
    }
}
