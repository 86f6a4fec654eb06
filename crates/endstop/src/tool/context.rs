//! What a tool call is given beside its arguments.
//!
//! ```
//! use endstop::tool::ToolContext;
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let context = ToolContext::detached("call_1");
//! context.set_variable("answer", 42);
//! context.set_metric("last_reward", 0.9);
//! let child = context.child_token(); // for what the tool starts itself
//! assert!(!context.is_cancelled() && !child.is_cancelled());
//! # }
//! ```

use crate::agent::{Control, Request};
use crate::budget::SharedBudget;
use crate::process::Stop;
use endstop_core::{NanoUsd, Unreported, Usage};
use serde_json::{Map, Value};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a tool call is given beside its arguments: when to stop, where to work, and a place for
/// values that policies read.
#[derive(Clone, Debug)]
pub struct ToolContext(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    call_id: String,
    token: CancellationToken,
    loop_token: CancellationToken,
    grace: Duration,
    working_dir: Option<PathBuf>,
    budget: OnceLock<SharedBudget>,
    /// The run of the call.
    run: OnceLock<Control>,
    /// What goes on behind a call that was dropped, and that the run waits for.
    aftermath: TaskTracker,
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    variables: Map<String, Value>,
    metrics: Map<String, Value>,
    spent: Option<Spent>,
}

/// What a tool spent on models of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) usage: Usage,
    pub(crate) cost: NanoUsd,
    pub(crate) cost_unknown: bool,
    pub(crate) unreported: Unreported,
}

impl ToolContext {
    /// A context. `token` is cancelled when the call must stop (a cancel, its time limit, a
    /// terminate); `loop_token` by a terminate only, which leaves no grace.
    pub fn new(
        call_id: String,
        token: CancellationToken,
        loop_token: CancellationToken,
        grace: Duration,
        working_dir: Option<PathBuf>,
    ) -> ToolContext {
        let (budget, run, values) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let aftermath = TaskTracker::new();
        let inner = Inner {
            call_id,
            token,
            loop_token,
            grace,
            working_dir,
            budget,
            run,
            aftermath,
            values,
        };
        ToolContext(Arc::new(inner))
    }

    /// A context of a call that belongs to no run: nobody cancels it. For tests, and for tools
    /// that are called by hand.
    pub fn detached(call_id: impl Into<String>) -> ToolContext {
        let (token, loop_token) = (CancellationToken::new(), CancellationToken::new());
        ToolContext::new(call_id.into(), token, loop_token, Duration::ZERO, None)
    }

    /// The provider's id of the call.
    pub fn call_id(&self) -> &str {
        &self.0.call_id
    }

    /// Whether it must stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.token.is_cancelled() || self.0.loop_token.is_cancelled()
    }

    /// Returns when it must stop.
    pub async fn cancelled(&self) {
        tokio::select! {
            () = self.0.token.cancelled() => {}
            () = self.0.loop_token.cancelled() => {}
        }
    }

    /// Returns when the loop was terminated: there is no grace.
    pub async fn terminated(&self) {
        self.0.loop_token.cancelled().await;
    }

    /// A token for what it starts itself: cancelled with it.
    pub fn child_token(&self) -> CancellationToken {
        self.0.token.child_token()
    }

    /// How long it has to end once it must stop; zero after a terminate.
    pub fn grace(&self) -> Duration {
        if self.0.loop_token.is_cancelled() { Duration::ZERO } else { self.0.grace }
    }

    /// The same, for a [`CommandLine`](crate::process::CommandLine).
    pub fn stop(&self) -> Stop {
        Stop { ask: self.0.token.clone(), kill: self.0.loop_token.clone(), grace: self.0.grace }
    }

    /// The folder to work in; `None`: the process's own.
    pub fn working_dir(&self) -> Option<&Path> {
        self.0.working_dir.as_deref()
    }

    /// A path as the model wrote it, from the working folder on.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match self.working_dir() {
            Some(dir) => dir.join(path),
            None => PathBuf::from(path),
        }
    }

    /// Sets a named value; `FINAL_VAR(name)` finds it.
    pub fn set_variable(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.values().variables.insert(name.into(), value.into());
    }

    /// Sets a measurement of this turn, such as `last_reward` or `confidence`.
    pub fn set_metric(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.values().metrics.insert(name.into(), value.into());
    }

    /// Takes the values that were set: variables, then metrics.
    pub fn take_values(&self) -> (Map<String, Value>, Map<String, Value>) {
        let mut values = self.values();
        (std::mem::take(&mut values.variables), std::mem::take(&mut values.metrics))
    }

    /// What is left of the run's ceilings on cost and tokens, for model calls that the tool makes
    /// itself: reserve before one, and settle after it. `None`: there is no ceiling.
    pub fn budget(&self) -> Option<SharedBudget> {
        self.0.budget.get().cloned()
    }

    /// Says what the tool spent on models of its own since it last said so: it counts towards the
    /// run's cost, tokens and ceilings. `cost_unknown`: some of it has a cost that nobody knows.
    pub fn spend(&self, usage: &Usage, cost: NanoUsd, cost_unknown: bool) {
        self.spend_at_most(usage, cost, cost_unknown, Unreported::of_unknown(cost_unknown));
    }

    /// As [`spend`](Self::spend), with what may have been used beyond that: by a call that was cut before
    /// the provider counted. It counts against the run's ceilings.
    pub fn spend_at_most(
        &self,
        usage: &Usage,
        cost: NanoUsd,
        cost_unknown: bool,
        unreported: Unreported,
    ) {
        let mut values = self.values();
        let spent = values.spent.get_or_insert_default();
        spent.usage.add(usage);
        spent.cost += cost;
        spent.cost_unknown |= cost_unknown;
        spent.unreported += unreported;
        drop(values);
        if let Some(run) = self.control() {
            run.spent();
        }
    }

    /// Binds what the tool spends; once.
    pub(crate) fn bind(&self, budget: SharedBudget) {
        // A context is bound by whoever made it, before anybody else has it.
        let _ = self.0.budget.set(budget);
    }

    /// Binds the call to its run; once.
    pub(crate) fn bind_run(&self, control: Control) {
        // As in `bind`: no other code has the context yet.
        let _ = self.0.run.set(control);
    }

    /// The control of the call's run; `None` for a call that belongs to no run.
    pub(crate) fn control(&self) -> Option<&Control> {
        self.0.run.get()
    }

    /// Awaits a future whose first poll starts user code; `None` if the run was stopped before.
    pub(crate) async fn start_future<F: Future>(&self, code: F) -> Option<F::Output> {
        match self.control() {
            Some(control) => control.start_future(Request::Cancel, code).await,
            None => Some(code.await),
        }
    }

    /// Has the run wait for this before it ends, also where the call itself is dropped.
    pub(crate) fn leave_behind(&self, end: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime nothing goes on either.
        if let Ok(runtime) = Handle::try_current() {
            self.0.aftermath.spawn_on(end, &runtime);
        }
    }

    /// Returns when nothing goes on that was left behind.
    pub(crate) async fn aftermath(&self) {
        self.0.aftermath.close();
        self.0.aftermath.wait().await;
    }

    pub(crate) fn take_spent(&self) -> Option<Spent> {
        self.values().spent.take()
    }

    pub(crate) fn stop_now(&self) {
        self.0.token.cancel();
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
