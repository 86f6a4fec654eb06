//! Performs the kernel's effects: model calls, tools, questions and compactions. Converts the end
//! of a task into an event for the kernel.
//!
//! ```text
//! for effect in effects { driver.perform(effect); }
//! ```

use super::parks::{event_of, subject};
use super::validating::{self, Validation, finished, validation};
use super::{Call, Driver, Work, in_provider};
use crate::agent::start::consult::{Question, whose};
use crate::agent::user_code;
use crate::agent::user_code::off_thread::{ANSWER_TYPE, off_thread};
use crate::budget::Amount;
use crate::compaction::{CompactionRequest, Means};
use crate::control::{Control, Request};
use crate::provider::{CallSpec, Provider, SessionSpec, ToolChoice};
use crate::tool::{Tool, ToolContext};
use crate::verifier::{Verification, bounded};
use endstop_core::{
    Compaction, ConsultPoint, Effect, EffectId, ErrorClass, EventKind, MessageId, ModelError, Run,
    RunEvent, ToolPolicy, ToolReport, ToolStart, ToolStatus,
};
use std::future::Future;
use std::sync::Arc;
use tokio::task::{Id, JoinError};

impl Driver {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::CallModel { id, turn, attempt, output_cap } => {
                // The tools after this call get a newly computed budget, because the call spends as
                // well.
                self.tool_budget = None;
                self.trace.call_begins(turn, attempt, output_cap);
                self.call_model(id, output_cap);
            }
            Effect::CallHandOver { id, output_cap } => self.call_hand_over(id, output_cap),
            Effect::SwitchModel { fallback } => self.switch_model(fallback),
            Effect::AbortModel { id } if self.call.as_ref().is_some_and(|call| call.id == id) => {
                self.hang_up();
                self.trace.aborted();
            }
            Effect::StartTools { calls } => {
                for start in calls {
                    self.start_tool(start);
                }
            }
            Effect::AbortTools { ids, .. } => {
                for id in ids {
                    if let Some((_, context)) = self.tools.iter().find(|(tool, _)| *tool == id) {
                        context.stop_now();
                    }
                }
            }
            Effect::WakeAt { at } => {
                // The kernel counts from the start of the run, also if an earlier process drove
                // part of it.
                self.alarm.set(self.began + at.saturating_sub(self.earlier), self.wake_interval());
            }
            Effect::Reserve { id, want, least, want_tokens, least_tokens } => {
                let want = Amount { usd: want, tokens: want_tokens };
                self.reserve(id, want, Amount { usd: least, tokens: least_tokens });
            }
            Effect::Settle { id, spent, tokens } => {
                self.settle(id, Amount { usd: spent, tokens });
            }
            Effect::Validate { id, candidate } => {
                let (provider, schema) = (&self.shared.config.provider, self.schema.clone());
                match validation(provider, schema, id, candidate) {
                    Validation::Here(work) => self.queue.push_back(work()),
                    Validation::OffThread(work) => {
                        // The kernel ends the run at its `timeout`.
                        let bound = self.limits().turn_timeout;
                        let work = finished(off_thread(bound, work));
                        self.ask(id, validating::NAME, ANSWER_TYPE, work);
                    }
                }
            }
            Effect::Verify { id, answer, .. } => self.verify(id, answer),
            Effect::Consult { id, point } => self.consult(id, point),
            Effect::Compact { id, forced, task, target, .. } => {
                self.compact(id, forced, task, target);
            }
            Effect::Abandon { id } => {
                if let Some(parks) = &mut self.parks {
                    parks.request.take_if(|request| request.id == id);
                }
                if let Some(task) = self.asked.remove(&id) {
                    task.abort();
                }
                // Returns the reservation if the effect was one; otherwise this does nothing.
                self.settle(id, Amount::ZERO);
            }
            // Reported by `give_parked`, because the run can still be stopped before that.
            Effect::Emit(RunEvent::Parked(_)) => {}
            Effect::Emit(event) => {
                self.trace.told(&event);
                self.tell_of_run(event);
            }
            _ => {}
        }
    }

    /// Calls the model for the hand-over, in a session in which it may call no tools. The run makes no
    /// other call after it.
    fn call_hand_over(&mut self, id: EffectId, output_cap: Option<u64>) {
        let Some(spec) = self.session_spec.take() else {
            // A run that was resumed with the limit off does not ask for a hand-over.
            let error = ModelError::new(ErrorClass::UnknownError, "the hand-over is not set up");
            self.queue.push_back(EventKind::TurnFailed { call: id, error, partial: None });
            return;
        };
        let provider = &**self.shared.config.provider_of(self.fallback);
        match in_provider(provider, || provider.open(without_calls(provider, *spec))) {
            Ok(session) => self.session = Some(session),
            Err(panicked) => {
                self.queue.push_back(panicked.into());
                return;
            }
        }
        let (turn, attempt) = (self.run.as_ref().map_or(0, Run::turns) + 1, 1);
        self.trace.call_begins(turn, attempt, output_cap);
        self.call_model(id, output_cap);
    }

    /// Sends later calls to a model of the run: 0 is the agent's own, and n its n-th fallback. Does
    /// nothing if that model is in use, as after a resume in the middle of a switch.
    pub(super) fn switch_model(&mut self, fallback: u32) {
        if self.fallback == fallback {
            return;
        }
        let config = &self.shared.config;
        let (before, session) = (&**config.provider_of(self.fallback), self.session.take());
        // Its destructor is user code. A panic does not end a run that leaves the provider.
        let _ = in_provider(before, || drop(session));
        self.fallback = fallback;
        let provider: &dyn Provider = &**config.provider_of(fallback);
        // Without the settings nothing was opened before either, and the run has a fault.
        let Some(spec) = self.session_spec.as_deref() else { return };
        let mut spec = spec.clone();
        spec.context_window = config.context_window_of(fallback);
        match in_provider(provider, || provider.open(spec)) {
            Ok(session) => self.session = Some(session),
            Err(panicked) => self.queue.push_back(panicked.into()),
        }
        self.trace.switched(provider);
    }

    pub(super) fn call_model(&mut self, id: EffectId, output_cap: Option<u64>) {
        let details = self.is_heard();
        let (Some(run), Some(session)) = (&self.run, &mut self.session) else { return };
        let call = CallSpec { messages: run.messages(), epoch: run.epoch(), output_cap, details };
        let provider = &**self.shared.config.provider_of(self.fallback);
        let trace = &self.trace;
        let called = self.control.start(Request::Cancel, || {
            in_provider(provider, || trace.in_call(|| session.call(call)))
        });
        match called {
            Some(Ok(stream)) => {
                self.call = Some(Call { id, stream, started: false });
                self.alarm.watch(self.wake_interval());
            }
            Some(Err(panicked)) => {
                self.trace.call_panicked();
                self.queue.push_back(panicked.into());
            }
            // The run was stopped; the next poll delivers the request.
            None => self.trace.aborted(),
        }
    }

    pub(super) fn start_tool(&mut self, start: ToolStart) {
        let id = start.id;
        let name = start.call.name.clone();
        let Some(tool) = self.shared.tool(&name).map(Arc::clone) else {
            let report = ToolReport::new(ToolStatus::Error, format!("unknown tool `{name}`"));
            self.queue.push_back(EventKind::ToolEnded { tool: id, report });
            return;
        };
        let background = |policy: &ToolPolicy| policy.name == name && policy.background;
        let context = if self.shared.config.tool_specs.iter().any(background) {
            // The model is called while the tool runs, so that both would spend what is left.
            self.context_within(start.call.id.clone(), self.nothing_left())
        } else {
            self.context(start.call.id.clone())
        };
        self.tools.push((id, context.clone()));
        self.trace.tool_begins(&start);
        let run = run_tool(tool, start, context, self.control.clone());
        let run = self.trace.of_tool(id, run);
        let run = self.owner.track(run);
        let task = self.tasks.get_or_insert_default().spawn(run);
        self.task_of.push((task.id(), Work::Tool { id, name }));
    }

    /// Asks the verifier about an answer.
    fn verify(&mut self, id: EffectId, answer: Option<String>) {
        let Some(verifier) = self.shared.config.verifier.clone() else {
            // Without a verifier no answer is accepted.
            let output = "no verifier is set".to_owned();
            self.queue.push_back(EventKind::Verified { id, passed: false, output });
            return;
        };
        let control = self.control.clone();
        self.ask(id, "verifier", "the verifier", async move {
            let asked = async { verifier.verify(answer).await };
            match control.start_future(Request::Cancel, asked).await {
                Some(Verification { passed, output }) => {
                    // Bounded before it is journalled: the output may be of any size.
                    EventKind::Verified { id, passed, output: bounded(output) }
                }
                None => EventKind::Tick,
            }
        });
    }

    /// Asks the hooks or the approver at a point.
    pub(super) fn consult(&mut self, id: EffectId, point: ConsultPoint) {
        // A run that works for another one is not parked, because that one waits for it.
        let recorder = self.recorder.as_deref().filter(|_| self.outer.is_none());
        let subject = subject(&point, recorder, self.run.as_ref());
        let parks = self.parks.as_deref();
        let decided = parks.map(|parks| parks.answer(id, subject.as_ref())).unwrap_or_default();
        if !decided.is_empty() {
            self.queue.extend(decided);
            return;
        }
        let earlier = parks.and_then(|parks| parks.earlier(id, subject.as_ref()));
        let mut question = Question::new(&self.shared.config);
        if let Some(hooks) = &self.hooks
            && matches!(point, ConsultPoint::PreCall { .. })
        {
            // A copy, because the hook runs on another task.
            question.messages = self.run.as_ref().map(Run::messages).unwrap_or_default().to_vec();
            question.fixed.clone_from(&hooks.fixed);
        }
        // Reported even if a stop is pending, because the journal tells the same events again and
        // cannot know. The handle of an inner run belongs to the tool that started it.
        if self.outer.is_none()
            && let Some(call) = self.shared.config.approved_by_events(&point)
        {
            let reply = self.approvals.open(self.teller.origin.run_id(), id, call);
            let (request_id, call) = (reply.id, reply.call.clone());
            question.reply = Some(reply);
            self.tell_approval(request_id, call);
        }
        let (name, what) = whose(&point);
        let approval = matches!(point, ConsultPoint::Approval { .. });
        let control = self.control.clone();
        self.ask(id, name, what, async move {
            match question.answer(point, &control).await {
                Some(answer) => event_of(id, answer, subject, earlier, approval),
                // The question was not asked because the run was stopped. The driver sees the
                // request before this event, which does nothing.
                None => EventKind::Tick,
            }
        });
    }

    /// Asks a question on a separate task, because the answer may take long or never come.
    pub(super) fn ask(
        &mut self,
        id: EffectId,
        name: &'static str,
        what: &'static str,
        question: impl Future<Output = EventKind> + Send + 'static,
    ) {
        let question = self.trace.of_run(question);
        let question = self.owner.track(question);
        let task = self.tasks.get_or_insert_default().spawn(question);
        self.task_of.push((task.id(), Work::Question { id, name, what }));
        self.asked.insert(id, task);
    }

    pub(super) fn compact(
        &mut self,
        id: EffectId,
        forced: bool,
        task: Option<MessageId>,
        target: u64,
    ) {
        let Some(compactor) = self.shared.config.compactor.clone() else {
            let result = if forced {
                Compaction::Failed("there is no compactor".to_owned())
            } else {
                Compaction::NotNeeded
            };
            self.queue.push_back(EventKind::Compacted { id, result });
            return;
        };
        // A compactor may call a model; its spending is booked like that of a tool.
        let context = self.context(String::new());
        self.tools.push((id, context.clone()));
        let config = &self.shared.config;
        let used = self.run.as_ref().map_or(0, Run::committed_tokens);
        let means = Means {
            provider: Arc::clone(config.provider_of(self.fallback)),
            price: match self.fallback {
                0 => config.price,
                _ => self.run.as_ref().and_then(Run::price),
            },
            params: self.service.as_deref().cloned().unwrap_or_default(),
            tokens_left: self.limits().max_tokens.map(|max| max.saturating_sub(used)),
            context,
        };
        let messages = self.run.as_ref().map(|run| run.messages().to_vec()).unwrap_or_default();
        let request = CompactionRequest {
            forced,
            task,
            target,
            means: Some(means),
            ..CompactionRequest::new(messages)
        };
        let control = self.control.clone();
        self.ask(id, "compaction", "the compactor", async move {
            let compacted = async { compactor.compact(request).await };
            match control.start_future(Request::Cancel, compacted).await {
                Some(result) => EventKind::Compacted { id, result },
                None => EventKind::Tick,
            }
        });
    }

    /// Removes the context of work that has ended.
    fn take_context(&mut self, id: EffectId) -> Option<ToolContext> {
        let at = self.tools.iter().position(|(tool, _)| *tool == id)?;
        Some(self.tools.remove(at).1)
    }

    /// Converts the end of a tool or a question into an event.
    pub(super) fn joined(&mut self, joined: Result<(Id, EventKind), JoinError>) -> EventKind {
        let (task, result) = match joined {
            Ok((task, event)) => (task, Ok(event)),
            Err(error) => (error.id(), Err(error)),
        };
        let at = self.task_of.iter().position(|(id, _)| *id == task);
        let work = at.map(|at| self.task_of.swap_remove(at).1);
        let mut waited = true;
        match &work {
            Some(Work::Tool { id, .. }) => {
                if let Some(context) = self.take_context(*id) {
                    self.book(context.take_spent());
                }
            }
            Some(Work::Question { id, .. }) => {
                waited = self.asked.remove(id).is_some();
                if let Some(context) = self.take_context(*id) {
                    self.book(context.take_spent());
                }
            }
            None => {}
        }
        let provider = &*self.shared.config.provider;
        match (result, work) {
            (Ok(EventKind::Parked { request }), _) => {
                self.parks.get_or_insert_default().request = Some(request);
                EventKind::Tick
            }
            (Ok(event), _) => event,
            // The question was cancelled, so its result no longer matters.
            (Err(_), Some(Work::Question { .. }) | None) if !waited => EventKind::Tick,
            // A tool that panics ends the run, as documented.
            (Err(error), work) if error.is_panic() => {
                let (name, what) = match work {
                    Some(Work::Tool { id, name }) => {
                        self.trace.tool_panicked(id);
                        let what = format!("the tool `{name}`");
                        (name, what)
                    }
                    Some(Work::Question { name, what, .. }) => (name.to_owned(), what.to_owned()),
                    None => ("driver".to_owned(), "a task".to_owned()),
                };
                user_code::panicked(provider, &name, &what, error.into_panic()).into()
            }
            (Err(_), Some(Work::Tool { id, .. })) => EventKind::ToolEnded {
                tool: id,
                report: ToolReport::new(ToolStatus::Aborted, "aborted"),
            },
            (Err(_), _) => EventKind::Tick,
        }
    }
}

/// Returns the settings of a session in which the model may not call tools. They are still part of its
/// requests, because a conversation with calls is refused without them, and because a cached prompt
/// includes them. If the provider's API cannot forbid calls, the kernel ignores them.
fn without_calls(provider: &dyn Provider, mut spec: SessionSpec) -> SessionSpec {
    // The hand-over is text.
    spec.output_schema = None;
    if spec.tools.is_empty() {
        return spec;
    }
    let mut quiet = spec.clone();
    quiet.params.tool_choice = Some(ToolChoice::None);
    quiet.params.parallel_tool_calls = None;
    if provider.check_params(&quiet).is_ok() { quiet } else { spec }
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
