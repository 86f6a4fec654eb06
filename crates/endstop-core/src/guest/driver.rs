//! A guest's run, driven by one call for each step of its client, and its answers to the driver.

use super::recording::{Recorded, Recording};
use crate::error_class::ModelError;
use crate::kernel::{
    BudgetAccount, Effect, EffectId, Event, EventKind, GuestCall, NestedEnding, Outcome, Pause,
    Resumption, Run, RunSpec, Spending, Step, ToolReport, TurnDelta,
};
use crate::limits::Limits;
use crate::limits::Window;
use crate::message::{ModelTurn, ToolCall};
use crate::price::Price;
use crate::usage::NanoUsd;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A run whose loop belongs to another program. See the [module](super) for an example.
///
/// Every time is measured since the start of the run. After the end, each call returns the same
/// outcome.
pub struct Guest {
    state: State,
    effects: Vec<Effect>,
    wake: Option<Duration>,
    recording: Option<Recording>,
}

enum State {
    Running(Run),
    Ended(Arc<Outcome>),
    /// The kernel has the run. Remains only if the kernel panicked.
    Lost,
}

/// Prints the phase and the counts, but no content: a conversation may contain secrets.
impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guest");
        match &self.state {
            State::Running(run) => {
                debug.field("phase", &run.phase().as_str()).field("turns", &run.turns());
            }
            State::Ended(outcome) => {
                let Outcome { termination, turns, .. } = &**outcome;
                debug.field("termination", &termination.as_str()).field("turns", turns);
            }
            State::Lost => {
                debug.field("phase", &"lost");
            }
        }
        debug.finish_non_exhaustive()
    }
}

impl Guest {
    /// Starts a run at time zero. A specification without [`RunSpec::guest`] gets the default mode,
    /// in which the guest can only observe and stop.
    pub fn new(mut spec: RunSpec, start: GuestStart) -> Guest {
        spec.guest.get_or_insert_default();
        let GuestStart { seed, price, wall_ms, record } = start;
        let mut guest = Guest {
            state: State::Running(Run::new(spec)),
            effects: Vec::new(),
            wake: None,
            recording: record.then(Recording::default),
        };
        guest.feed(Duration::ZERO, EventKind::Start { seed, price, wall_ms });
        guest
    }

    /// Starts the run of a driver that is gone again, from the events that
    /// [`take_events`](Guest::take_events) gave it. The events of the new run begin with these.
    pub fn again(mut spec: RunSpec, events: Vec<Event>) -> Guest {
        spec.guest.get_or_insert_default();
        let mut guest = Guest {
            state: State::Running(Run::new(spec)),
            effects: Vec::new(),
            wake: None,
            recording: Some(Recording::default()),
        };
        for event in events {
            guest.handle(event, false);
        }
        guest.effects.clear();
        guest
    }

    /// Reports that the client is about to call the model. The call may be made only if the answer
    /// is [`Admission::Go`].
    pub fn ask(&mut self, at: Duration, call: GuestCall) -> Admission {
        self.feed(at, EventKind::Asked { call: Box::new(call) });
        self.admission_or_fault(at)
    }

    /// Reports the answer of the shared budget to [`Admission::Reserve`]. Less than the minimum is a
    /// refusal, and `refused_by` the account that refused. `granted_tokens` is `None` if the budget
    /// has no token ceiling.
    pub fn reserved(
        &mut self,
        at: Duration,
        id: EffectId,
        granted: NanoUsd,
        granted_tokens: Option<u64>,
        refused_by: Option<BudgetAccount>,
    ) -> Admission {
        self.feed(at, EventKind::Reserved { id, granted, granted_tokens, refused_by });
        self.admission_or_fault(at)
    }

    /// Reports streamed content of a call. A policy, or the ceiling of a call that is metered, may
    /// end the run in the middle of the response.
    pub fn delta(&mut self, at: Duration, call: EffectId, delta: TurnDelta) -> GuestReply {
        self.feed(at, EventKind::Delta { call, delta });
        self.reply()
    }

    /// Reports the response of a call.
    pub fn turn(&mut self, at: Duration, call: EffectId, turn: ModelTurn) -> GuestReply {
        self.feed(at, EventKind::TurnEnded { call, turn: Box::new(turn) });
        self.reply()
    }

    /// Reports that a call ended without a complete response. The client may retry it.
    pub fn failed(
        &mut self,
        at: Duration,
        call: EffectId,
        error: ModelError,
        partial: Option<Box<ModelTurn>>,
    ) -> GuestReply {
        self.feed(at, EventKind::TurnFailed { call, error, partial });
        self.reply()
    }

    /// Reports the result of a tool call, by the provider's id of the call. A result of a call that
    /// is not open is ignored.
    pub fn result(&mut self, at: Duration, call_id: &str, report: ToolReport) -> GuestReply {
        let tool = self.run().and_then(|run| run.open_tool(call_id));
        // Even if the call is not open: the effects of the call before must not be read as those of
        // this one.
        self.effects.clear();
        if let Some(tool) = tool {
            self.feed(at, EventKind::ToolEnded { tool, report });
        }
        self.reply()
    }

    /// Reports the spending of a nested run. It also counts after the end of this run.
    pub fn spent(&mut self, at: Duration, spending: Spending) -> GuestReply {
        self.feed(at, EventKind::Spent(spending));
        self.reply()
    }

    /// Reports the use of a subscription's windows.
    pub fn windows(&mut self, at: Duration, windows: Vec<Window>) -> GuestReply {
        self.feed(at, EventKind::Windows { windows });
        self.reply()
    }

    /// Reports that the process did not run for this time before now. The timeouts of a call in progress do not include it,
    /// because nothing of its response could be received.
    pub fn suspended(&mut self, at: Duration, time: Duration) -> GuestReply {
        self.feed(at, EventKind::Suspended { time });
        self.reply()
    }

    /// Returns the pause that the client's next call must wait for, for a window or a rate. Ask before each
    /// call ([`GuestMode::waits`](super::GuestMode::waits)).
    pub fn pause(&self, at: Duration) -> Option<Pause> {
        self.run().and_then(|run| run.pause(at))
    }

    /// Reports named values and measurements for policies.
    pub fn observe(
        &mut self,
        at: Duration,
        variables: Map<String, Value>,
        metrics: Map<String, Value>,
    ) -> GuestReply {
        self.feed(at, EventKind::Observe { variables, metrics });
        self.reply()
    }

    /// Reports that the time of [`wake_at`](Guest::wake_at) has come.
    pub fn tick(&mut self, at: Duration) -> GuestReply {
        // The kernel asks for another wake-up only if there is one, so the one that came must not
        // stay.
        if self.wake.is_some_and(|wake| wake <= at) {
            self.wake = None;
        }
        self.feed(at, EventKind::Tick);
        self.reply()
    }

    /// Changes the limits of a run that continues. What was spent so far counts against the new
    /// limits.
    pub fn limits(&mut self, at: Duration, limits: Limits) -> GuestReply {
        let change = Resumption { limits: Some(limits), ..Resumption::default() };
        self.feed(at, EventKind::Resumed(Box::new(change)));
        self.reply()
    }

    /// Cancels the run. A guest that stops tools itself
    /// ([`GuestMode::clocks`](super::GuestMode::clocks)) has a grace period for them; any other run
    /// ends at once.
    pub fn cancel(&mut self, at: Duration) -> GuestReply {
        self.feed(at, EventKind::Cancel);
        self.reply()
    }

    /// Reports that user code of the driver failed, for example a policy that is not written in
    /// Rust. `name` is the failed component. Ends the run.
    pub fn fault(
        &mut self,
        at: Duration,
        name: impl Into<String>,
        message: impl Into<String>,
    ) -> Arc<Outcome> {
        let (name, message) = (name.into(), message.into());
        self.finish(at, EventKind::Fault { name, message })
    }

    /// Terminates the run.
    pub fn terminate(&mut self, at: Duration) -> Arc<Outcome> {
        self.finish(at, EventKind::Terminate)
    }

    /// Reports that the loop is gone: the framework returned, or the process exited. `ok` is `false`
    /// if it ended with an error, described by `detail`.
    ///
    /// The ending of the last response becomes final if `ok`. A loop that ends with an error, or
    /// with an open call, is never a success.
    pub fn close(&mut self, at: Duration, ok: bool, detail: impl Into<String>) -> Arc<Outcome> {
        self.finish(at, EventKind::Closed { ok, detail: detail.into(), ended_as: None })
    }

    /// Reports that the loop is gone, and that a nested run decided how it ends. If `ok` is `false`,
    /// a success of that run does not count.
    pub fn close_as(
        &mut self,
        at: Duration,
        ok: bool,
        detail: impl Into<String>,
        ended_as: NestedEnding,
    ) -> Arc<Outcome> {
        let ended_as = Some(Box::new(ended_as));
        self.finish(at, EventKind::Closed { ok, detail: detail.into(), ended_as })
    }

    /// Returns the run, unless it has ended.
    pub fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Running(run) => Some(run),
            State::Ended(_) | State::Lost => None,
        }
    }

    /// Returns the outcome, if the run has ended.
    pub fn outcome(&self) -> Option<&Arc<Outcome>> {
        match &self.state {
            State::Ended(outcome) => Some(outcome),
            State::Running(_) | State::Lost => None,
        }
    }

    /// Returns what the run has spent so far, with the reported spending of nested runs.
    pub fn spending(&self) -> Spending {
        match &self.state {
            State::Running(run) => Spending {
                usage: run.usage().clone(),
                cost: run.spent(),
                cost_unknown: run.cost_unknown(),
                unreported: Some(run.unreported()),
                turns: run.turns(),
                calls: run.model_calls(),
                tool_calls: run.started_calls(),
            },
            State::Ended(outcome) => Spending {
                usage: outcome.usage.clone(),
                cost: outcome.cost,
                cost_unknown: outcome.cost_unknown,
                unreported: Some(outcome.unreported()),
                turns: outcome.turns,
                calls: outcome.model_calls,
                tool_calls: outcome.tool_calls,
            },
            State::Lost => Spending::default(),
        }
    }

    /// Returns the time at which [`tick`](Guest::tick) must be called, if any.
    pub fn wake_at(&self) -> Option<Duration> {
        self.wake.filter(|_| self.run().is_some())
    }

    /// Returns the effects of the last call, in order: among others the events for observers, the
    /// messages to add to the next request (only with [`GuestMode::inject`](super::GuestMode)), and
    /// what a shared budget must settle.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// Takes the events since the last call of this method. Replaying all of them gives the same
    /// outcome. Empty unless [`GuestStart::record`] is set.
    pub fn take_events(&mut self) -> Vec<Recorded> {
        let ended = self.run().is_none();
        self.recording.as_mut().map(|recording| recording.take(ended)).unwrap_or_default()
    }

    /// Feeds an event.
    fn feed(&mut self, at: Duration, kind: EventKind) {
        self.handle(Event::new(at, kind), false);
    }

    /// Feeds the last event of the run.
    fn finish(&mut self, at: Duration, kind: EventKind) -> Arc<Outcome> {
        self.handle(Event::new(at, kind), true);
        match &self.state {
            State::Ended(outcome) => Arc::clone(outcome),
            State::Running(_) | State::Lost => self.after_panic(),
        }
    }

    fn handle(&mut self, event: Event, last: bool) {
        self.effects.clear();
        // Left behind if the kernel panics, so that no later call uses half a run.
        let run = match std::mem::replace(&mut self.state, State::Lost) {
            State::Running(run) => run,
            State::Ended(outcome) => return self.after_end(outcome, &event),
            State::Lost => return,
        };
        let before = self.recording.as_mut().map(|recording| recording.before(&event));
        let step = if last {
            Step::Ended(run.finish(event, &mut self.effects))
        } else {
            run.handle(event, &mut self.effects)
        };
        self.state = match step {
            Step::Continue(run) => State::Running(run),
            Step::Ended(outcome) => State::Ended(Arc::from(outcome)),
        };
        if let (Some(recording), Some(before)) = (&mut self.recording, before) {
            recording.after(before, &self.effects, matches!(self.state, State::Ended(_)));
        }
        let mut wakes = self.effects.iter().rev().filter_map(|effect| match effect {
            Effect::WakeAt { at } => Some(*at),
            _ => None,
        });
        // The last request counts, because it replaces the earlier ones.
        self.wake = wakes.next().or(self.wake);
    }

    /// Adds the spending of a nested run that outlived this run; any other event comes too late.
    fn after_end(&mut self, mut outcome: Arc<Outcome>, event: &Event) {
        if let EventKind::Spent(spent) = &event.kind {
            Arc::make_mut(&mut outcome).add_spent(spent);
            if let Some(recording) = &mut self.recording {
                let before = recording.before(event);
                recording.after(before, &[], true);
            }
        }
        self.state = State::Ended(outcome);
    }

    /// Ends a run that the kernel lost in a panic, so that every call has an answer.
    fn after_panic(&mut self) -> Arc<Outcome> {
        let (name, message) = ("driver".to_owned(), "the kernel panicked".to_owned());
        let fault = Event::new(Duration::ZERO, EventKind::Fault { name, message });
        // A run without history, because nothing of the lost one can be trusted.
        let outcome = Run::new(RunSpec::default()).finish(fault, &mut Vec::new());
        let outcome: Arc<Outcome> = Arc::from(outcome);
        self.state = State::Ended(Arc::clone(&outcome));
        outcome
    }

    /// The ending, if there is one.
    fn stopped(&mut self) -> Option<Arc<Outcome>> {
        match &self.state {
            State::Running(_) => None,
            State::Ended(outcome) => Some(Arc::clone(outcome)),
            State::Lost => Some(self.after_panic()),
        }
    }

    /// The call or the reservation that the run requested.
    fn admission(&self) -> Option<Admission> {
        self.effects.iter().find_map(|effect| match *effect {
            Effect::CallModel { id: call, turn, attempt, output_cap } => {
                Some(Admission::Go { call, turn, attempt, output_cap })
            }
            Effect::Reserve { id, want, least, want_tokens, least_tokens } => {
                Some(Admission::Reserve { id, want, least, want_tokens, least_tokens })
            }
            _ => None,
        })
    }

    fn admission_or_fault(&mut self, at: Duration) -> Admission {
        if let Some(outcome) = self.stopped() {
            return Admission::Stop(outcome);
        }
        // A guest's run answers every call that is asked for. A late answer of a budget has none,
        // and must not be read as an admission.
        let message = "a reservation was answered that is not outstanding".to_owned();
        self.admission().unwrap_or_else(|| {
            let fault = EventKind::Fault { name: "driver".to_owned(), message };
            Admission::Stop(self.finish(at, fault))
        })
    }

    fn reply(&mut self) -> GuestReply {
        if let Some(outcome) = self.stopped() {
            return GuestReply::Stop(outcome);
        }
        if let Some(again) = self.admission() {
            return GuestReply::Again(again);
        }
        let released = self.effects.iter().find_map(|effect| match effect {
            Effect::StartTools { calls } => {
                Some(calls.iter().map(|start| Arc::clone(&start.call)).collect())
            }
            _ => None,
        });
        released.map_or(GuestReply::Continue, GuestReply::Tools)
    }
}

/// The values that only the driver knows when a run starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestStart {
    /// Seed of the jitter of retry waits; used only with [`GuestMode::retry`](super::GuestMode).
    pub seed: u64,
    /// Price of calls that have none of their own; `None`: their cost is unknown.
    pub price: Option<Price>,
    /// Wall clock in Unix milliseconds, for display.
    pub wall_ms: Option<u64>,
    /// `true` to keep the events for a journal, see [`Guest::take_events`](super::Guest::take_events).
    pub record: bool,
}

/// The answer to a model call that the client is about to make.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the client may call the model only if it was admitted"]
pub enum Admission {
    /// The client may make the call.
    Go {
        /// Id of the call, for its deltas and its response.
        call: EffectId,
        /// The turn that the call is for, from 1.
        turn: u32,
        /// The attempt at that turn, from 1.
        attempt: u32,
        /// The output cap to send. Differs from the client's own only with
        /// [`GuestMode::capped`](super::GuestMode).
        output_cap: Option<u64>,
    },
    /// The shared budget must be asked first; answer with
    /// [`Guest::reserved`](super::Guest::reserved).
    Reserve {
        /// Id of the reservation.
        id: EffectId,
        /// Requested amount.
        want: NanoUsd,
        /// Minimum amount for a useful call.
        least: NanoUsd,
        /// Requested number of tokens.
        want_tokens: u64,
        /// Minimum number of tokens for a useful call.
        least_tokens: u64,
    },
    /// The run has ended: the call must not be made.
    Stop(Arc<Outcome>),
}

/// The answer to anything else that the driver reports.
#[derive(Clone, Debug, PartialEq)]
pub enum GuestReply {
    /// Nothing to do. After a response: it has no calls that may run. It is an answer, or it has a
    /// defect; [`Run::provisional`](crate::Run::provisional) has the ending that it gives.
    Continue,
    /// The client may run these calls, and no others of the response.
    Tools(Vec<Arc<ToolCall>>),
    /// The kernel repeats the model call; only with [`GuestMode::retry`](super::GuestMode).
    Again(Admission),
    /// The run has ended: a call in progress must be aborted.
    Stop(Arc<Outcome>),
}
