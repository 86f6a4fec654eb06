//! The state machine: the state of a run, its phases, and the dispatch of events.

use super::call::{Call, CallClock};
use super::compactions::Compactions;
use super::decided_by::{Decision, Layer};
use super::effect::{ConsultPoint, ConversationSize, Effect, EffectId};
use super::event::{Compaction, EventKind};
use super::guard::{Flow, guarded};
use super::jitter::Jitter;
use super::ledger::{Granted, Ledger};
use super::open_calls::{OpenCalls, earliest};
use super::outcome::Ending;
use super::progress::Progress;
use super::spec::RunSpec;
use super::watchers::Watchers;
use crate::error_class::{ErrorClass, ModelError};
use crate::message::MessageId;
use crate::policy::{StepContext, TerminationPolicy};
use crate::signal::TerminationSignal;
use crate::state::MultiTurnState;
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::Unreported;
use serde_json::{Map, Value};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// The state of a run. Boxed in [`Run`], so that passing the run by value moves one pointer.
#[derive(Debug)]
pub(super) struct Machine {
    /// The run's specification. The conversation, the policy, the watches and the variables have
    /// been moved out of it; a resumption may replace the limits, the tools and the model.
    pub(super) settings: RunSpec,
    pub(super) policy: Option<Box<dyn TerminationPolicy>>,
    pub(super) watchers: Watchers,
    /// The user message that started the run. A compaction must keep it.
    pub(super) task_message: Option<MessageId>,
    /// The caller's output cap, which a hook may change before each call.
    pub(super) output_cap: Option<u64>,

    pub(super) state: MultiTurnState,
    pub(super) context: StepContext,
    pub(super) phase: Phase,
    // Both on the run's own clock. `armed` is the tick that the driver was last asked for.
    pub(super) now: Duration,
    pub(super) armed: Option<Duration>,
    pub(super) next_effect: u64,
    pub(super) jitter: Jitter,
    pub(super) ledger: Ledger,
    pub(super) progress: Progress,
    pub(super) counts: Counts,
    pub(super) attempts: Attempts,
    pub(super) compactions: Compactions,

    /// The answer so far, if earlier turns were truncated and continued, or paused.
    pub(super) partial: String,
    pub(super) last_text: Option<String>,
    pub(super) last_signal: Option<TerminationSignal>,
    pub(super) answered_model: Option<String>,
    /// Total bytes of the messages counted so far, and the number of those messages. A cache:
    /// summing the whole conversation before each call would be quadratic over a run.
    pub(super) counted: (u64, usize),
    /// Tokens of the last prompt and its answer as the provider counted them, and the number of
    /// messages that they cover.
    pub(super) known_prompt: Option<(u64, usize)>,
}

/// What the run has counted since its start. The counters "in a row" return to zero.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) turns: u32,
    pub(super) tool_turns: u32,
    pub(super) model_calls: u32,
    pub(super) tool_calls: u32,
    /// Turns in a row whose every tool call failed.
    pub(super) mistakes: u32,
    /// Blank answers in a row.
    pub(super) empty_turns: u32,
    /// Paused turns in a row.
    pub(super) pauses: u32,
    /// Turns in a row whose tool call was lost in transit.
    pub(super) lost_calls: u32,
    pub(super) continuations: u32,
    pub(super) repairs: u32,
    pub(super) vetoes: u32,
    /// `finish` was refused because another call of the same turn had failed; the next one is
    /// accepted.
    pub(super) finish_refused: bool,
}

/// The attempts at the current turn. Each turn starts with the default.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    pub(super) attempt: u32,
    pub(super) retries: u32,
    /// Time of the first failure.
    pub(super) failed_since: Option<Duration>,
    /// Sum of the waits before retries.
    pub(super) waited: Duration,
    /// The next failure of the call is answered with one more attempt, because the run was resumed
    /// after that call had ended it.
    pub(super) call_again: bool,
    pub(super) starved_this_turn: bool,
}

/// The phase of a run, with the data that only this phase needs. An event that does not fit the
/// phase (a late answer, a second answer) is ignored.
#[derive(Debug)]
pub(super) enum Phase {
    /// Before `Start`. Also a placeholder while a handler owns the contents of another phase.
    New,
    /// Waits for a hook or a person.
    Consulting { id: EffectId, point: Point },
    /// Waits for the shared budget.
    Reserving { id: EffectId },
    /// Waits for the model.
    Calling(Call),
    /// Waits until the next attempt.
    Backoff { until: Duration },
    /// Waits for the tools of a turn.
    Tools(OpenCalls),
    /// Waits for a shorter conversation.
    Compacting { id: EffectId, forced: bool, before: ConversationSize },
    /// Waits for the validation of a success against the schema.
    Validating { id: EffectId, success: Box<Ending> },
    /// Waits for running tools to end within their grace period; the ending is decided.
    Stopping { ending: Box<Ending>, calls: OpenCalls, until: Duration },
}

/// A question to a hook. A question about a success holds the ending that the hook can veto.
#[derive(Debug)]
pub(super) enum Point {
    Prompt,
    PreIteration,
    ChatParams,
    Stop(Box<Ending>),
    Reply(Box<Ending>),
}

impl Machine {
    /// Dispatches an event. The order of the checks here is the order of precedence.
    pub(super) fn handle_event(&mut self, event: EventKind, effects: &mut Vec<Effect>) -> Flow {
        match event {
            // The caller's commands come first, because they must work in every phase.
            EventKind::Terminate => return Break(self.terminated()),
            EventKind::Cancel => return self.cancel(effects),
            EventKind::Fault { name, message } => return Break(self.faulted(name, message)),
            // Booked in every phase, because the money is spent even if the run is ending.
            EventKind::Spent { usage, cost, cost_unknown, unreported } => {
                let more = unreported.unwrap_or(Unreported::of_unknown(cost_unknown));
                self.ledger.book(&usage, cost, cost_unknown, more);
                return Continue(());
            }
            // Before the deadline check, because the resumption may bring new limits.
            EventKind::Resumed(with) => return self.resumed(*with, effects),
            _ => {}
        }
        // A compaction's cost is also booked if its result comes too late to be used.
        if let EventKind::Compacted { id, result: Compaction::Done { cost, .. } } = &event {
            self.book_compaction(*id, *cost, effects);
        }
        // Deadlines pre-empt. A result that arrives exactly at the deadline is still in time, and
        // an answer that arrived in time is evaluated to the end: validation may finish after the
        // deadline.
        if let Some(deadline) = self.settings.limits.timeout {
            let late = match event {
                EventKind::Start { .. } | EventKind::Validated { .. } => false,
                EventKind::TurnEnded { .. }
                | EventKind::ToolEnded { .. }
                | EventKind::Observe { .. } => self.now > deadline,
                // In time at the deadline itself, unless the answer leads to a new model call,
                // because that call could not finish in time.
                EventKind::Answered { .. } if !self.leads_to_a_call() => self.now > deadline,
                _ => self.now >= deadline,
            };
            if late && !matches!(self.phase, Phase::New | Phase::Stopping { .. }) {
                let ending = Ending::new(
                    Termination::ErrorTimeout,
                    Layer::Limit,
                    Decision::Timeout,
                    format!("the run took {:?} of {deadline:?}", self.shown_time()),
                );
                self.stop(ending, effects)?;
                // The tools still have to end, and this event may be the result of one of them.
                return self.on_stopping(&event, effects);
            }
        }
        match event {
            EventKind::Start { seed, price, wall_ms } => self.start(seed, price, wall_ms, effects),
            EventKind::Delta { call, delta } => self.delta(call, delta, effects),
            EventKind::TurnEnded { call, turn } => match self.take_call(call) {
                Some(call) => self.turn_ended(&call, *turn, effects),
                None => Continue(()),
            },
            EventKind::TurnFailed { call, error, partial } => match self.take_call(call) {
                Some(call) => self.turn_failed(&call, &error, partial.as_deref(), effects),
                None => Continue(()),
            },
            EventKind::ToolEnded { .. } => match self.phase {
                Phase::Stopping { .. } => self.on_stopping(&event, effects),
                _ => self.tool_ended(event, effects),
            },
            EventKind::Answered { id, answer } => self.answered(id, answer, effects),
            EventKind::Compacted { id, result } => self.compacted(id, result, effects),
            EventKind::Validated { id, result } => self.validated(id, result, effects),
            EventKind::Reserved { id, granted, granted_tokens } => {
                self.reserved(id, Granted { usd: granted, tokens: granted_tokens }, effects)
            }
            EventKind::Observe { variables, metrics } => {
                self.context.variables.extend(variables);
                self.context.metrics.extend(metrics);
                Continue(())
            }
            EventKind::Tick => self.tick(effects),
            // All handled above; listed so that a new event kind does not compile until it is
            // handled.
            EventKind::Cancel
            | EventKind::Terminate
            | EventKind::Fault { .. }
            | EventKind::Spent { .. }
            | EventKind::Resumed(_) => Continue(()),
        }
    }

    /// The time since the start in whole milliseconds, so that messages do not show nanoseconds.
    pub(super) fn shown_time(&self) -> Duration {
        let ms = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(ms)
    }

    /// `true` if the answer to the current question leads directly to a model call.
    pub(super) fn leads_to_a_call(&self) -> bool {
        matches!(
            self.phase,
            Phase::Consulting { point: Point::PreIteration | Point::ChatParams, .. }
        )
    }

    /// Starts the run: sets what only the driver knows, and asks the prompt hook.
    pub(super) fn start(
        &mut self,
        seed: u64,
        price: Option<crate::usage::Price>,
        wall_ms: Option<u64>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        // A second `Start` is ignored: it would reset the budget and the jitter of a running run.
        if !matches!(self.phase, Phase::New) {
            return Continue(());
        }
        self.jitter = Jitter(seed);
        self.ledger.price = price;
        self.state.started_wall_ms = wall_ms;
        if let Some(policy) = &mut self.policy {
            guarded(policy.name().to_owned(), || policy.reset())?;
        }
        if self.settings.hooks.prompt {
            self.consult(Point::Prompt, ConsultPoint::Prompt, effects);
            return Continue(());
        }
        self.before_turn(effects)
    }

    /// Acts on the deadline that has passed, if any: of the call, the retry wait, a tool, or the
    /// grace period.
    pub(super) fn tick(&mut self, effects: &mut Vec<Effect>) -> Flow {
        if self.armed.is_some_and(|at| at <= self.now) {
            self.armed = None;
        }
        match &mut self.phase {
            Phase::Calling(call) => {
                let now = self.now;
                let clocks = call.clocks(&self.settings.limits, self.settings.streaming);
                let mut clocks = clocks.into_iter().flatten();
                let Some(clock) = clocks.find(|clock| clock.deadline() <= now) else {
                    return Continue(());
                };
                let CallClock { name: clock, limit, .. } = clock;
                let id = call.id;
                effects.push(Effect::AbortModel { id });
                let error = ModelError::new(
                    ErrorClass::Timeout,
                    format!(
                        // `turn_timeout` bounds the whole call; the others wait for content.
                        "{clock}: the model call {} within {limit:?}",
                        if clock == "turn_timeout" { "did not end" } else { "sent no content" }
                    ),
                );
                match self.take_call(id) {
                    Some(call) => self.turn_failed(&call, &error, None, effects),
                    None => Continue(()),
                }
            }
            Phase::Backoff { until } if *until <= self.now => self.before_call(effects),
            Phase::Tools(_) => self.tools_tick(effects),
            Phase::Stopping { until, .. } if *until <= self.now => {
                self.on_stopping(&EventKind::Tick, effects)
            }
            _ => Continue(()),
        }
    }

    /// Requests a tick for the next deadline, if it is earlier than the one already requested.
    pub(super) fn arm(&mut self, effects: &mut Vec<Effect>) {
        let run = self.settings.limits.timeout;
        let phase = match &self.phase {
            Phase::Calling(call) => {
                let clocks = call.clocks(&self.settings.limits, self.settings.streaming);
                clocks.into_iter().flatten().map(CallClock::deadline).min()
            }
            Phase::Backoff { until } | Phase::Stopping { until, .. } => Some(*until),
            Phase::Tools(calls) => calls.next_deadline(),
            _ => None,
        };
        let next = match &self.phase {
            Phase::New => None,
            // While tools are stopped, the run deadline no longer matters: the ending is already
            // decided.
            Phase::Stopping { .. } => phase,
            _ => earliest(run, phase),
        };
        // Later deadlines need no new request: the driver's tick at the earlier time re-arms the
        // timer.
        let sooner = next.filter(|at| self.armed.is_none_or(|armed| *at < armed));
        if let Some(at) = sooner {
            self.armed = Some(at);
            effects.push(Effect::WakeAt { at });
        }
    }

    pub(super) fn effect_id(&mut self) -> EffectId {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        id
    }

    /// Asks a hook or a person, and waits for the answer.
    pub(super) fn consult(&mut self, point: Point, ask: ConsultPoint, effects: &mut Vec<Effect>) {
        let id = self.effect_id();
        self.phase = Phase::Consulting { id, point };
        effects.push(Effect::Consult { id, point: ask });
    }

    /// Takes the model call with this id out of the phase; `None` if it is not in progress.
    pub(super) fn take_call(&mut self, id: EffectId) -> Option<Call> {
        // Take the phase out to own its contents; put it back if the call is not the one that we
        // wait for.
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Calling(call) if call.id == id => Some(call),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Moves the streaming state machine. The kernel's own transitions are all allowed; if one were
    /// not, the stream is aborted instead of panicking, because a diagnostic state must not end a
    /// run.
    pub(super) fn stream(&mut self, to: StreamingState) {
        if self.state.streaming != to && self.state.streaming.transition(to).is_err() {
            self.state.streaming.abort();
        }
    }

    pub(super) fn variables(&mut self, variables: Map<String, Value>, metrics: Map<String, Value>) {
        self.context.variables.extend(variables);
        self.context.metrics.extend(metrics);
    }
}
