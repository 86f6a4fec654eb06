//! The work of a run on tasks of its own: tools, and questions to hooks, approvers, compactors and verifiers.
//!
//! ```text
//! work.start_tool(&owner, &mut trace, tool, start, context, control);
//! work.ask(&owner, &trace, Asked { id, name, what }, question);
//! if let Some(joined) = work.poll(cx) { let Ended { spent, event } = work.ended(…); }
//! ```

use crate::agent::session::state::SessionShared;
use crate::agent::user_code;
use crate::budget::SharedBudget;
use crate::control::{Control, Request};
use crate::provider::Provider;
use crate::telemetry::Trace;
use crate::tool::{Tool, ToolContext};
use endstop_core::guest::Spending;
use endstop_core::{EffectId, EventKind, ToolReport, ToolStart, ToolStatus};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// Time that stopped work may take to end before the outcome is delivered without it.
pub(super) const LAST_WAIT: Duration = Duration::from_millis(500);

/// A question, with the names that describe its panic.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) id: EffectId,
    pub(super) name: &'static str,
    pub(super) what: &'static str,
}

/// The work that a task performs.
enum Task {
    Tool { id: EffectId, name: String },
    Question(Asked),
}

/// The end of a task.
pub(super) type Joined = Result<(Id, EventKind), JoinError>;

/// What the end of a task brings.
pub(super) struct Ended {
    /// What the work has spent since it was last asked.
    pub(super) spent: Option<Spending>,
    pub(super) event: EventKind,
}

/// The tasks of a run.
#[derive(Default)]
pub(super) struct Work {
    /// `None` before the first of them, so that a run without tools uses less memory.
    tasks: Option<JoinSet<EventKind>>,
    /// The work of each task, to name it if it panics. A list, because few tasks run at once.
    names: Vec<(Id, Task)>,
    /// The contexts of the tools and compactions that run. A list, because few run at once.
    contexts: Vec<(EffectId, ToolContext)>,
    asked: BTreeMap<EffectId, AbortHandle>,
    /// The part of the run's ceilings that the tools of this turn may spend together.
    budget: Option<SharedBudget>,
}

impl Work {
    pub(super) fn is_idle(&self) -> bool {
        self.tasks.as_ref().is_none_or(JoinSet::is_empty)
    }

    /// Begins a turn: its tools get a newly computed budget, because the call spends as well.
    pub(super) fn new_turn(&mut self) {
        self.budget = None;
    }

    /// Returns the budget that the tools of this turn share.
    pub(super) fn budget(
        &mut self,
        compute: impl FnOnce() -> Option<SharedBudget>,
    ) -> Option<SharedBudget> {
        if self.budget.is_none() {
            self.budget = compute();
        }
        self.budget.clone()
    }

    /// Starts a tool.
    pub(super) fn start_tool(
        &mut self,
        owner: &SessionShared,
        trace: &mut Trace,
        tool: Arc<dyn Tool>,
        start: ToolStart,
        context: ToolContext,
        control: Control,
    ) {
        let (id, name) = (start.id, start.call.name.clone());
        self.spends(id, context.clone());
        trace.tool_begins(&start);
        let run = owner.track(trace.of_tool(id, run_tool(tool, start, context, control)));
        let task = self.tasks.get_or_insert_default().spawn(run);
        self.names.push((task.id(), Task::Tool { id, name }));
    }

    /// Asks a question on a separate task, because the answer may take long or never come.
    pub(super) fn ask(
        &mut self,
        owner: &SessionShared,
        trace: &Trace,
        asked: Asked,
        question: impl Future<Output = EventKind> + Send + 'static,
    ) {
        let question = owner.track(trace.of_run(question));
        let task = self.tasks.get_or_insert_default().spawn(question);
        self.names.push((task.id(), Task::Question(asked)));
        self.asked.insert(asked.id, task);
    }

    /// Notes the context of work that may spend.
    pub(super) fn spends(&mut self, id: EffectId, context: ToolContext) {
        self.contexts.push((id, context));
    }

    /// Returns what the work in progress has spent since it was last asked.
    pub(super) fn take_spent(&self) -> Vec<Spending> {
        self.contexts.iter().filter_map(|(_, context)| context.take_spent()).collect()
    }

    /// Stops a tool.
    pub(super) fn stop_tool(&self, id: EffectId) {
        if let Some((_, context)) = self.contexts.iter().find(|(tool, _)| *tool == id) {
            context.stop_now();
        }
    }

    /// Aborts a question.
    pub(super) fn abandon(&mut self, id: EffectId) {
        if let Some(task) = self.asked.remove(&id) {
            task.abort();
        }
    }

    /// Returns a task that has ended.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Option<Joined> {
        match self.tasks.as_mut()?.poll_join_next_with_id(cx) {
            Poll::Ready(joined) => joined,
            Poll::Pending => None,
        }
    }

    /// Returns what the end of a task brings.
    pub(super) fn ended(
        &mut self,
        provider: &dyn Provider,
        trace: &mut Trace,
        joined: Joined,
    ) -> Ended {
        let (task, result) = match joined {
            Ok((task, event)) => (task, Ok(event)),
            Err(error) => (error.id(), Err(error)),
        };
        let at = self.names.iter().position(|(id, _)| *id == task);
        let task = at.map(|at| self.names.swap_remove(at).1);
        let mut waited = true;
        let spent = match &task {
            Some(Task::Tool { id, .. }) => self.take_context(*id),
            Some(Task::Question(Asked { id, .. })) => {
                waited = self.asked.remove(id).is_some();
                self.take_context(*id)
            }
            None => None,
        };
        let spent = spent.and_then(|context| context.take_spent());
        let event = match (result, task) {
            (Ok(event), _) => event,
            // The question was cancelled, so its result no longer matters.
            (Err(_), Some(Task::Question(_)) | None) if !waited => EventKind::Tick,
            // A tool that panics ends the run, as documented.
            (Err(error), task) if error.is_panic() => {
                let (name, what) = match task {
                    Some(Task::Tool { id, name }) => {
                        trace.tool_panicked(id);
                        let what = format!("the tool `{name}`");
                        (name, what)
                    }
                    Some(Task::Question(Asked { name, what, .. })) => {
                        (name.to_owned(), what.to_owned())
                    }
                    None => ("driver".to_owned(), "a task".to_owned()),
                };
                user_code::panicked(provider, &name, &what, error.into_panic()).into()
            }
            (Err(_), Some(Task::Tool { id, .. })) => EventKind::ToolEnded {
                tool: id,
                report: ToolReport::new(ToolStatus::Aborted, "aborted"),
            },
            (Err(_), _) => EventKind::Tick,
        };
        Ended { spent, event }
    }

    /// Removes the context of work that has ended.
    fn take_context(&mut self, id: EffectId) -> Option<ToolContext> {
        let at = self.contexts.iter().position(|(tool, _)| *tool == id)?;
        Some(self.contexts.remove(at).1)
    }

    /// Stops the work, and waits for its end: `grace` for the work to end by itself, then for what it holds.
    pub(super) async fn stop(&mut self, grace: Duration) {
        for (_, context) in &self.contexts {
            context.stop_now();
        }
        for task in self.asked.values() {
            task.abort();
        }
        let Some(tasks) = self.tasks.as_mut().filter(|tasks| !tasks.is_empty()) else { return };
        // Tools end their processes when they are stopped. After the grace period the others
        // are dropped, and with them the resources they hold.
        let ended = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(grace, ended).await;
        tasks.abort_all();
        let dropped = async {
            while tasks.join_next().await.is_some() {}
            // A run inside one of them was terminated with it, but ends asynchronously.
            for (_, context) in &self.contexts {
                context.aftermath().await;
            }
        };
        let _ = tokio::time::timeout(LAST_WAIT, dropped).await;
    }
}

/// Runs a tool, unless the run or the call was stopped before its body started. For a concurrent
/// stop, the check and the first poll of the body are a single step; see [`Control::start`].
async fn run_tool(
    tool: Arc<dyn Tool>,
    start: ToolStart,
    context: ToolContext,
    control: Control,
) -> EventKind {
    let id = start.id;
    let output = if context.is_cancelled() {
        None
    } else {
        let body = async { tool.call(start.arguments, context.clone()).await };
        control.start_future(Request::Cancel, body).await
    };
    let Some(output) = output else {
        let mut report = ToolReport::new(ToolStatus::Aborted, "aborted before it started");
        report.started = false;
        return EventKind::ToolEnded { tool: id, report };
    };
    let report = output.into_report(context.is_cancelled());
    let (variables, metrics) = context.take_values();
    EventKind::ToolEnded { tool: id, report: ToolReport { variables, metrics, ..report } }
}
