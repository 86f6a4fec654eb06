//! The agent loop: holds a conversation and starts runs on it, one at a time, each with one
//! outcome.
//!
//! ```
//! use endstop::{AgentLoop, Termination};
//! use endstop::testkit::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([Turn::text("The capital of France is Paris.")]);
//! let agent = AgentLoop::builder(model).system("Be brief.").build()?;
//! let outcome = agent.run("What is the capital of France?")?.outcome().await;
//! assert_eq!(outcome.termination, Termination::Stop);
//! # Ok(()) }
//! ```
//!
//! [`cancel`](AgentLoop::cancel) stops the current run; the loop can run again afterwards.
//! [`terminate`](AgentLoop::terminate) stops the loop for good. Both return at once, can be called
//! from any thread, never fail, and also stop open streams and the processes of tools.

mod builder;
mod control;
mod driver;
mod ending;
mod handle;
#[cfg(all(test, endstop_loom))]
mod models;
mod opened;
mod pending;
mod policy;
mod questions;
mod recorder;
mod resume;
mod sync;
mod thread;
mod user_code;

pub use builder::{AgentBuilder, COMPACTION_SHARE};
pub(crate) use control::{Control, Request};
pub use handle::{AgentEvent, RunHandle, WarningEvent};
pub use resume::Resume;

use crate::budget::SharedBudget;
use crate::hook::{Approver, Compactor, Hook};
use crate::journal::{Change, Journal, JournalError};
use crate::provider::Provider;
use crate::schema::OutputSchema;
use crate::tool::{Tool, ToolContext, ToolSet};
use driver::{Beginning, Driver};
use ending::EndingCell;
use endstop_core::{
    CompactionSpec, Limits, Message, MessageId, Outcome, Part, Price, ProactiveCompaction, Role,
    ToolSpec, Watch, history,
};
use policy::SharedPolicy;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use user_code::Panicked;

/// The reason why a run could not be started. How a started run ended is an [`Outcome`], never an
/// error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The loop was terminated and cannot run again.
    Terminated,
    /// Another run is still in progress.
    Busy,
    /// The configuration or the input is invalid; the string says how to fix it.
    Config(String),
    /// The journal could not provide the run to resume.
    Journal(JournalError),
    /// The configuration differs from the one the run started with. Pass [`Resume::accept_changes`]
    /// to resume anyway.
    Changed(Vec<Change>),
    /// Number of secrets that redaction removed from the journalled conversation. The resumed model
    /// would read `[redacted]` in their place, also in its own earlier calls. Pass
    /// [`Resume::accept_redacted`] to resume anyway.
    Redacted(u64),
    /// The run has already ended; the string states why it cannot be resumed.
    Ended(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Terminated => f.write_str("AgentLoop has been terminated"),
            StartError::Busy => f.write_str("AgentLoop is busy: a run is under way"),
            StartError::Config(what) | StartError::Ended(what) => f.write_str(what),
            StartError::Journal(problem) => problem.fmt(f),
            StartError::Changed(changes) => {
                f.write_str("the configuration differs from the original run")?;
                changes.iter().try_for_each(|change| write!(f, "; {change}"))
            }
            StartError::Redacted(cuts) => {
                let are = if *cuts == 1 { "secret was" } else { "secrets were" };
                write!(
                    f,
                    "{cuts} {are} cut out of the run's conversation when it was journalled, and the model would read `[redacted]` instead; accept that, or start a new run"
                )
            }
        }
    }
}

impl std::error::Error for StartError {}

/// The lifecycle state of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// No run is in progress.
    Idle,
    /// A run is in progress.
    Running,
    /// [`AgentLoop::terminate`] was called.
    Terminated,
}

/// A conversation and the runs on it, one at a time. Cheap to clone; clones share the same loop.
#[derive(Clone)]
pub struct AgentLoop(Arc<Shared>);

pub(crate) struct Shared {
    config: Config,
    /// Cancelled by `terminate`. The token of every run is a child of this one.
    token: CancellationToken,
    tasks: TaskTracker,
    state: Mutex<State>,
    runs: AtomicU64,
}

struct State {
    lifecycle: Lifecycle,
    running: Option<Running>,
    messages: Vec<Message>,
    epoch: u64,
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

struct Running {
    number: u64,
    control: Control,
}

/// The input of a run: its messages and the epoch of the provider's encoded state.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) epoch: u64,
}

/// A reservation of the loop's single run slot. The caller prepares the run while it holds the
/// reservation, but no lock: preparation calls the provider, hooks and observers, and a stop must
/// not wait for their code.
struct Place {
    shared: Arc<Shared>,
    runtime: tokio::runtime::Handle,
    number: u64,
    control: Control,
    conversation: Conversation,
    _under_way: TaskTrackerToken,
    started: bool,
}

impl Place {
    fn start(mut self, beginning: Beginning) -> RunHandle {
        self.started = true;
        let ending = EndingCell::default();
        let (handle, sink) = RunHandle::new(ending.clone(), self.control.clone());
        let shared = Arc::clone(&self.shared);
        let driver =
            Driver::new(shared, self.number, self.control.clone(), ending, sink, beginning);
        // Observers receive `true` before the driver can end the run and queue `false`.
        self.shared.tell_busy();
        self.shared.tasks.spawn_on(driver.drive(), &self.runtime);
        handle
    }
}

impl Drop for Place {
    /// Releases the slot if no run was started.
    fn drop(&mut self) {
        if !self.started {
            self.shared.finished(self.number, None);
        }
    }
}

type Observer = Box<dyn Fn(&AgentEvent) + Send + Sync>;
type BusyObserver = Box<dyn Fn(bool) + Send + Sync>;

struct Config {
    provider: Arc<dyn Provider>,
    policy: Option<SharedPolicy>,
    watches: Vec<Watch>,
    system: Option<String>,
    limits: Limits,
    tools: ToolSet,
    tool_specs: Vec<ToolSpec>,
    finish_tool: bool,
    hooks: Vec<Arc<dyn Hook>>,
    approver: Option<Arc<dyn Approver>>,
    compactor: Option<Arc<dyn Compactor>>,
    /// `None` selects the default: at [`COMPACTION_SHARE`] if there is a compactor, otherwise
    /// never.
    proactive: Option<ProactiveCompaction>,
    /// The rules for when a compaction counts as successful.
    compaction: CompactionSpec,
    schema: Option<Arc<OutputSchema>>,
    budget: Option<SharedBudget>,
    price: Option<Price>,
    context_window: Option<u64>,
    output_cap: Option<u64>,
    streaming: bool,
    nudge: bool,
    strict_detection: bool,
    seed: Option<u64>,
    variables: Map<String, Value>,
    working_dir: Option<std::path::PathBuf>,
    observers: Vec<Observer>,
    busy_observers: Vec<BusyObserver>,
    journal: Option<Arc<dyn Journal>>,
    journal_settings: Value,
    /// The tool call of another run on whose behalf this loop works.
    outer: Option<ToolContext>,
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop")
            .field("provider", &self.0.config.provider.name())
            .field("model", &self.0.config.provider.model())
            .field("lifecycle", &self.lifecycle())
            .finish_non_exhaustive()
    }
}

impl AgentLoop {
    /// Creates a builder for a loop that calls this provider.
    pub fn builder(provider: impl Provider + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(provider))
    }

    /// Returns the lifecycle state.
    pub fn lifecycle(&self) -> Lifecycle {
        self.0.state().lifecycle
    }

    /// Returns the conversation. The messages of the current run are added when it ends.
    pub fn messages(&self) -> Vec<Message> {
        self.0.state().messages.clone()
    }

    /// Starts a run with this input. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The loop was terminated, is busy, or has an invalid configuration; or the input is blank.
    pub fn run(&self, input: impl Into<String>) -> Result<RunHandle, StartError> {
        let parts = vec![Part::Text { text: input.into() }];
        self.run_parts(parts)
    }

    /// Starts a run with an input of several parts (text and images).
    ///
    /// # Errors
    /// The same as [`run`](Self::run).
    pub fn run_parts(&self, input: Vec<Part>) -> Result<RunHandle, StartError> {
        let input = Message::new(MessageId(1), Role::User, input);
        if let Some(problem) = history::problem(std::slice::from_ref(&input)) {
            return Err(StartError::Config(match problem.name {
                "empty_message" => {
                    "the input is blank: expected text or an image for the model".to_owned()
                }
                _ => format!("invalid input: {}; expected text and images", problem.what),
            }));
        }
        let place = self.take_place()?;
        let Conversation { mut messages, epoch } = place.conversation.clone();
        // After a compaction the last message need not have the highest id.
        let id = MessageId(messages.iter().map(|message| message.id.0 + 1).max().unwrap_or(1));
        messages.push(Message { id, ..input });
        Ok(place.start(Beginning::New(Conversation { messages, epoch })))
    }

    /// Replaces the conversation: to edit it, to roll it back, or to continue a stored one. An
    /// empty list starts a new conversation.
    ///
    /// ```
    /// # use endstop::{AgentLoop, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = AgentLoop::builder(ScriptedModel::new([Turn::text("Paris.")])).build()?;
    /// let before = agent.messages();
    /// agent.run("What is the capital of France?")?.await;
    /// agent.set_messages(before)?; // roll back to the state before the question
    /// assert!(agent.messages().is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The loop was terminated or is busy, or providers would refuse the conversation
    /// ([`history::problem`]). The conversation is then unchanged.
    pub fn set_messages(&self, messages: Vec<Message>) -> Result<(), StartError> {
        check_history("messages", &messages)?;
        let mut state = self.0.state();
        match state.lifecycle {
            Lifecycle::Terminated => return Err(StartError::Terminated),
            Lifecycle::Running => return Err(StartError::Busy),
            Lifecycle::Idle => {}
        }
        // Encoded provider state (such as signed reasoning) belongs to the old messages only. The
        // new epoch makes sessions drop it.
        state.epoch += 1;
        state.messages = messages;
        Ok(())
    }

    /// Reserves the single run slot. Busy observers are notified later, when the run starts.
    fn take_place(&self) -> Result<Place, StartError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| {
            StartError::Config("a run needs a tokio runtime: call it within one".to_owned())
        })?;
        let shared = &self.0;
        let mut state = shared.state();
        match state.lifecycle {
            Lifecycle::Terminated => return Err(StartError::Terminated),
            Lifecycle::Running => return Err(StartError::Busy),
            Lifecycle::Idle => {}
        }
        // Relaxed is enough because the counter is only read and changed under the state lock.
        let number = shared.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let outer = shared.config.outer.as_ref().and_then(ToolContext::control);
        let control = Control::within(shared.token.child_token(), outer);
        state.lifecycle = Lifecycle::Running;
        state.running = Some(Running { number, control: control.clone() });
        state.now_busy(true);
        let conversation = Conversation { messages: state.messages.clone(), epoch: state.epoch };
        drop(state);
        Ok(Place {
            shared: Arc::clone(shared),
            runtime,
            number,
            control,
            conversation,
            // `settled` must also wait for a run that is still being prepared.
            _under_way: shared.tasks.token(),
            started: false,
        })
    }

    /// Cancels the current run; the loop can run again. Does nothing on an idle or terminated loop.
    /// The outcome has the termination `cancelled`.
    ///
    /// No tool, model call, hook, approval or compaction of the run starts after `cancel` has
    /// returned. This includes runs of agents that the run's tools started. `cancel` can be called
    /// from any thread, and from inside an observer, a hook or a tool. It returns at once, unless
    /// such code is in its first poll on another thread. In that case it waits until the poll has
    /// returned, or until that thread is observed to work or to sleep: some milliseconds on Linux,
    /// at most a quarter of a second elsewhere.
    pub fn cancel(&self) {
        // Release the lock first: `cancel` wakes tasks that may read this loop's state.
        let running = self.0.state().running.as_ref().map(|running| running.control.clone());
        if let Some(control) = running {
            control.cancel();
        }
    }

    /// Terminates the loop: stops the current run without a grace period and refuses further runs.
    ///
    /// Idempotent, never fails or panics, and returns as fast as [`cancel`](Self::cancel). Busy
    /// observers receive `false` exactly once, even if the loop never ran. No callback fires after
    /// that.
    pub fn terminate(&self) {
        let (first, running) = {
            let mut state = self.0.state();
            let first = state.lifecycle != Lifecycle::Terminated;
            state.lifecycle = Lifecycle::Terminated;
            if first {
                state.now_busy(false);
            }
            (first, state.running.as_ref().map(|running| running.control.clone()))
        };
        // Record the request before the token is cancelled. Otherwise a tool that ends as soon as
        // its token is cancelled could return a result before the driver knows about the stop, and
        // the run would continue.
        let starting = running.filter(|control| control.request(Request::Terminate));
        self.0.token.cancel();
        if let Some(control) = starting {
            control.until_started(Request::Terminate);
        }
        if first {
            self.0.tell_busy();
        }
    }

    /// Waits until no run and no tool of the loop is active.
    pub async fn settled(&self) {
        // The tracker is closed from the start, which does not prevent new tasks. If it were opened
        // and closed per run, a caller could start waiting while it is open and never be woken.
        self.0.tasks.wait().await;
    }
}

/// Returns an error if providers would refuse the conversation; `name` is the setting to report.
fn check_history(name: &str, messages: &[Message]) -> Result<(), StartError> {
    match history::problem(messages).filter(|_| !messages.is_empty()) {
        None => Ok(()),
        Some(problem) => Err(StartError::Config(format!(
            "invalid `{name}`: {problem}; repair the conversation before it is given to the loop"
        ))),
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the queued values to the busy observers. A panicking observer is ignored.
    ///
    /// If another thread is already delivering, that thread delivers these values too. Each
    /// observer therefore receives `true` and `false` alternately, and no thread waits for an
    /// observer that another thread has called.
    fn tell_busy(&self) {
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
    fn tell(&self, control: &Control, event: &AgentEvent) -> Result<(), Panicked> {
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
    fn finished(&self, number: u64, outcome: Option<&Outcome>) {
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
    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let at = self.config.tool_specs.iter().position(|tool| tool.name == name)?;
        self.config.tools.iter().nth(at)
    }
}
