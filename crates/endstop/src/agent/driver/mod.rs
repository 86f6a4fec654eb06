//! Drives one run of the kernel on tokio: performs its effects and feeds the resulting events back.
//!
//! The driver makes no decisions. Its parts own the model call, the tools and the open questions, and return what
//! became of them as events. Dropping it (because its task is aborted, or the runtime shuts down) stops all of them
//! and still delivers the run's one outcome.

mod beginning;
mod clock;
mod closing;
mod delivery;
mod model;
mod parks;
mod perform;
mod reporter;
mod reservations;
mod spending;
mod validating;
mod work;

pub(crate) use beginning::{Beginning, ResumedRun};

use super::handle::approvals::Approvals;
use super::handle::ending::EndingCell;
use super::recorder::Recorder;
use super::session::state::SessionShared;
use super::shared::Shared;
use crate::control::{Control, Request};
use crate::event::queue::EventSink;
use crate::event::{AgentEventKind, RunPlace};
use crate::provider::CallEvent;
use crate::schema::OutputSchema;
use crate::telemetry::Trace;
use beginning::{First, Opening, Start};
use clock::{Clock, wake_interval};
use delivery::Delivery;
use endstop_core::guest::Spending;
use endstop_core::{
    Effect, EffectId, ErrorClass, Event, EventKind, Limits, ModelError, Outcome, ParkRequest, Run,
    RunPhase, Step, TurnDelta,
};
use model::{Model, Polled, failed, in_provider};
use parks::Parks;
use reporter::{Queue, Reporter};
use reservations::Reservations;
use spending::Outer;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use work::{Ended, Work};

/// The stop requests of a run.
struct Stops {
    control: Control,
    /// The last one that the kernel has got.
    delivered: Option<Request>,
}

impl Stops {
    /// Returns a request that the kernel has not got.
    fn poll(&mut self, waker: &Waker) -> Option<EventKind> {
        let request = self.control.poll(self.delivered, waker)?;
        self.delivered = Some(request);
        Some(requested(request))
    }

    /// Same as [`poll`](Self::poll), without a later wake.
    fn take(&mut self) -> Option<EventKind> {
        let request = self.control.pending(self.delivered)?;
        self.delivered = Some(request);
        Some(requested(request))
    }

    fn is_pending(&self) -> bool {
        self.control.pending(self.delivered).is_some()
    }
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    run: Option<Run>,
    start: Start,
    stops: Stops,
    model: Model,
    work: Work,
    reservations: Reservations,
    reporter: Reporter,
    clock: Clock,
    delivery: Delivery,
    approvals: Approvals,
    trace: Trace,
    queue: Queue,
    /// The schema of the run's answer.
    schema: Option<Arc<OutputSchema>>,
    /// Boxed so that a run without a journal uses less memory.
    recorder: Option<Box<Recorder>>,
    /// The parks of the run, if it has any. Boxed, because few runs have.
    parks: Option<Box<Parks>>,
    /// The tool call of another run on whose behalf this run works.
    outer: Option<Box<Outer>>,
}

impl Driver {
    pub(crate) fn new(
        owner: Arc<SessionShared>,
        number: u64,
        control: Control,
        ending: EndingCell,
        sink: EventSink,
        approvals: Approvals,
        beginning: Beginning,
    ) -> Driver {
        let shared = Arc::clone(&owner.agent);
        let began = Instant::now();
        let opening = Opening::of(beginning, &owner);
        let outer = owner.outer.clone();
        let reporter = Reporter::new(
            &opening.named,
            outer.as_ref(),
            sink,
            opening.hooks,
            Arc::clone(&shared),
            control.clone(),
        );
        Driver {
            shared,
            run: opening.run,
            start: opening.start,
            stops: Stops { control, delivered: None },
            model: opening.model,
            work: Work::default(),
            reservations: Reservations::default(),
            reporter,
            clock: Clock::new(began, opening.earlier),
            delivery: Delivery::new(owner, number, ending, opening.input),
            approvals,
            trace: opening.trace,
            queue: opening.faults,
            schema: opening.schema,
            recorder: opening.recorder,
            parks: opening.parks,
            outer: outer.map(|context| Box::new(Outer::new(context))),
        }
    }

    /// Returns the run that the events name.
    pub(crate) fn place(&self) -> &Arc<RunPlace> {
        self.reporter.place()
    }

    /// Drives the run until it ends.
    #[expect(
        clippy::manual_async_fn,
        reason = "the task of an `async fn` holds its argument twice: as passed, and as the variable"
    )]
    pub(crate) fn drive(mut self) -> impl Future<Output = ()> + Send {
        async move {
            let prepared = match self.start.first.take() {
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
                    self.clock.set_idle(polled.is_pending());
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

    /// Begins the journal, or performs the pending effects of a resumed run. Breaks with the outcome of a
    /// run that had ended, and continues with `true` if the run starts.
    async fn prepare(&mut self, first: First) -> ControlFlow<Box<Outcome>, bool> {
        match first {
            First::Record(header) => {
                let config = &self.shared.config;
                let keys = in_provider(&*config.provider, || config.known_keys());
                match (keys, &config.journal) {
                    (Ok(keys), Some(journal)) => {
                        // The values of the run's headers are secrets as well.
                        let keys = keys.and(&header.keys);
                        let recorder = Recorder::begin(Arc::clone(journal), header, keys);
                        self.recorder = Some(Box::new(recorder));
                        self.recorded().await;
                        self.report_problem();
                    }
                    // Without the credentials the journal cannot be redacted, so nothing is
                    // written.
                    (Err(panicked), _) => self.queue.push_back(panicked.into()),
                    (Ok(_), None) => {}
                }
                ControlFlow::Continue(true)
            }
            First::Perform(effects, ended) => {
                self.report_problem();
                // Pending settlements are already part of the run's earlier spending.
                for effect in effects {
                    if !matches!(effect, Effect::Settle { .. }) {
                        self.perform(effect);
                    }
                }
                if let Some(outcome) = ended {
                    return ControlFlow::Break(outcome);
                }
                let phase = self.run.as_ref().map(Run::phase);
                ControlFlow::Continue(phase == Some(RunPhase::New))
            }
        }
    }

    /// Returns the first event that the kernel gets. A run that was resumed has none if it does not start.
    fn first_event(&mut self, starts: bool) -> Option<EventKind> {
        // A cancel or terminate from before the start takes precedence over it.
        if let Some(request) = self.stops.control.pending(None) {
            return Some(requested(request));
        }
        // A run whose tools or provider cannot be opened ends before its first call.
        if let Some(EventKind::Fault { .. }) = self.queue.front() {
            return self.queue.pop_front();
        }
        let config = &self.shared.config;
        // The seed of the waits between attempts.
        let seed = || config.seed.or_else(|| config.provider.seed());
        starts.then(|| EventKind::Start {
            seed: seed().unwrap_or_else(|| crate::clock::seed(self.delivery.number())),
            price: self.start.price.take().map(|price| *price),
            wall_ms: Some(crate::clock::wall_ms()),
        })
    }

    /// Waits until the records are on disk. A stop of the run ends the wait, because nothing new
    /// starts after a stop.
    async fn recorded(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        let control = &self.stops.control;
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
        self.model.is_calling().then(|| wake_interval(self.limits()))?
    }

    fn report(&mut self, kind: impl FnOnce() -> AgentEventKind) {
        self.reporter.report(&mut self.queue, kind);
    }

    /// Reports a failure of the journal, once.
    fn report_problem(&mut self) {
        if let Some(problem) = self.recorder.as_mut().and_then(|recorder| recorder.problem()) {
            self.report(|| AgentEventKind::Warning { message: problem });
        }
    }

    /// Polls for the next event: stop requests first, then the work in progress.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<EventKind> {
        if let Some(event) = self.stops.poll(cx.waker()) {
            return Poll::Ready(event);
        }
        let news = self.stops.control.take_news();
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
        if let Some(event) = self.clock.poll(interval, cx) {
            return Poll::Ready(event);
        }
        if let Some(joined) = self.work.poll(cx) {
            let provider = &*self.shared.config.provider;
            let ended = self.work.ended(provider, &mut self.trace, joined);
            let event = self.worked(ended);
            // A request that arrived in the meantime precedes the result, because it may have
            // caused it: a tool that fails because it was stopped must not count as failed.
            if let Some(request) = self.stops.take() {
                self.queue.push_front(event);
                return Poll::Ready(request);
            }
            return Poll::Ready(event);
        }
        let config = &self.shared.config;
        match self.model.poll(config, &self.stops.control, &self.trace, cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Polled::Item(id, item)) => match self.called(id, item) {
                // A stop request takes precedence over the failure.
                fault @ EventKind::Fault { .. } => self.queue.push_back(fault),
                event => return Poll::Ready(event),
            },
            Poll::Ready(Polled::Stopped) => {
                self.trace.aborted();
                self.hang_up();
            }
            Poll::Ready(Polled::Panicked(panicked)) => {
                self.trace.call_panicked();
                self.queue.push_back(panicked.into());
                self.hang_up();
            }
        }
        self.poll_next(cx)
    }

    /// Drops the model call.
    fn hang_up(&mut self) {
        self.queue.extend(self.model.hang_up(&self.shared.config));
    }

    /// Converts an item of the provider's stream into an event.
    fn called(&mut self, call: EffectId, item: Option<CallEvent>) -> EventKind {
        let Driver { reporter, queue, .. } = self;
        let delta = match item {
            Some(CallEvent::Delta(delta)) => {
                reporter.report_delta(queue, &delta);
                delta
            }
            Some(CallEvent::Reasoning(text)) => {
                let delta = TurnDelta::Reasoning(chars(&text));
                reporter.report(queue, || AgentEventKind::ReasoningDelta { text });
                delta
            }
            Some(CallEvent::Refusal(text)) => {
                let delta = TurnDelta::Reasoning(chars(&text));
                reporter.report(queue, || AgentEventKind::RefusalDelta { text });
                delta
            }
            Some(CallEvent::ToolCallStarted { index, id, name }) => {
                let delta = TurnDelta::ToolArguments(chars(&name));
                reporter.report_call(queue, index, &id, name);
                delta
            }
            Some(CallEvent::ToolArguments { index, json }) => {
                let delta = TurnDelta::ToolArguments(chars(&json));
                reporter.report_arguments(queue, index, json);
                delta
            }
            Some(CallEvent::Windows(windows)) => return EventKind::Windows { windows },
            Some(CallEvent::Ended(response)) => {
                self.hang_up();
                return self.model.ended(&self.shared.config, &mut self.trace, call, *response);
            }
            Some(CallEvent::Failed(error, partial)) => {
                self.hang_up();
                let price = || self.model.price(&self.shared.config);
                return failed(&mut self.trace, call, error, partial, price);
            }
            None => {
                self.hang_up();
                let why = "the provider's stream closed without its end";
                let error = ModelError::new(ErrorClass::IncompleteStream, why);
                return failed(&mut self.trace, call, error, None, || None);
            }
        };
        EventKind::Delta { call, delta }
    }

    /// Books what ended work has spent, and returns its event.
    fn worked(&mut self, Ended { spent, event }: Ended) -> EventKind {
        self.book(spent);
        if let EventKind::Parked { request } = event {
            self.parks.get_or_insert_default().request = Some(request);
            return EventKind::Tick;
        }
        event
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
                self.report_problem();
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
        let idle = !self.model.is_calling() && self.work.is_idle() && self.queue.is_empty();
        let stops = &self.stops;
        self.parks.as_mut()?.request.take_if(|_| {
            // A message that waits enters the journal first. From then on none is accepted, because
            // nothing would read it.
            idle && !stops.is_pending() && stops.control.close_empty_mailbox()
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
        let event = Event::new(self.clock.now(), event);
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
        self.report_spending();
        if let Some(recorder) = &mut self.recorder {
            recorder.after(before, &effects, outcome.is_some());
        }
        if let Some(outcome) = &mut outcome {
            self.keep_letters(outcome);
        }
        (outcome, effects)
    }

    /// Books what running tools have spent on models of their own, so that the kernel knows of it
    /// before it decides.
    fn book_running(&mut self) {
        for spent in self.work.take_spent() {
            self.book(Some(spent));
        }
    }

    fn book(&mut self, spent: Option<Spending>) {
        let Some(spent) = spent else { return };
        let Some(run) = self.run.take() else { return };
        // The turns of a nested agent have a limit of their own.
        let event = Event::new(self.clock.now(), EventKind::Spent(spent));
        // Stored with the next event, or by `spent`.
        if let Some(recorder) = &mut self.recorder {
            recorder.add(&event);
        }
        // `Spent` never ends a run and requests no effects.
        if let Step::Continue(run) = run.handle(event, &mut Vec::new()) {
            self.run = Some(run);
        }
        self.report_spending();
    }

    /// Books spending that a running tool has reported, and journals it at once: the next event of
    /// this run may be an hour away, and a crash until then must not lose it.
    fn spent(&mut self) {
        self.book_running();
        if let Some(recorder) = &mut self.recorder {
            recorder.write();
            self.report_problem();
        }
    }

    /// Reports the spending since the last report to the run that this one works for.
    fn report_spending(&mut self) {
        if let (Some(outer), Some(run)) = (&mut self.outer, &self.run) {
            outer.report(run);
        }
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
