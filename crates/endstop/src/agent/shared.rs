//! An agent: the configuration of runs, and the lifecycle that all of its runs share.
//!
//! ```text
//! let number = shared.admit(&control)?;    // refused after a terminate
//! shared.tell(&control, &event)?;          // to the observers
//! shared.release(number);                  // the run has ended
//! ```

use super::setup::config::Config;
use super::user_code::{self, Panicked};
use crate::control::{Control, Request};
use crate::event::AgentEvent;
use crate::tool::Tool;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::task::TaskTracker;

/// The lifecycle state of an agent or of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// No run is in progress.
    Idle,
    /// At least one run is in progress.
    Running,
    /// [`Agent::terminate`] or [`Session::terminate`](crate::Session::terminate) was called.
    Terminated,
}

/// A model with its tools, limits, policy, hooks and budget, from which any number of concurrent
/// runs and conversations start. Immutable, and cheap to clone: clones share one lifecycle.
///
/// An agent has no conversation. A [`Session`](crate::Session) does, and each run of an agent belongs to one.
///
/// ```
/// # use endstop::{Agent, testkit::{ScriptedModel, Turn}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new([Turn::text("Paris."), Turn::text("Rome."), Turn::text("Milan.")]);
/// let agent = Agent::builder(model).build()?;
/// // A run that stands alone:
/// agent.run("What is the capital of France?")?.await;
/// // A conversation of two runs:
/// let session = agent.session();
/// session.run("What is the capital of Italy?")?.await;
/// session.run("And its second largest city?")?.await;
/// assert_eq!(session.messages().len(), 4);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Agent(pub(super) Arc<Shared>);

pub(crate) struct Shared {
    pub(super) config: Config,
    pub(super) tasks: TaskTracker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    terminated: bool,
    /// The runs in progress, by their numbers.
    running: HashMap<u64, Control>,
    /// Number of runs so far.
    runs: u64,
    /// The last value queued for the busy observers.
    busy: bool,
    /// Values that the busy observers have not received yet, oldest first.
    notices: VecDeque<bool>,
    /// `true` while a thread delivers `notices`; other threads only append.
    telling: bool,
}

impl State {
    fn now_busy(&mut self, busy: bool) {
        self.busy = busy;
        self.notices.push_back(busy);
    }
}

/// Returns a tracker for which [`TaskTracker::wait`] can be called at any time.
///
/// It is closed from the start, which does not prevent new tasks. If it were opened and closed per
/// run, a caller could start waiting while it is open and never be woken.
pub(super) fn closed_tracker() -> TaskTracker {
    let tasks = TaskTracker::new();
    tasks.close();
    tasks
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("provider", &self.0.config.provider.name())
            .field("model", &self.0.config.provider.model())
            .field("lifecycle", &self.lifecycle())
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Returns the lifecycle state. It is `Running` while any run of the agent is in progress.
    pub fn lifecycle(&self) -> Lifecycle {
        let state = self.0.state();
        match (state.terminated, state.running.is_empty()) {
            (true, _) => Lifecycle::Terminated,
            (false, true) => Lifecycle::Idle,
            (false, false) => Lifecycle::Running,
        }
    }

    /// Cancels all runs in progress, of all sessions; the agent can run again. Does nothing on an
    /// idle or terminated agent. The outcomes have the termination `cancelled`.
    ///
    /// No tool, model call, hook, approval or compaction of the runs starts after `cancel` has
    /// returned. This includes runs of agents that the runs' tools started. `cancel` can be called
    /// from any thread, and from inside an observer, a hook or a tool. It returns at once, unless
    /// such code is in its first poll on another thread. In that case it waits until the poll has
    /// returned, or until that thread is observed to work or to sleep: tens of milliseconds on Linux,
    /// at most a quarter of a second elsewhere.
    pub fn cancel(&self) {
        // Release the lock first: `stop_all` wakes tasks that may read this agent's state.
        let running: Vec<Control> = self.0.state().running.values().cloned().collect();
        Control::stop_all(&running, Request::Cancel);
    }

    /// Terminates the agent and with it all of its sessions: stops their runs without a grace
    /// period and refuses further ones.
    ///
    /// Idempotent, never fails or panics, and returns as fast as [`cancel`](Self::cancel). Busy
    /// observers receive `false` exactly once, even if the agent never ran. No callback fires after
    /// that.
    pub fn terminate(&self) {
        let (first, running) = {
            let mut state = self.0.state();
            let first = !std::mem::replace(&mut state.terminated, true);
            if first {
                state.now_busy(false);
            }
            (first, state.running.values().cloned().collect::<Vec<Control>>())
        };
        Control::stop_all(&running, Request::Terminate);
        if first {
            self.0.tell_busy();
        }
    }

    /// Waits until no run and no tool of the agent is active.
    pub async fn settled(&self) {
        self.0.tasks.wait().await;
    }
}

impl Shared {
    pub(super) fn new(config: Config) -> Shared {
        Shared { config, tasks: closed_tracker(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.state().terminated
    }

    /// Adds a run and returns its number, or `None` if the agent was terminated. Busy observers are
    /// notified later, when the run starts.
    pub(super) fn admit(&self, control: &Control) -> Option<u64> {
        let mut state = self.state();
        if state.terminated {
            return None;
        }
        state.runs += 1;
        let number = state.runs;
        if state.running.is_empty() {
            state.now_busy(true);
        }
        state.running.insert(number, control.clone());
        Some(number)
    }

    /// Removes a run; does nothing if it was removed before.
    pub(super) fn release(&self, number: u64) {
        let tell = {
            let mut state = self.state();
            let last = state.running.remove(&number).is_some() && state.running.is_empty();
            // `terminate` has already queued the last value.
            let tell = last && state.busy;
            if tell {
                state.now_busy(false);
            }
            tell
        };
        if tell {
            self.tell_busy();
        }
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

    /// Passes an event to the observers, unless its run was terminated.
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

    /// Returns the tool with this name. Tool specs and tools have the same order.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let at = self.config.tool_specs.iter().position(|tool| tool.name == name)?;
        self.config.tools.iter().nth(at)
    }
}
