//! The agent loop: a conversation that makes runs, one at a time, each with one outcome.
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
//! [`cancel`](AgentLoop::cancel) stops the run that is under way; the loop can run again.
//! [`terminate`](AgentLoop::terminate) is final. Both return at once, from any thread, never fail,
//! and reach streams and tool processes.

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

/// Why a run could not be started. How a run ended is an [`Outcome`], never an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// The loop was terminated; it never runs again.
    Terminated,
    /// A run is under way.
    Busy,
    /// The loop cannot run as it is configured; what to do about it.
    Config(String),
    /// The journal does not give the run that is to go on.
    Journal(JournalError),
    /// These are not as they were when the run began: it does not go on until that is accepted
    /// ([`Resume::accept_changes`]).
    Changed(Vec<Change>),
    /// So many secrets were cut out of the run's conversation when it was journalled: the model would
    /// read `[redacted]` for them, in its own calls too. It is not resumed until that is accepted
    /// ([`Resume::accept_redacted`]).
    Redacted(u64),
    /// The run has ended, and why it does not go on.
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
                f.write_str("the run was made otherwise")?;
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

/// May the loop still be used?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Nothing runs.
    Idle,
    /// A run is under way.
    Running,
    /// It was terminated.
    Terminated,
}

/// A conversation that makes runs, one at a time. Cheap to clone; clones are the same loop.
#[derive(Clone)]
pub struct AgentLoop(Arc<Shared>);

pub(crate) struct Shared {
    config: Config,
    /// Cancelled by `terminate`; every run's token is a child of it.
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
    /// Whether observers were, or will be, told `busy = true` and not yet `false`.
    busy: bool,
    /// What they are still to be told.
    notices: VecDeque<bool>,
    /// Somebody tells them.
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

/// What a run is about.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) epoch: u64,
}

/// The loop's one place for a run, taken. What follows asks the provider, the hooks and the
/// observers, and no lock is held: a stop waits for none of them.
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
        self.shared.tell_busy();
        self.shared.tasks.spawn_on(driver.drive(), &self.runtime);
        handle
    }
}

impl Drop for Place {
    /// No run came of it.
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
    /// `None`: as is usual.
    proactive: Option<ProactiveCompaction>,
    /// What counts as a compaction.
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
    /// The tool call of another run that this loop works for.
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
    /// Builds a loop over a provider.
    pub fn builder(provider: impl Provider + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(provider))
    }

    /// Whether the loop may still be used, and is.
    pub fn lifecycle(&self) -> Lifecycle {
        self.0.state().lifecycle
    }

    /// The conversation so far; that of a run under way is its own until it ends.
    pub fn messages(&self) -> Vec<Message> {
        self.0.state().messages.clone()
    }

    /// Starts a run: from this input to one outcome. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The loop was terminated, is busy, or cannot run as it is configured; the input is blank.
    pub fn run(&self, input: impl Into<String>) -> Result<RunHandle, StartError> {
        let parts = vec![Part::Text { text: input.into() }];
        self.run_parts(parts)
    }

    /// [`run`](Self::run) with an input of several parts (text and images).
    ///
    /// # Errors
    /// As [`run`](Self::run).
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

    /// Replaces the conversation: to edit it, to roll it back, or to continue a stored one. An empty
    /// list starts a new conversation.
    ///
    /// ```
    /// # use endstop::{AgentLoop, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = AgentLoop::builder(ScriptedModel::new([Turn::text("Paris.")])).build()?;
    /// let before = agent.messages();
    /// agent.run("What is the capital of France?")?.await;
    /// agent.set_messages(before)?; // the question was never asked
    /// assert!(agent.messages().is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The loop was terminated or is busy, or providers would refuse the conversation
    /// ([`history::problem`]): it is unchanged.
    pub fn set_messages(&self, messages: Vec<Message>) -> Result<(), StartError> {
        check_history("messages", &messages)?;
        let mut state = self.0.state();
        match state.lifecycle {
            Lifecycle::Terminated => return Err(StartError::Terminated),
            Lifecycle::Running => return Err(StartError::Busy),
            Lifecycle::Idle => {}
        }
        // What was encoded for the old conversation does not fit the new one.
        state.epoch += 1;
        state.messages = messages;
        Ok(())
    }

    /// Takes the one place for a run; observers hear of it when the run starts.
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
            // `settled` waits for what is being prepared, too.
            _under_way: shared.tasks.token(),
            started: false,
        })
    }

    /// Cancels the run that is under way; the loop can run again. Does nothing on an idle or
    /// terminated loop. The outcome says `cancelled`.
    ///
    /// No tool, model call, hook, approval or compaction of the run starts after this has returned,
    /// also of agents that its tools run. It can be called from any thread, and from within an
    /// observer, a hook or a tool. It returns at once, unless such code is in its first poll on another
    /// thread: then it waits until that poll has returned, or the thread is seen to work or to sleep.
    /// On Linux that takes milliseconds, elsewhere a quarter of a second at most.
    pub fn cancel(&self) {
        // Without the lock: who is woken may look at the loop.
        let running = self.0.state().running.as_ref().map(|running| running.control.clone());
        if let Some(control) = running {
            control.cancel();
        }
    }

    /// Terminates the loop: what runs is stopped without grace, and it never runs again.
    ///
    /// Idempotent, returns as soon as [`cancel`](Self::cancel) does, never fails or panics. Observers
    /// hear `busy = false` once, also on a loop that never ran; after it no callback fires.
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
        // Asked first: a tool that ends at once when it is told must not let the run go on.
        let starting = running.filter(|control| control.request(Request::Terminate));
        self.0.token.cancel();
        if let Some(control) = starting {
            control.until_started(Request::Terminate);
        }
        if first {
            self.0.tell_busy();
        }
    }

    /// Waits until nothing of the loop runs any more: no run, no tool.
    pub async fn settled(&self) {
        // The tracker is closed from its beginning, which keeps no task from starting: with one that
        // is opened and closed, a waiter could come to wait for an open tracker that never wakes it.
        self.0.tasks.wait().await;
    }
}

/// Refuses a conversation that providers would refuse; `name` is what the caller set.
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

    /// Tells the observers whether the loop is busy; one that panics is left out.
    ///
    /// Whoever comes while they are being told leaves the rest to who tells them: each hears `true`
    /// and `false` in turn, and nobody waits for an observer that somebody else has called.
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

    /// Tells the observers of an event, unless the loop was terminated.
    ///
    /// `Err`: one of them panicked; the others have heard it.
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

    /// A run has ended: its conversation is the loop's, unless `outcome` is `None`.
    fn finished(&self, number: u64, outcome: Option<&Outcome>) {
        let tell = {
            let mut state = self.state();
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

    /// The tool of a name that the kernel knows.
    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        let at = self.config.tool_specs.iter().position(|tool| tool.name == name)?;
        self.config.tools.iter().nth(at)
    }
}
