//! The state that the clones of a loop and its driver share.
//!
//! ```text
//! shared.tell(&control, &event)?;           // to the observers
//! shared.finished(number, Some(&outcome));  // the loop is idle again
//! ```

use super::config::Config;
use super::handle::AgentEvent;
use super::user_code::{self, Panicked};
use crate::control::{Control, Request};
use crate::tool::Tool;
use endstop_core::{Message, Outcome};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The lifecycle state of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// No run is in progress.
    Idle,
    /// A run is in progress.
    Running,
    /// [`AgentLoop::terminate`](crate::AgentLoop::terminate) was called.
    Terminated,
}

pub(crate) struct Shared {
    pub(super) config: Config,
    /// Cancelled by `terminate`. The token of every run is a child of this one.
    pub(super) token: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) state: Mutex<State>,
    pub(super) runs: AtomicU64,
}

pub(super) struct State {
    pub(super) lifecycle: Lifecycle,
    pub(super) running: Option<Running>,
    pub(super) messages: Vec<Message>,
    pub(super) epoch: u64,
    /// The last value queued for the busy observers.
    pub(super) busy: bool,
    /// Values that the busy observers have not received yet, oldest first.
    pub(super) notices: VecDeque<bool>,
    /// `true` while a thread delivers `notices`; other threads only append.
    pub(super) telling: bool,
}

impl State {
    pub(super) fn now_busy(&mut self, busy: bool) {
        self.busy = busy;
        self.notices.push_back(busy);
    }
}

pub(super) struct Running {
    pub(super) number: u64,
    pub(super) control: Control,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the queued values to the busy observers. A panicking observer is ignored.
    ///
    /// If another thread is already delivering, that thread delivers these values too. Each
    /// observer therefore receives `true` and `false` alternately, and no thread waits for an
    /// observer that another thread has called.
    pub(super) fn tell_busy(&self) {
        if std::mem::replace(&mut self.state().telling, true) {
            return;
        }
        loop {
            let next = {
                let mut state = self.state();
                let next = state.notices.pop_front();
                state.telling = next.is_some();
                next
            };
            let Some(busy) = next else { return };
            for observer in &self.config.busy_observers {
                let _ = catch_unwind(AssertUnwindSafe(|| observer(busy)));
            }
        }
    }

    /// Passes an event to the observers, unless the loop was terminated.
    ///
    /// Returns `Err` if an observer panicked; the remaining observers still receive the event.
    pub(super) fn tell(&self, control: &Control, event: &AgentEvent) -> Result<(), Panicked> {
        let provider = &*self.config.provider;
        let mut told = Ok(());
        for observer in &self.config.observers {
            let heard = control.start(Request::Terminate, || {
                user_code::guard(provider, "observer", "an observer", || observer(event))
            });
            let Some(heard) = heard else { break };
            told = told.and(heard);
        }
        told
    }

    /// Releases the run slot. If there is an outcome, its conversation becomes the loop's.
    pub(super) fn finished(&self, number: u64, outcome: Option<&Outcome>) {
        let tell = {
            let mut state = self.state();
            // After `terminate` a late run must not set the loop back to `Idle`.
            if state.running.as_ref().is_some_and(|running| running.number == number) {
                state.running = None;
                if state.lifecycle == Lifecycle::Running {
                    state.lifecycle = Lifecycle::Idle;
                }
            }
            if let Some(outcome) = outcome {
                state.messages.clone_from(&outcome.messages);
                state.epoch = outcome.epoch;
            }
            let tell = state.busy;
            if tell {
                state.now_busy(false);
            }
            tell
        };
        if tell {
            self.tell_busy();
        }
    }

    /// Returns the tool with this name. Tool specs and tools have the same order.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let at = self.config.tool_specs.iter().position(|tool| tool.name == name)?;
        self.config.tools.iter().nth(at)
    }
}
