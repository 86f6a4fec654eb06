//! The state that the clones of a session and the driver of its run share.
//!
//! ```text
//! let under_way = shared.under_way();      // `settled` waits
//! shared.finished(number, Some(&outcome)); // the session is idle again
//! ```

use crate::agent::shared::{Shared, closed_tracker};
use crate::agent::start::start_error::StartError;
use crate::budget::SharedBudget;
use crate::control::Control;
use crate::tool::ToolContext;
use endstop_core::{Message, Outcome};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The state that the clones of a session and its driver share.
pub(crate) struct SessionShared {
    pub(in crate::agent) agent: Arc<Shared>,
    /// The tool call of another run on whose behalf the session works.
    pub(in crate::agent) outer: Option<ToolContext>,
    /// The budget of its runs: that of the agent, and what the outer run has left.
    pub(in crate::agent) budget: Option<SharedBudget>,
    tasks: TaskTracker,
    state: Mutex<State>,
}

pub(in crate::agent) struct State {
    pub(in crate::agent) terminated: bool,
    pub(in crate::agent) running: Option<Running>,
    pub(in crate::agent) messages: Vec<Message>,
    pub(in crate::agent) epoch: u64,
    /// Number of changes to the conversation.
    pub(in crate::agent) changes: u64,
}

pub(in crate::agent) struct Running {
    pub(in crate::agent) number: u64,
    pub(in crate::agent) control: Control,
}

/// Keeps `settled` of a session and of its agent waiting.
pub(in crate::agent) struct UnderWay {
    _session: TaskTrackerToken,
    _agent: TaskTrackerToken,
}

impl SessionShared {
    pub(in crate::agent) fn new(
        agent: Arc<Shared>,
        messages: Vec<Message>,
        epoch: u64,
    ) -> SessionShared {
        let state = State { terminated: false, running: None, messages, epoch, changes: 0 };
        let (outer, budget) = (None, agent.config.budget.clone());
        SessionShared { agent, outer, budget, tasks: closed_tracker(), state: Mutex::new(state) }
    }

    /// Creates a session that works on behalf of another run's tool call: it spends within that
    /// run's budget, stops with that run, and reports its spending to it.
    pub(in crate::agent) fn within(agent: Arc<Shared>, context: &ToolContext) -> SessionShared {
        let session = SessionShared::new(agent, Vec::new(), 0);
        let budget = match (&session.budget, context.budget()) {
            (Some(own), Some(outer)) => Some(SharedBudget::both(own, &outer)),
            (own, outer) => own.clone().or(outer),
        };
        SessionShared { outer: Some(context.clone()), budget, ..session }
    }

    /// Waits until nothing of the session is active.
    pub(in crate::agent) async fn settled(&self) {
        self.tasks.wait().await;
    }

    pub(in crate::agent) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a change or a run after a terminate, and during a run.
    pub(in crate::agent) fn check_idle(&self, state: &State) -> Result<(), StartError> {
        if state.terminated || self.agent.is_terminated() {
            return Err(StartError::Terminated);
        }
        if state.running.is_some() { Err(StartError::Busy) } else { Ok(()) }
    }

    /// Makes `settled` wait until the value is dropped.
    pub(in crate::agent) fn under_way(&self) -> UnderWay {
        UnderWay { _session: self.tasks.token(), _agent: self.agent.tasks.token() }
    }

    /// Makes `settled` wait until the future has ended.
    pub(in crate::agent) fn track<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        self.agent.tasks.track_future(self.tasks.track_future(future))
    }

    /// Releases the run slot. If there is an outcome, its conversation becomes the session's.
    pub(in crate::agent) fn finished(&self, number: u64, outcome: Option<&Outcome>) {
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
