//! Drives one run of the kernel on tokio: performs its effects, and feeds it what comes of them.
//!
//! The driver decides nothing. It holds the model call, the tools and the questions under way;
//! dropping it (its task is aborted, or the runtime goes down) stops all of them and still writes
//! the run's one ending.

use super::control::{Control, Request};
use super::ending::{EndingCell, lost};
use super::handle::{AgentEvent, DeltaEvent, EventSink, WarningEvent};
use super::opened::Opened;
use super::questions::{answer, whose};
use super::recorder::Recorder;
use super::user_code::Panicked;
use super::{Conversation, Shared, user_code};
use crate::budget::SharedBudget;
use crate::compaction::{CompactionRequest, Means};
use crate::journal::RunHeader;
use crate::provider::{CallEvent, CallSpec, CallStream, Provider, Response, Session};
use crate::telemetry::Trace;
use crate::tool::{Spent, Tool, ToolContext, ToolOutput};
use endstop_core::{
    Compaction, ConsultPoint, Effect, EffectId, ErrorClass, Event, EventKind, MessageId,
    ModelError, NanoUsd, Outcome, Run, Step, Termination, TerminationSignal, ToolReport, ToolStart,
    ToolStatus, TurnDelta,
};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, coop};
use tokio::time::{Instant, Sleep};

/// How long what was told to stop may take before the outcome is given without it.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// What a task works on.
enum Work {
    Tool {
        id: EffectId,
        name: String,
    },
    /// A hook, a person or a compactor is asked.
    Question {
        id: EffectId,
        name: &'static str,
        what: &'static str,
    },
}

/// How a run begins.
pub(crate) enum Beginning {
    /// At its start.
    New(Conversation),
    /// Where it was.
    Again(Box<Again>),
}

/// A run that goes on.
pub(crate) struct Again {
    pub(super) opened: Opened,
    pub(super) step: Step,
    pub(super) perform: Vec<Effect>,
    /// Time on its clock.
    pub(super) at: Duration,
    pub(super) recorder: Box<Recorder>,
}

/// What is done first.
enum First {
    /// The journal takes the run.
    Keep(Box<RunHeader>),
    /// These were asked for before; the run may have ended so.
    Perform(Vec<Effect>, Option<Box<Outcome>>),
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    number: u64,
    control: Control,
    heard: Option<Request>,
    ending: EndingCell,
    sink: EventSink,
    run: Option<Run>,
    session: Option<Box<dyn Session>>,
    began: Instant,
    /// Time on the run's clock that was before.
    earlier: Duration,
    /// Boxed, for a run without a journal to hold less.
    recorder: Option<Box<Recorder>>,
    beginning: Option<First>,
    trace: Trace,
    call: Option<(EffectId, CallStream)>,
    tasks: JoinSet<EventKind>,
    /// Which effect a task works on, for one that panics.
    task_of: HashMap<Id, Work>,
    tools: HashMap<EffectId, ToolContext>,
    /// What is left of the run's ceilings on cost for the tools of this turn, together.
    purse: Option<SharedBudget>,
    asked: HashMap<EffectId, AbortHandle>,
    reserved: HashMap<EffectId, NanoUsd>,
    timer: Option<Pin<Box<Sleep>>>,
    effects: Vec<Effect>,
    queue: VecDeque<EventKind>,
    finished: bool,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        number: u64,
        control: Control,
        ending: EndingCell,
        sink: EventSink,
        beginning: Beginning,
    ) -> Driver {
        let mut driver = Driver {
            number,
            control,
            heard: None,
            ending,
            sink,
            run: None,
            session: None,
            began: Instant::now(),
            earlier: Duration::ZERO,
            recorder: None,
            beginning: None,
            trace: Trace::default(),
            call: None,
            tasks: JoinSet::new(),
            task_of: HashMap::new(),
            tools: HashMap::new(),
            purse: None,
            asked: HashMap::new(),
            reserved: HashMap::new(),
            timer: None,
            effects: Vec::new(),
            queue: VecDeque::new(),
            finished: false,
            shared,
        };
        match beginning {
            Beginning::New(conversation) => {
                let config = &driver.shared.config;
                let opened = Opened::new(config);
                let id = match config.journal {
                    Some(_) => crate::clock::run_id(),
                    None => number.to_string(),
                };
                let named = (opened.provider.as_deref(), opened.model.as_deref());
                driver.trace = Trace::begin(&*config.provider, named, config.streaming, Some(&id));
                let spec = opened.spec(config, conversation, id);
                if config.journal.is_some() {
                    let header = opened.header(config, &spec);
                    driver.beginning = Some(First::Keep(Box::new(header)));
                }
                driver.run = Some(Run::new(spec));
                driver.session = opened.session;
                driver.queue = opened.faults.into();
            }
            Beginning::Again(again) => {
                let Again { opened, step, perform, at, recorder } = *again;
                let named = (opened.provider.as_deref(), opened.model.as_deref());
                let config = &driver.shared.config;
                driver.trace = Trace::begin(&*config.provider, named, config.streaming, None);
                driver.session = opened.session;
                driver.queue = opened.faults.into();
                driver.earlier = at;
                driver.recorder = Some(recorder);
                let ended = match step {
                    Step::Continue(run) => {
                        driver.run = Some(run);
                        None
                    }
                    Step::Ended(outcome) => Some(outcome),
                };
                driver.beginning = Some(First::Perform(perform, ended));
            }
        }
        driver
    }

    /// Drives the run to its end.
    pub(crate) async fn drive(mut self) {
        let mut outcome = self.begin();
        // Without its kernel nothing can end it: the drop guard does.
        while outcome.is_none() && self.run.is_some() {
            let event = std::future::poll_fn(|cx| self.poll_next(cx)).await;
            outcome = self.feed(event);
        }
        if let Some(outcome) = outcome {
            self.finish(*outcome).await;
        }
    }

    /// The run's first event, or what is to be done where it goes on.
    fn begin(&mut self) -> Option<Box<Outcome>> {
        let mut starts = true;
        match self.beginning.take() {
            None => {}
            Some(First::Keep(header)) => {
                let (provider, journal) =
                    (&*self.shared.config.provider, &self.shared.config.journal);
                match (in_provider(provider, || provider.known_keys()), journal) {
                    (Ok(keys), Some(journal)) => {
                        let recorder = Recorder::begin(&**journal, &header, keys);
                        self.recorder = Some(Box::new(recorder));
                        self.tell_problem();
                    }
                    // Without its keys nothing is written.
                    (Err(panicked), _) => self.queue.push_back(panicked.into()),
                    (Ok(_), None) => {}
                }
            }
            Some(First::Perform(effects, ended)) => {
                self.tell_problem();
                // What it spent before is no gift to whoever shares the budget.
                let spent = match (&ended, &self.run) {
                    (Some(outcome), _) => outcome.cost,
                    (None, Some(run)) => run.spent(),
                    (None, None) => NanoUsd::ZERO,
                };
                if let Some(budget) = &self.shared.config.budget {
                    budget.settle(NanoUsd::ZERO, spent);
                }
                // With it all that was settled since.
                for effect in effects {
                    if !matches!(effect, Effect::Settle { .. }) {
                        self.perform(effect);
                    }
                }
                if ended.is_some() {
                    return ended;
                }
                starts = self.run.as_ref().is_some_and(|run| run.phase() == "new");
            }
        }
        // A cancel or terminate that came before the start stands before it.
        if let Some(request) = self.control.pending(None) {
            return self.feed(requested(request));
        }
        // What cannot even be opened is not begun.
        if let Some(fault @ EventKind::Fault { .. }) = self.queue.front().cloned() {
            self.queue.pop_front();
            return self.feed(fault);
        }
        if !starts {
            return None;
        }
        let config = &self.shared.config;
        let start = EventKind::Start {
            seed: config.seed.unwrap_or_else(|| crate::clock::seed(self.number)),
            price: config.price,
            wall_ms: Some(crate::clock::wall_ms()),
        };
        self.feed(start)
    }

    /// Time on the run's clock.
    fn now(&self) -> Duration {
        self.earlier.saturating_add(self.began.elapsed())
    }

    /// Tells what is wrong with the journal, once.
    fn tell_problem(&mut self) {
        if let Some(problem) = self.recorder.as_mut().and_then(|recorder| recorder.problem()) {
            self.tell(AgentEvent::Warning(WarningEvent::new(problem)));
        }
    }

    /// The next thing that happened: what was asked of the run first, then what it waits for.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<EventKind> {
        if let Some(request) = self.control.poll(self.heard, cx.waker()) {
            self.heard = Some(request);
            return Poll::Ready(requested(request));
        }
        if let Some(event) = self.queue.pop_front() {
            return Poll::Ready(event);
        }
        if let Some(timer) = &mut self.timer
            && timer.as_mut().poll(cx).is_ready()
        {
            self.timer = None;
            return Poll::Ready(EventKind::Tick);
        }
        if let Poll::Ready(Some(joined)) = self.tasks.poll_join_next_with_id(cx) {
            return Poll::Ready(self.joined(joined));
        }
        if let Some((id, stream)) = &mut self.call {
            let id = *id;
            // A stream that is always ready would keep the timers from being heard, and a runtime of
            // one thread from anything else.
            let turn = std::task::ready!(coop::poll_proceed(cx));
            let provider = &*self.shared.config.provider;
            let trace = &self.trace;
            match in_provider(provider, || trace.in_call(|| stream.as_mut().poll_next(cx))) {
                Err(panicked) => {
                    self.trace.call_panicked();
                    self.queue.push_back(panicked.into());
                    self.hang_up();
                    return self.poll_next(cx);
                }
                Ok(Poll::Ready(event)) => {
                    turn.made_progress();
                    match self.called(id, event) {
                        fault @ EventKind::Fault { .. } => self.queue.push_back(fault),
                        event => return Poll::Ready(event),
                    }
                    // What was asked of the run stands before what failed.
                    return self.poll_next(cx);
                }
                Ok(Poll::Pending) => {}
            }
        }
        Poll::Pending
    }

    /// Lets go of the model call: that is the user's code as well.
    fn hang_up(&mut self) {
        let (call, provider) = (self.call.take(), &*self.shared.config.provider);
        let gone = in_provider(provider, || drop(call));
        self.queue.extend(gone.err().map(EventKind::from));
    }

    /// Reads what came of the model call.
    fn called(&mut self, call: EffectId, event: Option<CallEvent>) -> EventKind {
        match event {
            Some(CallEvent::Delta(delta)) => {
                self.tell_delta(&delta);
                EventKind::Delta { call, delta }
            }
            Some(CallEvent::Ended(response)) => {
                self.hang_up();
                match self.signal(&response) {
                    Ok(signal) => {
                        self.trace.answered(&response, &signal);
                        EventKind::TurnEnded { call, turn: Box::new(response.into_turn(signal)) }
                    }
                    Err(panicked) => {
                        self.trace.call_panicked();
                        panicked.into()
                    }
                }
            }
            Some(CallEvent::Failed(error, partial)) => {
                self.hang_up();
                self.trace.failed(error.class, partial.as_deref());
                let partial = partial.map(|response| {
                    let signal = response.signal.clone().unwrap_or_else(|| {
                        TerminationSignal::new(
                            endstop_core::SignalReason::ErrorTermination,
                            endstop_core::Confidence::High,
                        )
                    });
                    Box::new(response.into_turn(signal))
                });
                EventKind::TurnFailed { call, error, partial }
            }
            None => {
                self.hang_up();
                self.trace.failed(ErrorClass::IncompleteStream, None);
                let error = ModelError::new(
                    ErrorClass::IncompleteStream,
                    "the provider's stream closed without its end",
                );
                EventKind::TurnFailed { call, error, partial: None }
            }
        }
    }

    fn signal(&self, response: &Response) -> Result<TerminationSignal, Panicked> {
        let (provider, strict) =
            (&*self.shared.config.provider, self.shared.config.strict_detection);
        user_code::guard(provider, "provider", "the provider's detection", || {
            crate::provider::detect(provider, response, strict)
        })
    }

    /// Feeds the kernel and performs what it asks for; the outcome where the run has ended.
    fn feed(&mut self, event: EventKind) -> Option<Box<Outcome>> {
        self.book_running();
        if let EventKind::ToolEnded { tool, report } = &event {
            self.trace.tool_ends(*tool, report.status);
        }
        let run = self.run.take()?;
        let event = Event::new(self.now(), event);
        let before = self.recorder.as_mut().and_then(|recorder| recorder.before(&event));
        let step = run.handle(event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        let outcome = match step {
            Step::Continue(run) => {
                self.run = Some(run);
                None
            }
            Step::Ended(outcome) => Some(outcome),
        };
        // On disk before anything of it is done.
        if let Some(recorder) = &mut self.recorder {
            recorder.after(before, &effects, outcome.is_some());
            self.tell_problem();
        }
        for effect in effects.drain(..) {
            self.perform(effect);
        }
        self.trace.settle();
        self.effects = effects;
        outcome
    }

    /// Books what the tools that run have spent on models of their own: the kernel knows of it
    /// before it decides.
    fn book_running(&mut self) {
        let spent: Vec<Spent> = self.tools.values().filter_map(ToolContext::take_spent).collect();
        for spent in spent {
            self.book(Some(spent));
        }
    }

    fn book(&mut self, spent: Option<Spent>) {
        let Some(Spent { usage, cost, cost_unknown }) = spent else { return };
        let Some(run) = self.run.take() else { return };
        let event = Event::new(self.now(), EventKind::Spent { usage, cost, cost_unknown });
        let before = self.recorder.as_mut().and_then(|recorder| recorder.before(&event));
        // This event asks for nothing and ends no run.
        if let Step::Continue(run) = run.handle(event, &mut self.effects) {
            self.run = Some(run);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.after(before, &[], false);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::CallModel { id, turn, attempt, output_cap } => {
                self.purse = None;
                self.trace.call_begins(turn, attempt, output_cap);
                self.call_model(id, output_cap);
            }
            Effect::AbortModel { id }
                if self.call.as_ref().is_some_and(|(running, _)| *running == id) =>
            {
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
                    if let Some(context) = self.tools.get(&id) {
                        context.stop_now();
                    }
                }
            }
            Effect::WakeAt { at } => {
                let at = self.began + at.saturating_sub(self.earlier);
                match &mut self.timer {
                    Some(timer) => timer.as_mut().reset(at),
                    None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
                }
            }
            Effect::Reserve { id, want, least } => {
                let granted = match &self.shared.config.budget {
                    Some(budget) => budget.reserve(want, least),
                    None => want,
                };
                self.reserved.insert(id, granted);
                self.queue.push_back(EventKind::Reserved { id, granted });
            }
            Effect::Settle { id, spent } => self.settle(id, spent),
            Effect::Validate { id, candidate } => {
                let result = match &self.shared.config.schema {
                    Some(schema) => schema.validate(&candidate),
                    None => Ok(candidate),
                };
                self.queue.push_back(EventKind::Validated { id, result });
            }
            Effect::Consult { id, point } => self.consult(id, point),
            Effect::Compact { id, forced, task, target, .. } => {
                self.compact(id, forced, task, target);
            }
            Effect::Abandon { id } => {
                if let Some(task) = self.asked.remove(&id) {
                    task.abort();
                }
                self.settle(id, NanoUsd::ZERO);
            }
            Effect::Emit(event) => {
                self.trace.told(&event);
                self.tell(AgentEvent::Run(event));
            }
            _ => {}
        }
    }

    fn settle(&mut self, id: EffectId, spent: NanoUsd) {
        let granted = self.reserved.remove(&id).unwrap_or_default();
        if let Some(budget) = &self.shared.config.budget {
            budget.settle(granted, spent);
        }
    }

    fn call_model(&mut self, id: EffectId, output_cap: Option<u64>) {
        let (Some(run), Some(session)) = (&self.run, &mut self.session) else { return };
        let call = CallSpec { messages: run.messages(), epoch: run.epoch(), output_cap };
        let trace = &self.trace;
        match in_provider(&*self.shared.config.provider, || trace.in_call(|| session.call(call))) {
            Ok(stream) => self.call = Some((id, stream)),
            Err(panicked) => {
                self.trace.call_panicked();
                self.queue.push_back(panicked.into());
            }
        }
    }

    fn start_tool(&mut self, start: ToolStart) {
        let id = start.id;
        let name = start.call.name.clone();
        let Some(tool) = self.shared.tool(&name).map(Arc::clone) else {
            let report = ToolReport::new(ToolStatus::Error, format!("unknown tool `{name}`"));
            self.queue.push_back(EventKind::ToolEnded { tool: id, report });
            return;
        };
        let context = self.context(start.call.id.clone());
        self.tools.insert(id, context.clone());
        self.trace.tool_begins(&start);
        let run = self.trace.of_tool(id, run_tool(tool, start, context));
        let run = self.shared.tasks.track_future(run);
        let task = self.tasks.spawn(run);
        self.task_of.insert(task.id(), Work::Tool { id, name });
    }

    /// A context of something that may spend: a tool call, a compaction.
    fn context(&mut self, call_id: String) -> ToolContext {
        let context = ToolContext::new(
            call_id,
            self.control.token.child_token(),
            self.shared.token.clone(),
            self.shared.config.limits.cancel_grace,
            self.shared.config.working_dir.clone(),
        );
        if let Some(purse) = self.purse() {
            context.bind(purse);
        }
        context
    }

    /// What the tools of this turn may spend together. No model call of the run's own is under way
    /// beside them, so that all that is left is theirs.
    fn purse(&mut self) -> Option<SharedBudget> {
        if self.purse.is_none() {
            let config = &self.shared.config;
            let spent = self.run.as_ref().map_or(NanoUsd::ZERO, Run::spent);
            let left = config.limits.max_budget_usd.map(NanoUsd::from_usd);
            let left = left.map(|max| max.saturating_sub(spent));
            self.purse = match (left, &config.budget) {
                (Some(left), Some(budget)) => Some(budget.part(left)),
                (Some(left), None) => Some(SharedBudget::new(left)),
                (None, budget) => budget.clone(),
            };
        }
        self.purse.clone()
    }

    fn consult(&mut self, id: EffectId, point: ConsultPoint) {
        let config = &self.shared.config;
        let (hooks, approver) = (config.hooks.clone(), config.approver.clone());
        let (name, what) = whose(&point);
        self.ask(id, name, what, async move {
            let answer = answer(&hooks, approver.as_deref(), point).await;
            EventKind::Answered { id, answer }
        });
    }

    /// Asks on a task of its own: the answer may take its time, or never come.
    fn ask(
        &mut self,
        id: EffectId,
        name: &'static str,
        what: &'static str,
        question: impl Future<Output = EventKind> + Send + 'static,
    ) {
        let question = self.trace.of_run(question);
        let task = self.tasks.spawn(self.shared.tasks.track_future(question));
        self.task_of.insert(task.id(), Work::Question { id, name, what });
        self.asked.insert(id, task);
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
        // What it spends is booked as what a tool spends is.
        let context = self.context(String::new());
        self.tools.insert(id, context.clone());
        let config = &self.shared.config;
        let used = self.run.as_ref().map_or(0, |run| run.usage().total_tokens());
        let means = Means {
            provider: Arc::clone(&config.provider),
            price: config.price,
            tokens_left: config.limits.max_tokens.map(|max| max.saturating_sub(used)),
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
        self.ask(id, "compaction", "the compactor", async move {
            EventKind::Compacted { id, result: compactor.compact(request).await }
        });
    }

    /// A tool or a question ended.
    fn joined(&mut self, joined: Result<(Id, EventKind), JoinError>) -> EventKind {
        let (task, result) = match joined {
            Ok((task, event)) => (task, Ok(event)),
            Err(error) => (error.id(), Err(error)),
        };
        let work = self.task_of.remove(&task);
        let mut waited = true;
        match &work {
            Some(Work::Tool { id, .. }) => {
                if let Some(context) = self.tools.remove(id) {
                    self.book(context.take_spent());
                }
            }
            Some(Work::Question { id, .. }) => {
                waited = self.asked.remove(id).is_some();
                if let Some(context) = self.tools.remove(id) {
                    self.book(context.take_spent());
                }
            }
            None => {}
        }
        let provider = &*self.shared.config.provider;
        match (result, work) {
            (Ok(event), _) => event,
            // The question was taken down: what becomes of it is nobody's concern.
            (Err(_), Some(Work::Question { .. }) | None) if !waited => EventKind::Tick,
            // A tool that panics fails as the documentation says: the run ends, once.
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

    fn tell(&mut self, event: AgentEvent) {
        if let Err(panicked) = self.shared.tell(&event) {
            self.queue.push_back(panicked.into());
        }
        if self.sink.is_open() {
            self.sink.send(event);
        }
    }

    fn tell_delta(&mut self, delta: &TurnDelta) {
        let heard = self.sink.is_open() || !self.shared.config.observers.is_empty();
        if heard {
            self.tell(AgentEvent::Delta(DeltaEvent::new(delta.clone())));
        }
    }

    /// Stops what still runs, and gives the outcome.
    async fn finish(&mut self, mut outcome: Outcome) {
        self.close();
        self.timer = None;
        for context in self.tools.values() {
            context.stop_now();
        }
        for task in self.asked.values() {
            task.abort();
        }
        if !self.tasks.is_empty() {
            // Tools that were told to stop end their processes; those that do not are dropped,
            // and with them what they hold.
            let grace = if outcome.termination == Termination::Terminated {
                Duration::ZERO
            } else {
                LAST_WAIT
            };
            let ended = async { while self.tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(grace, ended).await;
            self.tasks.abort_all();
            let dropped = async {
                while self.tasks.join_next().await.is_some() {}
                // A run within one of them was terminated with it, and ends in its own time.
                for context in self.tools.values() {
                    context.aftermath().await;
                }
            };
            let _ = tokio::time::timeout(LAST_WAIT, dropped).await;
        }
        let now = self.now();
        // What they said to have spent until then is a part of what the run cost.
        for spent in self.tools.values().filter_map(ToolContext::take_spent) {
            let Spent { usage, cost, cost_unknown } = spent;
            outcome.add_spent(&usage, cost, cost_unknown);
            if let Some(recorder) = &mut self.recorder {
                let event = Event::new(now, EventKind::Spent { usage, cost, cost_unknown });
                recorder.keep(&event, &[], None);
            }
        }
        self.give(outcome, true);
    }

    /// Lets go of the provider.
    fn close(&mut self) {
        self.hang_up();
        let (session, provider) = (self.session.take(), &*self.shared.config.provider);
        // A panic of it cannot change the ending any more.
        let _ = in_provider(provider, || drop(session));
    }

    /// Gives the outcome: to the loop, to the observers, to whoever waits.
    fn give(&mut self, outcome: Outcome, whole: bool) {
        self.finished = true;
        // Before anybody hears of the ending: who does may close what the spans go to.
        self.trace.ended(&outcome);
        let reserved: Vec<EffectId> = self.reserved.keys().copied().collect();
        for id in reserved {
            self.settle(id, NanoUsd::ZERO);
        }
        if let Some(recorder) = self.recorder.as_mut().filter(|_| whole) {
            recorder.ended(&outcome);
            self.tell_problem();
        }
        let event = AgentEvent::Ended(Arc::new(outcome.clone()));
        // An observer that panics on the last event cannot change the ending any more.
        let _ = self.shared.tell(&event);
        self.shared.finished(self.number, Some(&outcome).filter(|_| whole));
        self.ending.write(outcome);
        self.sink.send(event);
    }
}

impl Drop for Driver {
    /// The task was aborted, or the runtime went down: the run ends all the same.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let terminated = self.shared.token.is_cancelled();
        let event = if terminated {
            EventKind::Terminate
        } else {
            let message = "the run's task was dropped before it ended".to_owned();
            EventKind::Fault { name: "driver".to_owned(), message }
        };
        self.book_running();
        let at = self.now();
        let event = Event::new(at, event);
        let before = self.recorder.as_mut().and_then(|recorder| recorder.before(&event));
        let run = self.run.take();
        let mut effects = Vec::new();
        let outcome = run.and_then(|run| match run.handle(event, &mut effects) {
            Step::Ended(outcome) => Some(*outcome),
            Step::Continue(_) => None,
        });
        if let Some(recorder) = self.recorder.as_mut().filter(|_| outcome.is_some()) {
            recorder.after(before, &effects, true);
        }
        // What a call that was cut has cost is no gift to whoever shares the budget.
        for effect in effects {
            if let Effect::Settle { id, spent } = effect {
                self.settle(id, spent);
            }
        }
        self.close();
        match outcome {
            Some(outcome) => self.give(outcome, true),
            // The kernel went with its task: the conversation stays as it was before the run.
            None => self.give(lost(terminated, at), false),
        }
    }
}

fn requested(request: Request) -> EventKind {
    match request {
        Request::Cancel => EventKind::Cancel,
        Request::Terminate => EventKind::Terminate,
    }
}

/// Runs code of the provider's.
fn in_provider<T>(provider: &dyn Provider, code: impl FnOnce() -> T) -> Result<T, Panicked> {
    user_code::guard(provider, "provider", "the provider", code)
}

async fn run_tool(tool: Arc<dyn Tool>, start: ToolStart, context: ToolContext) -> EventKind {
    let id = start.id;
    // The last look before it starts: a token made after a terminate is born cancelled.
    if context.is_cancelled() {
        let mut report = ToolReport::new(ToolStatus::Aborted, "aborted before it started");
        report.started = false;
        return EventKind::ToolEnded { tool: id, report };
    }
    let ToolOutput { content, is_error, halt, pinned } =
        tool.call(start.arguments, context.clone()).await;
    let status = if context.is_cancelled() && is_error {
        ToolStatus::Aborted
    } else if is_error {
        ToolStatus::Error
    } else {
        ToolStatus::Ok
    };
    let (variables, metrics) = context.take_values();
    EventKind::ToolEnded {
        tool: id,
        report: ToolReport { status, content, halt, started: true, pinned, variables, metrics },
    }
}
