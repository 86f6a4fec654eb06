//! The context of a tool call: what it gets in addition to its arguments.
//!
//! ```
//! use endstop::tool::ToolContext;
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let context = ToolContext::detached("call_1");
//! context.set_variable("answer", 42);
//! context.set_metric("last_reward", 0.9);
//! let child = context.child_token(); // for work that the tool starts
//! assert!(!context.is_cancelled() && !child.is_cancelled());
//! # }
//! ```

use crate::budget::SharedBudget;
use crate::control::{Control, Request};
use crate::event::queue::Nesting;
use endstop_core::guest::Spending;
use endstop_core::{NanoUsd, Unreported, Usage};
use endstop_process::StopTokens;
use serde_json::{Map, Value};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The context of a tool call: the signal to stop, the working folder, and a store for values that
/// policies read.
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
    /// The control of the call's run.
    run: OnceLock<Control>,
    /// The place in which runs that the call starts are nested.
    nesting: OnceLock<Nesting>,
    /// Work that outlives a dropped call, and that the run waits for.
    // Created when it is needed, because few calls leave any.
    aftermath: OnceLock<TaskTracker>,
    values: Mutex<Values>,
}

#[derive(Debug, Default)]
struct Values {
    variables: Map<String, Value>,
    metrics: Map<String, Value>,
    spent: Option<Spending>,
}
impl ToolContext {
    /// Creates a context. `token` is cancelled when the call must stop (because of a cancel, its
    /// time limit or a terminate), `loop_token` only by a terminate, which leaves no grace period.
    pub fn new(
        call_id: String,
        token: CancellationToken,
        loop_token: CancellationToken,
        grace: Duration,
        working_dir: Option<PathBuf>,
    ) -> ToolContext {
        let (budget, run, values) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let nesting = OnceLock::new();
        let aftermath = OnceLock::new();
        let inner = Inner {
            call_id,
            token,
            loop_token,
            grace,
            working_dir,
            budget,
            run,
            nesting,
            aftermath,
            values,
        };
        ToolContext(Arc::new(inner))
    }

    /// Creates a context without a run, which is never cancelled: for tests and for tools that are
    /// called directly.
    pub fn detached(call_id: impl Into<String>) -> ToolContext {
        let (token, loop_token) = (CancellationToken::new(), CancellationToken::new());
        ToolContext::new(call_id.into(), token, loop_token, Duration::ZERO, None)
    }

    /// Returns the provider's id of the call.
    pub fn call_id(&self) -> &str {
        &self.0.call_id
    }

    /// `true` if the call must stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.token.is_cancelled() || self.0.loop_token.is_cancelled()
    }

    /// Waits until the call must stop.
    pub async fn cancelled(&self) {
        tokio::select! {
            () = self.0.token.cancelled() => {}
            () = self.0.loop_token.cancelled() => {}
        }
    }

    /// Waits until the run is terminated. There is no grace period then.
    pub async fn terminated(&self) {
        self.0.loop_token.cancelled().await;
    }

    /// Returns a token for work that the tool starts. It is cancelled together with the call.
    pub fn child_token(&self) -> CancellationToken {
        self.0.token.child_token()
    }

    /// Returns the time that the call has to end after it must stop; zero after a terminate.
    pub fn grace(&self) -> Duration {
        if self.0.loop_token.is_cancelled() { Duration::ZERO } else { self.0.grace }
    }

    /// Returns the stop signals and the grace period for a
    /// [`CommandLine`](crate::process::CommandLine).
    pub fn stop(&self) -> StopTokens {
        StopTokens {
            ask: self.0.token.clone(),
            kill: self.0.loop_token.clone(),
            grace: self.0.grace,
        }
    }

    /// Returns the folder to work in; `None` means the current directory of the process.
    pub fn working_dir(&self) -> Option<&Path> {
        self.0.working_dir.as_deref()
    }

    /// Resolves a path written by the model, relative to the working folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match self.working_dir() {
            Some(dir) => dir.join(path),
            None => PathBuf::from(path),
        }
    }

    /// Sets a named value, which `FINAL_VAR(name)` finds.
    pub fn set_variable(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.values().variables.insert(name.into(), value.into());
    }

    /// Sets a metric of this turn, such as `last_reward` or `confidence`.
    pub fn set_metric(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.values().metrics.insert(name.into(), value.into());
    }

    /// Takes the values that were set: variables, then metrics.
    pub fn take_values(&self) -> (Map<String, Value>, Map<String, Value>) {
        let mut values = self.values();
        (std::mem::take(&mut values.variables), std::mem::take(&mut values.metrics))
    }

    /// Returns the rest of the run's ceilings on cost and tokens, for model calls that the tool
    /// makes: reserve before a call and settle after it. `None` if there is no ceiling.
    pub fn budget(&self) -> Option<SharedBudget> {
        self.0.budget.get().cloned()
    }

    /// Reports what the tool spent on models of its own since the last report. It counts towards
    /// the run's cost, tokens and ceilings. `cost_unknown` means that some of the cost is unknown.
    pub fn spend(&self, usage: &Usage, cost: NanoUsd, cost_unknown: bool) {
        self.spend_at_most(usage, cost, cost_unknown, Unreported::of_unknown(cost_unknown));
    }

    /// Same as [`spend`](Self::spend), with an upper bound on the unreported use of a call that was
    /// cut off before the provider counted it. The bound counts against the run's ceilings.
    pub fn spend_at_most(
        &self,
        usage: &Usage,
        cost: NanoUsd,
        cost_unknown: bool,
        unreported: Unreported,
    ) {
        let unreported = Some(unreported);
        let usage = usage.clone();
        let more = Spending { usage, cost, cost_unknown, unreported, ..Spending::default() };
        let mut values = self.values();
        values.spent.get_or_insert_default().add(&more);
        // Release the lock first: `spent` wakes the driver, which takes these values.
        drop(values);
        if let Some(run) = self.control() {
            run.spent();
        }
    }

    /// Sets the budget for the tool's spending, once.
    pub(crate) fn bind(&self, budget: SharedBudget) {
        // The driver binds a new context before any other code has it, so the value is not set yet.
        let _ = self.0.budget.set(budget);
    }

    /// Sets the run of the call, once.
    pub(crate) fn bind_run(&self, control: Control) {
        // As in `bind`: no other code has the context yet.
        let _ = self.0.run.set(control);
    }

    /// Sets the place in which runs that the call starts are nested, once.
    pub(crate) fn bind_nesting(&self, nesting: Nesting) {
        // As in `bind`: no other code has the context yet.
        let _ = self.0.nesting.set(nesting);
    }

    /// Returns the place in which runs that the call starts are nested; `None` if their events
    /// would not be heard.
    pub(crate) fn nesting(&self) -> Option<&Nesting> {
        self.0.nesting.get()
    }

    /// Returns the control of the call's run; `None` for a call without a run.
    pub(crate) fn control(&self) -> Option<&Control> {
        self.0.run.get()
    }

    /// Awaits a future whose first poll starts user code. Returns `None` if the run was stopped
    /// before.
    pub(crate) async fn start_future<F: Future>(&self, code: F) -> Option<F::Output> {
        match self.control() {
            Some(control) => control.start_future(Request::Cancel, code).await,
            None => Some(code.await),
        }
    }

    /// Makes the run wait for this future before it ends, even if the call itself is dropped.
    pub(crate) fn leave_behind(&self, end: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime no task is running that the run could wait for.
        if let Ok(runtime) = Handle::try_current() {
            self.0.aftermath.get_or_init(TaskTracker::new).spawn_on(end, &runtime);
        }
    }

    /// Waits until all futures passed to `leave_behind` have ended.
    pub(crate) async fn aftermath(&self) {
        if let Some(aftermath) = self.0.aftermath.get() {
            aftermath.close();
            aftermath.wait().await;
        }
    }

    pub(crate) fn take_spent(&self) -> Option<Spending> {
        self.values().spent.take()
    }

    pub(crate) fn stop_now(&self) {
        self.0.token.cancel();
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
