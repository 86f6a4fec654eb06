//! Performs the effects that the kernel requests. What becomes of them comes back as events.

use super::Driver;
use super::parks::{event_of, subject};
use super::reservations::Reserving;
use super::spending::{nothing, what_is_left};
use super::validating::{self, Validation, finished, validation};
use super::work::Asked;
use crate::agent::start::consult::{Question, whose};
use crate::agent::user_code::off_thread::{ANSWER_TYPE, off_thread};
use crate::budget::{Amount, SharedBudget};
use crate::compaction::{CompactionRequest, Means};
use crate::control::Request;
use crate::provider::CallSpec;
use crate::telemetry::TraceParent;
use crate::tool::ToolContext;
use crate::verifier::{Verification, bounded};
use endstop_core::{
    Compaction, ConsultPoint, Effect, EffectId, EventKind, MessageId, Run, RunEvent, ToolPolicy,
    ToolReport, ToolStart, ToolStatus,
};
use std::sync::Arc;

impl Driver {
    /// Performs an effect; what becomes of it comes back as an event.
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::CallModel { id, turn, attempt, output_cap } => {
                self.work.new_turn();
                self.trace.call_begins(turn, attempt, output_cap);
                self.call_model(id, output_cap);
            }
            Effect::CallHandOver { id, output_cap } => {
                if let Some(event) = self.model.open_hand_over(&self.shared.config, id) {
                    return self.queue.push_back(event);
                }
                let (turn, attempt) = (self.run.as_ref().map_or(0, Run::turns) + 1, 1);
                self.trace.call_begins(turn, attempt, output_cap);
                self.call_model(id, output_cap);
            }
            Effect::SwitchModel { fallback } => {
                let config = &self.shared.config;
                self.queue.extend(self.model.switch(config, &mut self.trace, fallback));
            }
            Effect::AbortModel { id } if self.model.is_in(id) => {
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
                    self.work.stop_tool(id);
                }
            }
            Effect::WakeAt { at } => self.clock.wake_at(at, self.wake_interval()),
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
                        self.ask(Asked { id, name: validating::NAME, what: ANSWER_TYPE }, work);
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
                self.work.abandon(id);
                // Returns the reservation if the effect was one; otherwise this does nothing.
                self.settle(id, Amount::ZERO);
            }
            // A call that has ended already, whose event is in the queue; and what `give_parked` reports, because the run can
            // still be stopped before that.
            Effect::AbortModel { .. } | Effect::Emit(RunEvent::Parked(_)) => {}
            Effect::Emit(event) => {
                self.trace.told(&event);
                self.reporter.report_of_kernel(&mut self.queue, event);
            }
            // The enumeration grows for other drivers. One that is not performed here is a defect, which tests must show.
            other => debug_assert!(false, "{other:?} is not performed"),
        }
    }

    fn call_model(&mut self, id: EffectId, output_cap: Option<u64>) {
        let details = self.reporter.is_read();
        let Some(run) = &self.run else { return };
        let (messages, epoch) = (run.messages(), run.epoch());
        let place = self.trace.asks(messages);
        let trace_parent = place.as_ref().map(TraceParent::as_str);
        let spec = CallSpec { messages, epoch, output_cap, details, trace_parent };
        let (config, control) = (&self.shared.config, &self.stops.control);
        self.queue.extend(self.model.call(config, control, &mut self.trace, id, spec));
        if self.model.is_calling() {
            self.clock.watch(self.wake_interval());
        }
    }

    fn start_tool(&mut self, start: ToolStart) {
        let name = &start.call.name;
        let Some(tool) = self.shared.tool(name).map(Arc::clone) else {
            let report = ToolReport::new(ToolStatus::Error, format!("unknown tool `{name}`"));
            self.queue.push_back(EventKind::ToolEnded { tool: start.id, report });
            return;
        };
        let background = |policy: &ToolPolicy| policy.name == *name && policy.background;
        let budget = if self.shared.config.tool_specs.iter().any(background) {
            nothing(self.limits(), self.delivery.owner().budget.as_ref())
        } else {
            self.turn_budget()
        };
        let context = self.context(start.call.id.clone(), budget);
        let (owner, control) = (self.delivery.owner(), self.stops.control.clone());
        self.work.start_tool(owner, &mut self.trace, tool, start, context, control);
    }

    /// Returns the budget of work that may spend in this turn.
    fn turn_budget(&mut self) -> Option<SharedBudget> {
        let (run, budget) = (self.run.as_ref(), self.delivery.owner().budget.as_ref());
        let limits = run.map_or(&self.shared.config.limits, Run::limits);
        self.work.budget(|| what_is_left(run, limits, budget))
    }

    /// Creates the context of work that may spend within this budget: a tool call or a compaction.
    fn context(&self, call_id: String, budget: Option<SharedBudget>) -> ToolContext {
        let control = &self.stops.control;
        let context = ToolContext::new(
            call_id,
            control.token().child_token(),
            control.terminated().clone(),
            self.limits().cancel_grace,
            self.shared.config.working_dir.clone(),
        );
        context.bind_run(control.clone());
        if let Some(nesting) = self.reporter.nesting() {
            context.bind_nesting(nesting);
        }
        if let Some(budget) = budget {
            context.bind(budget);
        }
        context
    }

    fn ask(&mut self, asked: Asked, question: impl Future<Output = EventKind> + Send + 'static) {
        self.work.ask(self.delivery.owner(), &self.trace, asked, question);
    }

    /// Asks the shared budget, and reports its answer to the kernel.
    fn reserve(&mut self, id: EffectId, want: Amount, least: Amount) {
        match self.reservations.reserve(self.delivery.owner(), id, want, least) {
            Reserving::Answered(event) => self.queue.push_back(event),
            Reserving::Asking(answer) => {
                self.ask(Asked { id, name: "shared_budget", what: "the shared budget" }, answer);
            }
        }
    }

    pub(super) fn settle(&mut self, id: EffectId, spent: Amount) {
        self.reservations.settle(self.delivery.owner(), id, spent);
    }

    /// Asks the verifier about an answer.
    fn verify(&mut self, id: EffectId, answer: Option<String>) {
        let Some(verifier) = self.shared.config.verifier.clone() else {
            // Without a verifier no answer is accepted.
            let output = "no verifier is set".to_owned();
            self.queue.push_back(EventKind::Verified { id, passed: false, output });
            return;
        };
        let control = self.stops.control.clone();
        self.ask(Asked { id, name: "verifier", what: "the verifier" }, async move {
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
    fn consult(&mut self, id: EffectId, point: ConsultPoint) {
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
        if let Some(hooks) = self.reporter.hooks()
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
            let reply = self.approvals.open(self.reporter.run_id(), id, call);
            let (request_id, call) = (reply.id, reply.call.clone());
            question.reply = Some(reply);
            self.reporter.report_approval(&mut self.queue, request_id, call);
        }
        let (name, what) = whose(&point);
        let approval = matches!(point, ConsultPoint::Approval { .. });
        let control = self.stops.control.clone();
        self.ask(Asked { id, name, what }, async move {
            match question.answer(point, &control).await {
                Some(answer) => event_of(id, answer, subject, earlier, approval),
                // The question was not asked because the run was stopped. The driver sees the
                // request before this event, which does nothing.
                None => EventKind::Tick,
            }
        });
    }

    fn compact(&mut self, id: EffectId, forced: bool, task: Option<MessageId>, target: u64) {
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
        let budget = self.turn_budget();
        let context = self.context(String::new(), budget);
        self.work.spends(id, context.clone());
        let (config, run) = (&self.shared.config, self.run.as_ref());
        let used = run.map_or(0, Run::committed_tokens);
        let own = self.model.is_own();
        let means = Means {
            provider: Arc::clone(self.model.provider(config)),
            price: if own { config.price } else { run.and_then(Run::price) },
            params: self.model.params(),
            tokens_left: self.limits().max_tokens.map(|max| max.saturating_sub(used)),
            context,
        };
        let messages = run.map(|run| run.messages().to_vec()).unwrap_or_default();
        let request = CompactionRequest {
            forced,
            task,
            target,
            means: Some(means),
            ..CompactionRequest::new(messages)
        };
        let control = self.stops.control.clone();
        self.ask(Asked { id, name: "compaction", what: "the compactor" }, async move {
            let compacted = async { compactor.compact(request).await };
            match control.start_future(Request::Cancel, compacted).await {
                Some(result) => EventKind::Compacted { id, result },
                None => EventKind::Tick,
            }
        });
    }
}
