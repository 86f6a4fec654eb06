//! The state that the clones of a session and the driver of its run share.
//!
//! ```text
//! let under_way = shared.under_way();      // `settled` waits
//! shared.finished(number, Some(&outcome)); // the session is idle again
//! ```

use super::shared::{Shared, closed_tracker};
use super::start_error::StartError;
use crate::control::Control;
use endstop_core::{Message, Outcome};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The state that the clones of a session and its driver share.
pub(crate) struct SessionShared {
    pub(super) agent: Arc<Shared>,
    tasks: TaskTracker,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) terminated: bool,
    pub(super) running: Option<Running>,
    pub(super) messages: Vec<Message>,
    pub(super) epoch: u64,
    /// Number of changes to the conversation.
    pub(super) changes: u64,
}

pub(super) struct Running {
    pub(super) number: u64,
    pub(super) control: Control,
}

/// Keeps `settled` of a session and of its agent waiting.
pub(super) struct UnderWay {
    _session: TaskTrackerToken,
    _agent: TaskTrackerToken,
}

impl SessionShared {
    pub(super) fn new(agent: Arc<Shared>, messages: Vec<Message>, epoch: u64) -> SessionShared {
        let state = State { terminated: false, running: None, messages, epoch, changes: 0 };
        SessionShared { agent, tasks: closed_tracker(), state: Mutex::new(state) }
    }

    /// Waits until nothing of the session is active.
    pub(super) async fn settled(&self) {
        self.tasks.wait().await;
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a change or a run after a terminate, and during a run.
    pub(super) fn check_idle(&self, state: &State) -> Result<(), StartError> {
        if state.terminated || self.agent.is_terminated() {
            return Err(StartError::Terminated);
        }
        if state.running.is_some() { Err(StartError::Busy) } else { Ok(()) }
    }

    /// Makes `settled` wait until the value is dropped.
    pub(super) fn under_way(&self) -> UnderWay {
        UnderWay { _session: self.tasks.token(), _agent: self.agent.tasks.token() }
    }

    /// Makes `settled` wait until the future has ended.
    pub(super) fn track<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.agent.tasks.track_future(self.tasks.track_future(future))
    }

    /// Releases the run slot. If there is an outcome, its conversation becomes the session's.
    pub(super) fn finished(&self, number: u64, outcome: Option<&Outcome>) {
        {
            let mut state = self.state();
            if state.running.as_ref().is_some_and(|running| running.number == number) {
                state.running = None;
            }
            if let Some(outcome) = outcome {
                state.messages.clone_from(&outcome.messages);
                state.epoch = outcome.epoch;
                state.changes += 1;
            }
        }
        self.agent.release(number);
    }
}
