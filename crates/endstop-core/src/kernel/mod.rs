//! The kernel: a pure state machine that takes events, returns effects, and ends every run
//! exactly once.
//!
//! ```
//! use endstop_core::{Confidence, Effect, Event, EventKind, Message, MessageId, ModelTurn, Part,
//!     Role, Run, RunSpec, SignalReason, Step, Termination, TerminationSignal};
//! use std::time::Duration;
//!
//! let question = Message::text(MessageId(1), Role::User, "What is the capital of France?");
//! let run = Run::new(RunSpec::new(vec![question]));
//! let mut effects = Vec::new();
//!
//! let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
//! let Step::Continue(run) = run.handle(Event::new(Duration::ZERO, start), &mut effects) else {
//!     panic!("it has not called the model yet")
//! };
//! let call = effects.iter().find_map(|effect| match effect {
//!     Effect::CallModel { id, .. } => Some(*id),
//!     _ => None,
//! }).unwrap();
//!
//! // The driver calls the model and tells what came back.
//! let signal = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High);
//! let turn = ModelTurn::new(vec![Part::Text { text: "Paris.".into() }], signal);
//! let event = EventKind::TurnEnded { call, turn: Box::new(turn) };
//! let Step::Ended(outcome) = run.handle(Event::new(Duration::from_millis(700), event), &mut effects)
//! else { panic!("an answer ends the run") };
//! assert_eq!(outcome.termination, Termination::Stop);
//! assert_eq!(outcome.last_text.as_deref(), Some("Paris."));
//! ```
//!
//! [`Run::handle`] takes the run by value and gives it back only while it goes on: once it has
//! ended there is nothing left to feed.

mod boundary;
mod compaction;
mod effect;
mod ending;
mod event;
mod finish;
mod jitter;
mod ledger;
mod lost_call;
mod outcome;
mod progress;
mod quote;
mod resume;
mod spec;
mod tools;
mod turn;
mod watch;

pub use boundary::{CheckState, PRE_TURN, PreTurnCheck};
pub use effect::{ConsultPoint, ConversationSize, Effect, EffectId, RunEvent, ToolStart};
pub use event::{Answer, Compaction, Event, EventKind, Resumption, ToolReport, TurnDelta};
pub use outcome::{
    CompactionAttempt, DecidedBy, NoProgressSnapshot, Outcome, RepeatedCall, Unsuccessful, WouldFit,
};
pub use spec::{CompactionSpec, Hooks, Permission, ProactiveCompaction, RunSpec, ToolSpec};
pub use watch::{Fired, Watch, WatchMode};

use crate::error_class::{ErrorClass, ModelError};
use crate::limits::Limits;
use crate::message::{Message, MessageId, Role};
use crate::policy::{StepContext, TerminationPolicy};
use crate::signal::TerminationSignal;
use crate::state::MultiTurnState;
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};
use compaction::Compactions;
use jitter::Jitter;
use ledger::{Ceiling, Granted, Ledger};
use outcome::Ending;
use progress::Progress;
use serde_json::{Map, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tools::OpenCalls;
use watch::Watchers;

/// A run that goes on.
///
/// Its `Debug` prints all that decides what it does next, the conversation included, and its
/// policy by name: two runs that print the same, and whose policies are in the same state, are the
/// same.
#[derive(Debug)]
#[must_use = "a run that is dropped has no outcome"]
pub struct Run(Box<Inner>);

/// What a model call may generate and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallQuote {
    /// The caller's own output cap, at most what the model can generate; `None`: the provider's own.
    pub own_cap: Option<u64>,
    /// The output cap that was sent.
    pub output_cap: Option<u64>,
    /// The limit that lowered it below the caller's own, if one did: `max_budget_usd`, `max_tokens` or
    /// `shared_budget`.
    pub lowered_by: Option<&'static str>,
    /// An upper bound on the tokens of the prompt.
    pub prompt_bound: u64,
    /// The most that the call can cost, if it was quoted.
    pub worst: Option<NanoUsd>,
}

/// What became of a run.
#[must_use]
pub enum Step {
    /// It goes on; perform the effects.
    Continue(Run),
    /// It has ended; perform the effects (they only stop things), then nothing.
    Ended(Box<Outcome>),
}

/// Either go on, or end so.
type Flow = Result<(), Box<Ending>>;

#[derive(Debug)]
struct Inner {
    limits: Limits,
    policy: Option<Box<dyn TerminationPolicy>>,
    watchers: Watchers,
    tools: Vec<ToolSpec>,
    finish_tool: bool,
    hooks: Hooks,
    output_schema: bool,
    compaction: CompactionSpec,
    /// The user's message that the run began with.
    asked: Option<MessageId>,
    context_window: Option<u64>,
    prompt_overhead: u64,
    thinking_budget: u64,
    reserve: bool,
    shared_budget: bool,
    streaming: bool,
    nudge: bool,
    model: Option<String>,
    provider: Option<String>,
    run_id: Option<String>,

    state: MultiTurnState,
    context: StepContext,
    phase: Phase,
    now: Duration,
    armed: Option<Duration>,
    next_effect: u64,
    jitter: Jitter,
    ledger: Ledger,
    progress: Progress,

    output_cap: Option<u64>,
    max_output: Option<u64>,
    turns: u32,
    tool_turns: u32,
    model_calls: u32,
    tool_calls: u32,
    /// Attempts at the turn that is under way.
    attempt: u32,
    /// Retries of the turn that is under way, when the first of its failures came, and how long
    /// its retries have waited together.
    retries: u32,
    failed_since: Option<Duration>,
    waited: Duration,
    /// The next failure of the call is answered with another, as it goes on after an ending.
    call_again: bool,
    compactions: Compactions,
    starved_this_turn: bool,
    mistakes: u32,
    empties: u32,
    pauses: u32,
    continuations: u32,
    repairs: u32,
    vetoes: u32,
    /// The answer so far, if the turns before this one were cut and continued, or paused.
    partial: String,
    /// Turns in a row whose tool call got lost on its way.
    lost_calls: u32,
    /// `finish` was refused because a call next to it had failed; the next one is accepted.
    finish_refused: bool,
    last_text: Option<String>,
    last_signal: Option<TerminationSignal>,
    answered_model: Option<String>,
    /// Bytes of the messages, and how many of them are counted.
    counted: (u64, usize),
    /// Tokens of the last prompt and its answer, and how many messages they cover.
    known_prompt: Option<(u64, usize)>,
}

#[derive(Debug)]
enum Phase {
    New,
    Consulting { id: EffectId, point: Point },
    Reserving { id: EffectId },
    Calling(Call),
    Backoff { until: Duration },
    Tools(OpenCalls),
    Compacting { id: EffectId, forced: bool, before: ConversationSize },
    Validating { id: EffectId, success: Box<Ending> },
    Stopping { ending: Box<Ending>, calls: OpenCalls, until: Duration },
}

#[derive(Debug)]
enum Point {
    Prompt,
    PreIteration,
    ChatParams,
    Stop(Box<Ending>),
    Reply(Box<Ending>),
}

#[derive(Debug)]
struct Call {
    id: EffectId,
    started: Duration,
    /// When the last content came; `None` before the first.
    last_content: Option<Duration>,
    text: String,
    /// The policy stopped, and was held back until the turn is whole.
    held: bool,
    /// Characters generated that are no visible text.
    hidden: u64,
    /// The caller's own output cap, before any ceiling.
    own_cap: Option<u64>,
    /// The output cap that was sent.
    cap: Option<u64>,
    /// The ceiling that lowered it below the caller's own.
    lowered_by: Option<Ceiling>,
    quote: Option<NanoUsd>,
    reservation: Option<EffectId>,
    prompt_bound: u64,
}

/// A clock that runs while a model call is under way.
#[derive(Clone, Copy, Debug)]
struct CallClock {
    /// The limit, as configuration spells it.
    name: &'static str,
    since: Duration,
    limit: Duration,
}

impl CallClock {
    fn deadline(self) -> Duration {
        self.since.saturating_add(self.limit)
    }
}

impl Call {
    /// The clocks that run now. A stall can only be seen between two pieces of content, because a
    /// model that thinks without streaming its thoughts is silent before the first.
    fn clocks(&self, limits: &Limits, streaming: bool) -> [Option<CallClock>; 2] {
        let clock = |name, since, limit: Option<Duration>| {
            limit.map(|limit| CallClock { name, since, limit })
        };
        let content = match self.last_content {
            _ if !streaming => None,
            Some(last) => clock("stall_timeout", last, limits.stall_timeout),
            None => clock("first_content_timeout", self.started, limits.first_content_timeout),
        };
        [clock("turn_timeout", self.started, limits.turn_timeout), content]
    }
}

impl Run {
    /// A run that has not started; its first event is [`EventKind::Start`].
    pub fn new(spec: RunSpec) -> Run {
        let asked = spec.messages.last().filter(|last| last.role == Role::User);
        let asked = asked.map(|last| last.id);
        let mut state = MultiTurnState::new(spec.messages, spec.epoch);
        state.iteration_limit = spec.limits.max_turns;
        let ledger = Ledger {
            max_usd: spec.limits.max_budget_usd.map(NanoUsd::from_usd),
            max_tokens: spec.limits.max_tokens,
            reserves: spec.reserve,
            ..Ledger::default()
        };
        Run(Box::new(Inner {
            policy: spec.policy,
            watchers: Watchers::new(spec.watches),
            tools: spec.tools,
            finish_tool: spec.finish_tool,
            hooks: spec.hooks,
            output_schema: spec.output_schema,
            compaction: spec.compaction,
            asked,
            context_window: spec.context_window,
            prompt_overhead: spec.prompt_overhead,
            thinking_budget: spec.thinking_budget,
            reserve: spec.reserve,
            shared_budget: spec.shared_budget,
            streaming: spec.streaming,
            nudge: spec.nudge,
            model: spec.model,
            provider: spec.provider,
            run_id: spec.run_id,
            state,
            context: StepContext {
                task: spec.task,
                step: 0,
                variables: spec.variables,
                metrics: Map::new(),
                cost_usd: None,
                somebody_spoke: false,
            },
            phase: Phase::New,
            now: Duration::ZERO,
            armed: None,
            next_effect: 1,
            jitter: Jitter::default(),
            ledger,
            progress: Progress::default(),
            output_cap: spec.output_cap,
            max_output: spec.max_output,
            turns: 0,
            tool_turns: 0,
            model_calls: 0,
            tool_calls: 0,
            attempt: 0,
            retries: 0,
            failed_since: None,
            waited: Duration::ZERO,
            call_again: false,
            compactions: Compactions::default(),
            starved_this_turn: false,
            mistakes: 0,
            empties: 0,
            pauses: 0,
            continuations: 0,
            repairs: 0,
            vetoes: 0,
            partial: String::new(),
            lost_calls: 0,
            finish_refused: false,
            last_text: None,
            last_signal: None,
            answered_model: None,
            counted: (0, 0),
            known_prompt: None,
            limits: spec.limits,
        }))
    }

    /// Takes an event, appends what is to be done to `effects`, and says whether the run goes on.
    pub fn handle(mut self, event: Event, effects: &mut Vec<Effect>) -> Step {
        let inner = &mut *self.0;
        inner.now = inner.now.max(event.at);
        match inner.on(event.kind, effects) {
            Ok(()) => {
                inner.arm(effects);
                Step::Continue(self)
            }
            Err(ending) => Step::Ended(Box::new(self.0.conclude(*ending, effects))),
        }
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.0.state.messages
    }

    /// The conversation's epoch: messages of another must be encoded anew.
    pub fn epoch(&self) -> u64 {
        self.0.state.epoch
    }

    /// The run over its turns.
    pub fn state(&self) -> &MultiTurnState {
        &self.0.state
    }

    /// What was spent so far, by what the provider reported or, where it did not, an estimate.
    pub fn spent(&self) -> NanoUsd {
        self.0.ledger.spent
    }

    /// What counts against the ceiling on cost: what was spent, and what attempts that the provider did
    /// not count may have cost beyond that.
    pub fn committed(&self) -> NanoUsd {
        self.0.ledger.committed()
    }

    /// What counts against the ceiling on tokens.
    pub fn committed_tokens(&self) -> u64 {
        self.0.ledger.committed_tokens()
    }

    /// What attempts that the provider did not count may have used, on top of what is known.
    pub fn unreported(&self) -> Unreported {
        self.0.ledger.unreported
    }

    /// What the running call may cost at most, on top of what was spent.
    pub fn reserved(&self) -> NanoUsd {
        match &self.0.phase {
            Phase::Calling(call) => call.quote.unwrap_or_default(),
            _ => NanoUsd::ZERO,
        }
    }

    /// What the running call may generate and cost; `None` if no call is under way.
    pub fn call_quote(&self) -> Option<CallQuote> {
        let Phase::Calling(call) = &self.0.phase else { return None };
        Some(CallQuote {
            own_cap: call.own_cap,
            output_cap: call.cap,
            lowered_by: call.lowered_by.map(Ceiling::name),
            prompt_bound: call.prompt_bound,
            worst: call.quote,
        })
    }

    /// What all attempts used so far.
    pub fn usage(&self) -> &Usage {
        &self.0.ledger.usage
    }

    /// Turns so far: responses that were kept.
    pub fn turns(&self) -> u32 {
        self.0.turns
    }

    /// The rules that fired so far among those that watch the run.
    pub fn fired(&self) -> &[Fired] {
        self.0.watchers.fired()
    }

    /// The limits before a turn, and how near to each the run is.
    pub fn checks(&self) -> Vec<CheckState> {
        PRE_TURN.into_iter().map(|check| self.0.check_state(check)).collect()
    }

    /// Time since the run began, as of the last event.
    pub fn elapsed(&self) -> Duration {
        self.0.now
    }

    /// The phase that the run is in, for tests and diagnostics.
    pub fn phase(&self) -> &'static str {
        match &self.0.phase {
            Phase::New => "new",
            Phase::Consulting { point, .. } => match point {
                Point::Prompt => "consulting_prompt",
                Point::PreIteration => "consulting_pre_iteration",
                Point::ChatParams => "consulting_chat_params",
                Point::Stop(_) => "consulting_stop",
                Point::Reply(_) => "consulting_reply",
            },
            Phase::Reserving { .. } => "reserving",
            Phase::Calling(_) => "calling",
            Phase::Backoff { .. } => "backoff",
            Phase::Tools(_) => "tools",
            Phase::Compacting { .. } => "compacting",
            Phase::Validating { .. } => "validating",
            Phase::Stopping { .. } => "stopping",
        }
    }
}

impl Inner {
    fn on(&mut self, event: EventKind, fx: &mut Vec<Effect>) -> Flow {
        match event {
            EventKind::Terminate => return Err(self.terminated()),
            EventKind::Cancel => return self.cancel(fx),
            EventKind::Fault { name, message } => return Err(self.faulted(name, message)),
            // It was spent, whatever becomes of the run.
            EventKind::Spent { usage, cost, cost_unknown, unreported } => {
                let more = unreported.unwrap_or(Unreported::of_unknown(cost_unknown));
                self.ledger.book(&usage, cost, cost_unknown, more);
                return Ok(());
            }
            // Before the deadlines, which may be others from here on.
            EventKind::Resumed(with) => return self.resumed(*with, fx),
            _ => {}
        }
        // So was this, also where it comes too late.
        if let EventKind::Compacted { id, result: Compaction::Done { cost, .. } } = &event {
            self.book_compaction(*id, *cost, fx);
        }
        // Deadlines pre-empt; what ended on the very instant was still in time, and an answer that
        // was there in time is judged to its end.
        if let Some(deadline) = self.limits.timeout {
            let late = match event {
                EventKind::Start { .. } | EventKind::Validated { .. } => false,
                EventKind::TurnEnded { .. }
                | EventKind::ToolEnded { .. }
                | EventKind::Observe { .. } => self.now > deadline,
                EventKind::Answered { .. } if !self.leads_to_a_call() => self.now > deadline,
                _ => self.now >= deadline,
            };
            if late && !matches!(self.phase, Phase::New | Phase::Stopping { .. }) {
                let ending = Ending::new(
                    Termination::ErrorTimeout,
                    "limit",
                    "timeout",
                    format!("the run took {:?} of {deadline:?}", self.shown_time()),
                );
                self.stop(ending, fx)?;
                // The tools have yet to end; what came now may be one of them.
                return self.on_stopping(&event, fx);
            }
        }
        match event {
            EventKind::Start { seed, price, wall_ms } => self.start(seed, price, wall_ms, fx),
            EventKind::Delta { call, delta } => self.delta(call, delta, fx),
            EventKind::TurnEnded { call, turn } => match self.take_call(call) {
                Some(call) => self.turn_ended(&call, *turn, fx),
                None => Ok(()),
            },
            EventKind::TurnFailed { call, error, partial } => match self.take_call(call) {
                Some(call) => self.turn_failed(&call, &error, partial.as_deref(), fx),
                None => Ok(()),
            },
            EventKind::ToolEnded { .. } => match self.phase {
                Phase::Stopping { .. } => self.on_stopping(&event, fx),
                _ => self.tool_ended(event, fx),
            },
            EventKind::Answered { id, answer } => self.answered(id, answer, fx),
            EventKind::Compacted { id, result } => self.compacted(id, result, fx),
            EventKind::Validated { id, result } => self.validated(id, result, fx),
            EventKind::Reserved { id, granted, granted_tokens } => {
                self.reserved(id, Granted { usd: granted, tokens: granted_tokens }, fx)
            }
            EventKind::Observe { variables, metrics } => {
                self.context.variables.extend(variables);
                self.context.metrics.extend(metrics);
                Ok(())
            }
            EventKind::Tick => self.tick(fx),
            EventKind::Cancel
            | EventKind::Terminate
            | EventKind::Fault { .. }
            | EventKind::Spent { .. }
            | EventKind::Resumed(_) => Ok(()),
        }
    }

    /// The time since the start, to the millisecond.
    fn shown_time(&self) -> Duration {
        let ms = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(ms)
    }

    /// The next answer lets a model call be made, as far as the question goes.
    fn leads_to_a_call(&self) -> bool {
        matches!(
            self.phase,
            Phase::Consulting { point: Point::PreIteration | Point::ChatParams, .. }
        )
    }

    fn start(
        &mut self,
        seed: u64,
        price: Option<crate::usage::Price>,
        wall_ms: Option<u64>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        if !matches!(self.phase, Phase::New) {
            return Ok(());
        }
        self.jitter = Jitter(seed);
        self.ledger.price = price;
        self.state.started_wall_ms = wall_ms;
        if let Some(policy) = &mut self.policy {
            guarded(policy.name().to_owned(), || policy.reset())?;
        }
        if self.hooks.prompt {
            self.consult(Point::Prompt, ConsultPoint::Prompt, fx);
            return Ok(());
        }
        self.before_turn(fx)
    }

    /// A deadline may have come: of the call, the backoff, a tool, or the stopping.
    fn tick(&mut self, fx: &mut Vec<Effect>) -> Flow {
        if self.armed.is_some_and(|at| at <= self.now) {
            self.armed = None;
        }
        match &mut self.phase {
            Phase::Calling(call) => {
                let now = self.now;
                let clocks = call.clocks(&self.limits, self.streaming);
                let mut clocks = clocks.into_iter().flatten();
                let Some(clock) = clocks.find(|clock| clock.deadline() <= now) else {
                    return Ok(());
                };
                let CallClock { name: clock, limit, .. } = clock;
                let id = call.id;
                fx.push(Effect::AbortModel { id });
                let error = ModelError::new(
                    ErrorClass::Timeout,
                    format!(
                        "{clock}: the model call brought no {} within {limit:?}",
                        if clock == "turn_timeout" { "end" } else { "content" }
                    ),
                );
                match self.take_call(id) {
                    Some(call) => self.turn_failed(&call, &error, None, fx),
                    None => Ok(()),
                }
            }
            Phase::Backoff { until } if *until <= self.now => self.before_call(fx),
            Phase::Tools(_) => self.tools_tick(fx),
            Phase::Stopping { until, .. } if *until <= self.now => {
                self.on_stopping(&EventKind::Tick, fx)
            }
            _ => Ok(()),
        }
    }

    /// Asks for a tick at the next deadline, where that is sooner than the one asked for.
    fn arm(&mut self, fx: &mut Vec<Effect>) {
        let run = self.limits.timeout;
        let phase = match &self.phase {
            Phase::Calling(call) => {
                let clocks = call.clocks(&self.limits, self.streaming);
                clocks.into_iter().flatten().map(CallClock::deadline).min()
            }
            Phase::Backoff { until } | Phase::Stopping { until, .. } => Some(*until),
            Phase::Tools(calls) => calls.next_deadline(),
            _ => None,
        };
        let next = match &self.phase {
            Phase::New => None,
            Phase::Stopping { .. } => phase,
            _ => earliest(run, phase),
        };
        let sooner = next.filter(|at| self.armed.is_none_or(|armed| *at < armed));
        if let Some(at) = sooner {
            self.armed = Some(at);
            fx.push(Effect::WakeAt { at });
        }
    }

    fn effect_id(&mut self) -> EffectId {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        id
    }

    fn consult(&mut self, point: Point, ask: ConsultPoint, fx: &mut Vec<Effect>) {
        let id = self.effect_id();
        self.phase = Phase::Consulting { id, point };
        fx.push(Effect::Consult { id, point: ask });
    }

    fn take_call(&mut self, id: EffectId) -> Option<Call> {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Calling(call) if call.id == id => Some(call),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Moves the stream; the kernel's own path through its phases only makes allowed moves, and
    /// a move that is not allowed is an abort, never a panic.
    fn stream(&mut self, to: StreamingState) {
        if self.state.streaming != to && self.state.streaming.transition(to).is_err() {
            self.state.streaming.abort();
        }
    }

    fn variables(&mut self, variables: Map<String, Value>, metrics: Map<String, Value>) {
        self.context.variables.extend(variables);
        self.context.metrics.extend(metrics);
    }
}

fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Runs user code; a panic becomes the run's ending.
fn guarded<T>(name: String, code: impl FnOnce() -> T) -> Result<T, Box<Ending>> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| {
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        fault(name, format!("panicked: {message}"))
    })
}

fn fault(name: impl Into<String>, message: String) -> Box<Ending> {
    Ending::new(Termination::ErrorDuringExecution, "fault", name, message.clone())
        .diagnostic(message)
}
