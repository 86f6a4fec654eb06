//! Drives one run of the kernel on tokio: performs its effects and feeds the resulting events back.
//!
//! The driver makes no decisions. It owns the model call, the tools and the open questions.
//! Dropping it (because its task is aborted, or the runtime shuts down) stops all of them and still
//! delivers the run's one outcome.

mod alarm;
mod beginning;
mod closing;
mod outer;
mod parks;
mod perform;
mod reservation;
mod spending;
mod teller;
mod telling;
mod validating;

use super::handle::approvals::Approvals;
use super::handle::ending::EndingCell;
use super::recorder::Recorder;
use super::session::state::SessionShared;
use super::shared::Shared;
use super::start::conversation::Conversation;
use super::start::run_hooks::RunHooks;
use super::start::run_setup::Opened;
use super::user_code;
use super::user_code::Panicked;
use crate::budget::SharedBudget;
use crate::control::{Control, Request};
use crate::event::{AgentEventKind, RunPlace};
use crate::journal::RunHeader;
use crate::park::ParkHistory;
use crate::provider::{
    CallEvent, CallStream, ModelParams, ModelSession, Provider, Response, SessionSpec,
};
use crate::schema::OutputSchema;
use crate::telemetry::Trace;
use crate::tool::ToolContext;
use alarm::{Alarm, wake_interval};
use endstop_core::{
    Effect, EffectId, ErrorClass, Event, EventKind, Limits, MessageId, ModelError, Outcome,
    ParkRequest, Price, Run, Step, TerminationSignal, TurnDelta,
};
use endstop_wire::redact::KnownKeys;
use outer::Outer;
use parks::Parks;
use reservation::{Due, Reservation};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use teller::Teller;
use tokio::task::{AbortHandle, Id, JoinSet, coop};
use tokio::time::Instant;

/// The work that a task performs.
enum Work {
    Tool {
        id: EffectId,
        name: String,
    },
    /// A question to a hook, an approver or a compactor.
    Question {
        id: EffectId,
        name: &'static str,
        what: &'static str,
    },
}

/// A model call in progress.
struct Call {
    id: EffectId,
    stream: CallStream,
    /// `true` once the stream was polled; the first poll sends the request.
    started: bool,
}

/// The state in which a run begins.
pub(crate) enum Beginning {
    /// A new run, with its id if the caller chose one.
    New(Conversation, Box<ModelParams>, Option<Arc<OutputSchema>>, Option<String>),
    /// A run resumed from its journal.
    Again(Box<Again>),
}

impl Beginning {
    /// Returns the values of the run's headers, which are secrets.
    pub(super) fn keys(&self) -> KnownKeys {
        match self {
            Beginning::New(_, params, _, _) => {
                KnownKeys::new(params.headers.iter().map(|(_, value)| value.expose()))
            }
            Beginning::Again(again) => again.opened.known_keys(),
        }
    }
}

/// A resumed run.
pub(crate) struct Again {
    pub(super) opened: Opened,
    pub(super) step: Step,
    pub(super) perform: Vec<Effect>,
    /// Time on the run's clock when it was interrupted.
    pub(super) at: Duration,
    pub(super) recorder: Box<Recorder>,
    /// The id of the journalled run that is resumed.
    pub(super) resumes: String,
    /// The id of the run from now on.
    pub(super) id: String,
    /// The newest message of the run's original input.
    pub(super) input: Option<MessageId>,
    /// The requests and decisions of the run so far.
    pub(super) parks: ParkHistory,
}

/// The first thing a driver does.
enum First {
    /// Start the run's record in the journal.
    Keep(Box<RunHeader>),
    /// Perform the effects that were pending at the interruption; if there is an outcome, the run
    /// has ended with it.
    Perform(Vec<Effect>, Option<Box<Outcome>>),
}

pub(crate) struct Driver {
    owner: Arc<SessionShared>,
    shared: Arc<Shared>,
    number: u64,
    control: Control,
    heard: Option<Request>,
    ending: EndingCell,
    teller: Teller,
    approvals: Approvals,
    run: Option<Run>,
    session: Option<Box<dyn ModelSession>>,
    /// The settings of that session, if the run may open another one.
    session_spec: Option<Box<SessionSpec>>,
    /// The model of that session: 0 is the agent's own, and n its n-th fallback.
    fallback: u32,
    /// The parameters of calls in addition to the conversation, if any is set.
    service: Option<Box<ModelParams>>,
    /// The schema of the run's answer.
    schema: Option<Arc<OutputSchema>>,
    /// The price of the run's own calls, until the kernel has it. Boxed, because it is large.
    price: Option<Box<Price>>,
    began: Instant,
    /// Time on the run's clock before this process resumed it.
    earlier: Duration,
    /// The newest message that existed before the model answered.
    input: Option<MessageId>,
    /// Boxed so that a run without a journal uses less memory.
    recorder: Option<Box<Recorder>>,
    beginning: Option<First>,
    trace: Trace,
    call: Option<Call>,
    /// `None` before the first of them, so that a run without tools uses less memory.
    tasks: Option<JoinSet<EventKind>>,
    /// The work of each task, to name it if it panics. A list, because few tasks run at once.
    task_of: Vec<(Id, Work)>,
    /// The tools and compactions that run. A list, because few run at once.
    tools: Vec<(EffectId, ToolContext)>,
    /// The part of the run's ceilings that the tools of this turn may spend together.
    tool_budget: Option<SharedBudget>,
    asked: BTreeMap<EffectId, AbortHandle>,
    reserved: BTreeMap<EffectId, Reservation>,
    /// Reservations that are not settled yet, if that may block.
    due: Option<Due>,
    /// The parks of the run, if it has any. Boxed, because few runs have.
    parks: Option<Box<Parks>>,
    /// The tool call of another run on whose behalf this run works.
    outer: Option<Box<Outer>>,
    /// Boxed, and only there if a hook needs it, so that a waiting run uses less memory.
    hooks: Option<Box<RunHooks>>,
    alarm: Alarm,
    queue: VecDeque<EventKind>,
    finished: bool,
}

impl Driver {
    /// Returns the run that the events name.
    pub(crate) fn place(&self) -> &Arc<RunPlace> {
        self.teller.place()
    }

    /// Drives the run until it ends.
    #[expect(
        clippy::manual_async_fn,
        reason = "the task of an `async fn` holds its argument twice: as passed, and as the variable"
    )]
    pub(crate) fn drive(mut self) -> impl Future<Output = ()> + Send {
        async move {
            let prepared = match self.beginning.take() {
                None => ControlFlow::Continue(true),
                // Boxed because its state would take up much of a waiting run's task.
                Some(first) => Box::pin(self.prepare(first)).await,
            };
            let mut outcome = match prepared {
                ControlFlow::Break(outcome) => Some(outcome),
                ControlFlow::Continue(starts) => match self.first_event(starts) {
                    Some(event) => self.feed(event).await,
                    None => None,
                },
            };
            // If the kernel is lost, no event can end the run; the `Drop` implementation does.
            while outcome.is_none() && self.run.is_some() {
                let event = std::future::poll_fn(|cx| {
                    let polled = self.poll_next(cx);
                    self.alarm.set_idle(polled.is_pending());
                    polled
                })
                .await;
                outcome = self.feed(event).await;
                if outcome.is_none()
                    && let Some(request) = self.ready_to_park()
                {
                    // Boxed for the same reason.
                    outcome = Box::pin(self.park(request)).await;
                }
            }
            if let Some(outcome) = outcome {
                // Boxed for the same reason.
                Box::pin(self.finish(*outcome)).await;
            }
        }
    }

    /// Waits until the records are on disk. A stop of the run ends the wait, because nothing new
    /// starts after a stop.
    async fn recorded(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        let control = &self.control;
        std::future::poll_fn(|cx| {
            if recorder.poll_written(cx).is_ready() || control.poll(None, cx.waker()).is_some() {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    /// Returns the limits that apply now.
    fn limits(&self) -> &Limits {
        self.run.as_ref().map_or(&self.shared.config.limits, Run::limits)
    }

    /// Returns the interval between two wakes of the timer; `None` without a model call.
    fn wake_interval(&self) -> Option<Duration> {
        self.call.as_ref().and_then(|_| wake_interval(self.limits()))
    }

    /// Returns the time on the run's clock.
    fn now(&self) -> Duration {
        self.earlier.saturating_add(self.began.elapsed())
    }

    /// Reports a failure of the journal, once.
    fn tell_problem(&mut self) {
        if let Some(problem) = self.recorder.as_mut().and_then(|recorder| recorder.problem()) {
            self.tell(|| AgentEventKind::Warning { message: problem });
        }
    }

    /// Polls for the next event: stop requests first, then the work in progress.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<EventKind> {
        if let Some(request) = self.control.poll(self.heard, cx.waker()) {
            self.heard = Some(request);
            return Poll::Ready(requested(request));
        }
        let news = self.control.take_news();
        if news.spent {
            self.spent();
        }
        if let Some(letter) = news.letter {
            return Poll::Ready(letter);
        }
        if let Some(event) = self.queue.pop_front() {
            return Poll::Ready(event);
        }
        // Before the stream of the call: content that has arrived while the process was suspended
        // must not look as if it had come in time, or too late.
        let interval = self.wake_interval();
        if let Some(event) = self.alarm.poll(interval, cx) {
            return Poll::Ready(event);
        }
        if let Some(tasks) = &mut self.tasks
            && let Poll::Ready(Some(joined)) = tasks.poll_join_next_with_id(cx)
        {
            let event = self.joined(joined);
            // A request that arrived in the meantime precedes the result, because it may have
            // caused it: a tool that fails because it was stopped must not count as failed.
            if let Some(request) = self.control.pending(self.heard) {
                self.heard = Some(request);
                self.queue.push_front(event);
                return Poll::Ready(requested(request));
            }
            return Poll::Ready(event);
        }
        if let Some(Call { id, stream, started }) = &mut self.call {
            let id = *id;
            // Give up the thread from time to time. A stream that is always ready would otherwise
            // starve the timers, and on a single-threaded runtime everything else.
            let turn = std::task::ready!(coop::poll_proceed(cx));
            let provider = &**self.shared.config.provider_of(self.fallback);
            let trace = &self.trace;
            let mut poll =
                || in_provider(provider, || trace.in_call(|| stream.as_mut().poll_next(cx)));
            let polled = if std::mem::replace(started, true) {
                poll()
            } else if let Some(polled) = self.control.start(Request::Cancel, poll) {
                polled
            } else {
                // The run was stopped before the request was sent.
                self.trace.aborted();
                self.hang_up();
                return self.poll_next(cx);
            };
            match polled {
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
                    // A stop request takes precedence over the failure.
                    return self.poll_next(cx);
                }
                Ok(Poll::Pending) => {}
            }
        }
        Poll::Pending
    }

    /// Drops the model call. Its destructor is user code and may panic.
    fn hang_up(&mut self) {
        let call = self.call.take();
        let provider = &**self.shared.config.provider_of(self.fallback);
        let gone = in_provider(provider, || drop(call));
        self.queue.extend(gone.err().map(EventKind::from));
    }

    /// Converts an item of the provider's stream into an event.
    fn called(&mut self, call: EffectId, event: Option<CallEvent>) -> EventKind {
        match event {
            Some(CallEvent::Delta(delta)) => {
                self.tell_delta(&delta);
                EventKind::Delta { call, delta }
            }
            Some(CallEvent::Reasoning(text)) => {
                let delta = TurnDelta::Reasoning(chars(&text));
                self.tell(|| AgentEventKind::ReasoningDelta { text });
                EventKind::Delta { call, delta }
            }
            Some(CallEvent::Refusal(text)) => {
                let delta = TurnDelta::Reasoning(chars(&text));
                self.tell(|| AgentEventKind::RefusalDelta { text });
                EventKind::Delta { call, delta }
            }
            Some(CallEvent::ToolCallStarted { index, id, name }) => {
                let delta = TurnDelta::ToolArguments(chars(&name));
                self.tell_call(index, &id, name);
                EventKind::Delta { call, delta }
            }
            Some(CallEvent::ToolArguments { index, json }) => {
                let delta = TurnDelta::ToolArguments(chars(&json));
                self.tell_arguments(index, json);
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
                    // A failed call is certain to have ended with an error, even if the provider
                    // gave no signal.
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
        let config = &self.shared.config;
        let (provider, strict) = (&**config.provider_of(self.fallback), config.strict_detection);
        user_code::guard(provider, "provider", "the provider's detection", || {
            crate::provider::detect(provider, response, strict)
        })
    }

    /// Feeds an event to the kernel and performs the effects. Returns the outcome if the run has
    /// ended.
    fn feed(&mut self, event: EventKind) -> impl Future<Output = Option<Box<Outcome>>> + Send {
        // Before the future, which would hold the event otherwise.
        let (outcome, effects) = self.handle(event);
        async move {
            // The event must be on disk before its other effects are performed. Otherwise a resumed
            // run would repeat them.
            if self.recorder.is_some() {
                self.recorded().await;
                self.tell_problem();
            }
            for mut effect in effects {
                if let (Effect::StartTools { calls }, Some(parks)) = (&mut effect, &self.parks)
                    && !self.is_stored()
                {
                    self.queue.extend(parks.refuse_unrecorded(calls));
                }
                self.perform(effect);
            }
            self.trace.settle();
            outcome
        }
    }

    /// Returns the request with which the run can be parked now: nothing of the run is in progress.
    fn ready_to_park(&mut self) -> Option<Box<ParkRequest>> {
        let works = self.tasks.as_ref().is_some_and(|tasks| !tasks.is_empty());
        let idle = self.call.is_none() && !works && self.queue.is_empty();
        let parks = self.parks.as_mut()?;
        let control = &self.control;
        parks.request.take_if(|_| {
            // A message that waits enters the journal first. From then on none is accepted, because
            // nothing would read it.
            idle && control.pending(self.heard).is_none() && control.close_empty_mailbox()
        })
    }

    /// `true` if every event so far is on disk, or if there is no journal.
    fn is_stored(&self) -> bool {
        self.recorder.as_ref().is_none_or(|recorder| recorder.is_stored())
    }

    /// Feeds an event to the kernel, and hands it to the journal. Performs only the effects that
    /// stop work.
    fn handle(&mut self, event: EventKind) -> (Option<Box<Outcome>>, Vec<Effect>) {
        // A list of its own, because a waiting run would hold the memory of a field. Deltas request
        // nothing, and an empty list allocates nothing. Other events request about three effects;
        // a list that grows by itself would exceed the sizes that an allocator hands out fast.
        let delta = matches!(event, EventKind::Delta { .. });
        let mut effects = if delta { Vec::new() } else { Vec::with_capacity(3) };
        // The kernel must know all spending before it decides, or it could exceed a ceiling.
        self.book_running();
        if let EventKind::ToolEnded { tool, report } = &event {
            self.trace.tool_ends(*tool, report.status);
        }
        let Some(run) = self.run.take() else { return (None, effects) };
        let event = Event::new(self.now(), event);
        let before = self.recorder.as_mut().and_then(|recorder| recorder.before(&event));
        let mut outcome = match run.handle(event, &mut effects) {
            Step::Continue(run) => {
                self.run = Some(run);
                None
            }
            Step::Ended(outcome) => Some(outcome),
        };
        // Perform stopping effects first, so that a slow journal or observer cannot delay them.
        // They are idempotent; `feed` performs them a second time, in their order.
        for effect in effects.iter().filter(|effect| stops(effect)) {
            self.perform(effect.clone());
        }
        self.report();
        if let Some(recorder) = &mut self.recorder {
            recorder.after(before, &effects, outcome.is_some());
        }
        if let Some(outcome) = &mut outcome {
            self.keep_letters(outcome);
        }
        (outcome, effects)
    }
}

/// `true` if the effect only stops work in progress.
fn stops(effect: &Effect) -> bool {
    matches!(effect, Effect::AbortModel { .. } | Effect::AbortTools { .. } | Effect::Abandon { .. })
}

/// Returns the number of characters, which is all that the kernel needs of reasoning and arguments.
fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

fn requested(request: Request) -> EventKind {
    match request {
        Request::Cancel => EventKind::Cancel,
        Request::Terminate => EventKind::Terminate,
    }
}

/// Runs code of the provider and catches its panics.
fn in_provider<T>(provider: &dyn Provider, code: impl FnOnce() -> T) -> Result<T, Panicked> {
    user_code::guard(provider, "provider", "the provider", code)
}

#[cfg(test)]
mod tests {
    use super::Driver;

    fn future_size<F>(_: impl FnOnce(Driver) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn waiting_run_holds_small_task() {
        // The state that only the end of a run needs is boxed; inside, it made the task 7 kB. The
        // driver is in the task once, which is most of it.
        let size = future_size(Driver::drive);
        let most = size_of::<Driver>() + 512;
        assert!(size <= most, "{size} bytes, of {most}");
    }
}
