//! The kernel: a pure state machine that turns events into effects and ends every run exactly once.
//!
//! Read this file first. The kernel does no I/O and reads no clock. A *driver* (the agent loop, a
//! replay, a test) owns a [`Run`], performs the [`Effect`]s that the run requests, and reports each
//! result as an [`Event`]:
//!
//! ```text
//!           Event (time, kind)                      Effect (id)
//! driver ─────────────────────► Run::handle ─────────────────────► driver
//!                                    │
//!                                    └─► Step::Ended(Outcome), once
//! ```
//!
//! A run moves through these phases; steps with a question mark depend on the configuration. Every
//! phase waits for one kind of event, and any phase can end the run:
//!
//! ```text
//! Start ─► boundary.rs: limits ─► compaction? ─► hooks? ─► reservation? ─► Calling
//!             ▲                                                              │ TurnEnded
//!             │                                        no calls: the answer ◄┼► calls
//!             │                                  schema ─► stop hook ─► end  │
//!             └──────────── results appended to the conversation ◄── Tools ◄─┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `event.rs`, `effect.rs` | the two vocabularies, input and output |
//! | `spec.rs`, `outcome.rs` | what a run is configured with, and what it returns |
//! | `boundary.rs` | checks before a turn, in a fixed order, and the model call |
//! | `turn.rs` | evaluation of a response: accept, retry, repair, continue or end |
//! | `tools.rs`, `finish.rs` | tool calls of a turn, and the `finish` tool |
//! | `lost_call.rs`, `jitter.rs` | detection of lost tool calls, and retry waits |
//! | `ledger.rs`, `quote.rs` | cost, reservations and output caps |
//! | `watch.rs`, `progress.rs` | rules that watch the run, and no-progress detection |
//! | `compaction.rs` | when the conversation is shortened, and which result is accepted |
//! | `resume.rs`, `ending.rs` | resume after a crash; cancel, stop and the outcome |
//!
//! A complete run with one call:
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
//!     panic!("the run waits for the model")
//! };
//! let call = effects.iter().find_map(|effect| match effect {
//!     Effect::CallModel { id, .. } => Some(*id),
//!     _ => None,
//! }).unwrap();
//!
//! // The driver calls the model and reports the response.
//! let signal = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High);
//! let turn = ModelTurn::new(vec![Part::Text { text: "Paris.".into() }], signal);
//! let event = EventKind::TurnEnded { call, turn: Box::new(turn) };
//! let Step::Ended(outcome) = run.handle(Event::new(Duration::from_millis(700), event), &mut effects)
//! else { panic!("an answer ends the run") };
//! assert_eq!(outcome.termination, Termination::Stop);
//! assert_eq!(outcome.last_text.as_deref(), Some("Paris."));
//! ```
//!
//! [`Run::handle`] takes the run by value and returns it only while the run is alive. A driver
//! that sends an event to an ended run therefore does not compile.

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

/// A run that has not ended.
///
/// `Debug` prints everything that determines the next decision, including the conversation, and the
/// policy by name. Two runs that print the same text, with policies in the same state, behave the
/// same; the search over interleavings uses this to merge equal states.
#[derive(Debug)]
#[must_use = "a run that is dropped has no outcome"]
pub struct Run(Box<Inner>);

/// The output cap and the worst-case cost of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallQuote {
    /// The caller's output cap, limited to what the model can generate; `None`: the provider's
    /// default.
    pub own_cap: Option<u64>,
    /// The output cap that was sent.
    pub output_cap: Option<u64>,
    /// The limit that lowered the cap below the caller's, if any: `max_budget_usd`, `max_tokens` or
    /// `shared_budget`.
    pub lowered_by: Option<&'static str>,
    /// An upper bound on the tokens of the prompt.
    pub prompt_bound: u64,
    /// The worst-case cost of the call, if it was computed.
    pub worst: Option<NanoUsd>,
}

/// The result of handling an event.
#[must_use]
pub enum Step {
    /// The run continues; perform the effects.
    Continue(Run),
    /// The run has ended; perform the effects (they only stop work in progress), and nothing after
    /// that.
    Ended(Box<Outcome>),
}

/// `Ok` if the run continues, `Err` with the decided ending if it ends. An ending travels as an
/// error so that `?` leaves every nested step at once.
type Flow = Result<(), Box<Ending>>;

/// The state of a run. Boxed in [`Run`], so that passing the run by value moves one pointer.
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
    /// The user message that started the run. A compaction must keep it.
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
    // Both on the run's own clock. `armed` is the tick that the driver was last asked for.
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
    /// Attempts at the current turn.
    attempt: u32,
    /// Retries of the current turn, the time of its first failure, and the sum of its retry waits.
    retries: u32,
    failed_since: Option<Duration>,
    waited: Duration,
    /// The next failure of the call is answered with one more attempt, because the run was resumed
    /// after that call had ended it.
    call_again: bool,
    compactions: Compactions,
    starved_this_turn: bool,
    mistakes: u32,
    empties: u32,
    pauses: u32,
    continuations: u32,
    repairs: u32,
    vetoes: u32,
    /// The answer so far, if earlier turns were truncated and continued, or paused.
    partial: String,
    /// Consecutive turns whose tool call was lost in transit.
    lost_calls: u32,
    /// `finish` was refused because another call of the same turn had failed; the next one is
    /// accepted.
    finish_refused: bool,
    last_text: Option<String>,
    last_signal: Option<TerminationSignal>,
    answered_model: Option<String>,
    /// Total bytes of the messages counted so far, and the number of those messages. A cache:
    /// summing the whole conversation before each call would be quadratic over a run.
    counted: (u64, usize),
    /// Tokens of the last prompt and its answer as the provider counted them, and the number of
    /// messages that they cover.
    known_prompt: Option<(u64, usize)>,
}

/// The phase of a run, with the data that only this phase needs. An event that does not fit the
/// phase (a late answer, a second answer) is ignored.
#[derive(Debug)]
enum Phase {
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
enum Point {
    Prompt,
    PreIteration,
    ChatParams,
    Stop(Box<Ending>),
    Reply(Box<Ending>),
}

/// The model call in progress.
#[derive(Debug)]
struct Call {
    id: EffectId,
    started: Duration,
    /// Time of the last content; `None` before the first.
    last_content: Option<Duration>,
    text: String,
    /// The policy requested a stop mid-stream, but the stop had to wait for the complete turn.
    held: bool,
    /// Number of generated characters that are not visible text (reasoning, tool arguments).
    hidden: u64,
    /// The caller's output cap, before any ceiling.
    own_cap: Option<u64>,
    /// The output cap that was sent.
    cap: Option<u64>,
    /// The ceiling that lowered the cap below the caller's.
    lowered_by: Option<Ceiling>,
    quote: Option<NanoUsd>,
    reservation: Option<EffectId>,
    prompt_bound: u64,
}

/// A timeout that applies to the current model call.
#[derive(Clone, Copy, Debug)]
struct CallClock {
    /// The limit's name as configuration spells it.
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
    /// Returns the timeouts that apply now. A stall is only detectable between two pieces of
    /// content, because a model that reasons without streaming its reasoning is silent before the
    /// first one.
    fn clocks(&self, limits: &Limits, streaming: bool) -> [Option<CallClock>; 2] {
        let clock = |name, since, limit: Option<Duration>| {
            limit.map(|limit| CallClock { name, since, limit })
        };
        let content = match self.last_content {
            // Without streaming there is no content before the end, so only `turn_timeout` applies.
            _ if !streaming => None,
            Some(last) => clock("stall_timeout", last, limits.stall_timeout),
            None => clock("first_content_timeout", self.started, limits.first_content_timeout),
        };
        [clock("turn_timeout", self.started, limits.turn_timeout), content]
    }
}

impl Run {
    /// Creates a run that has not started; the first event must be [`EventKind::Start`].
    pub fn new(spec: RunSpec) -> Run {
        // Only a user message is a task. A resumed conversation may end with a tool message.
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

    /// Handles an event and appends the resulting effects to `effects`. The returned [`Step`] holds
    /// the run if it continues, or its outcome.
    pub fn handle(mut self, event: Event, effects: &mut Vec<Effect>) -> Step {
        let inner = &mut *self.0;
        // Clamp instead of failing: events from several threads can arrive slightly out of order,
        // and time inside a run must not go backwards.
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

    /// The conversation's epoch. If it changes, a cached encoding of the messages is void.
    pub fn epoch(&self) -> u64 {
        self.0.state.epoch
    }

    /// The multi-turn state of the run.
    pub fn state(&self) -> &MultiTurnState {
        &self.0.state
    }

    /// The cost so far: as the provider reported it or, if it did not, an estimate.
    pub fn spent(&self) -> NanoUsd {
        self.0.ledger.spent
    }

    /// The amount that counts against the cost ceiling: the known cost, plus the possible cost of
    /// attempts that the provider did not count.
    pub fn committed(&self) -> NanoUsd {
        self.0.ledger.committed()
    }

    /// The number of tokens that counts against the token ceiling.
    pub fn committed_tokens(&self) -> u64 {
        self.0.ledger.committed_tokens()
    }

    /// Upper bound on the unreported usage of attempts that the provider did not count.
    pub fn unreported(&self) -> Unreported {
        self.0.ledger.unreported
    }

    /// The worst-case cost of the current call, in addition to [`spent`](Run::spent).
    pub fn reserved(&self) -> NanoUsd {
        match &self.0.phase {
            Phase::Calling(call) => call.quote.unwrap_or_default(),
            _ => NanoUsd::ZERO,
        }
    }

    /// The output cap and worst-case cost of the current call; `None` if no call is in progress.
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

    /// The usage of all attempts so far.
    pub fn usage(&self) -> &Usage {
        &self.0.ledger.usage
    }

    /// Number of turns so far, that is, of responses that were appended to the conversation.
    pub fn turns(&self) -> u32 {
        self.0.turns
    }

    /// The watch rules that fired so far.
    pub fn fired(&self) -> &[Fired] {
        self.0.watchers.fired()
    }

    /// The limits checked before each turn, each with its current value.
    pub fn checks(&self) -> Vec<CheckState> {
        PRE_TURN.into_iter().map(|check| self.0.check_state(check)).collect()
    }

    /// Time since the run began, as of the last event.
    pub fn elapsed(&self) -> Duration {
        self.0.now
    }

    /// The name of the current phase, for tests and diagnostics.
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
    /// Dispatches an event. The order of the checks here is the order of precedence.
    fn on(&mut self, event: EventKind, fx: &mut Vec<Effect>) -> Flow {
        match event {
            // The caller's commands come first, because they must work in every phase.
            EventKind::Terminate => return Err(self.terminated()),
            EventKind::Cancel => return self.cancel(fx),
            EventKind::Fault { name, message } => return Err(self.faulted(name, message)),
            // Booked in every phase, because the money is spent even if the run is ending.
            EventKind::Spent { usage, cost, cost_unknown, unreported } => {
                let more = unreported.unwrap_or(Unreported::of_unknown(cost_unknown));
                self.ledger.book(&usage, cost, cost_unknown, more);
                return Ok(());
            }
            // Before the deadline check, because the resumption may bring new limits.
            EventKind::Resumed(with) => return self.resumed(*with, fx),
            _ => {}
        }
        // A compaction's cost is also booked if its result comes too late to be used.
        if let EventKind::Compacted { id, result: Compaction::Done { cost, .. } } = &event {
            self.book_compaction(*id, *cost, fx);
        }
        // Deadlines pre-empt. A result that arrives exactly at the deadline is still in time, and
        // an answer that arrived in time is evaluated to the end: validation may finish after the
        // deadline.
        if let Some(deadline) = self.limits.timeout {
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
                    "limit",
                    "timeout",
                    format!("the run took {:?} of {deadline:?}", self.shown_time()),
                );
                self.stop(ending, fx)?;
                // The tools still have to end, and this event may be the result of one of them.
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
            // All handled above; listed so that a new event kind does not compile until it is
            // handled.
            EventKind::Cancel
            | EventKind::Terminate
            | EventKind::Fault { .. }
            | EventKind::Spent { .. }
            | EventKind::Resumed(_) => Ok(()),
        }
    }

    /// The time since the start in whole milliseconds, so that messages do not show nanoseconds.
    fn shown_time(&self) -> Duration {
        let ms = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(ms)
    }

    /// `true` if the answer to the current question leads directly to a model call.
    fn leads_to_a_call(&self) -> bool {
        matches!(
            self.phase,
            Phase::Consulting { point: Point::PreIteration | Point::ChatParams, .. }
        )
    }

    /// Starts the run: sets what only the driver knows, and asks the prompt hook.
    fn start(
        &mut self,
        seed: u64,
        price: Option<crate::usage::Price>,
        wall_ms: Option<u64>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        // A second `Start` is ignored: it would reset the budget and the jitter of a running run.
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

    /// Acts on the deadline that has passed, if any: of the call, the retry wait, a tool, or the
    /// grace period.
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
                        // `turn_timeout` bounds the whole call; the others wait for content.
                        "{clock}: the model call {} within {limit:?}",
                        if clock == "turn_timeout" { "did not end" } else { "sent no content" }
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

    /// Requests a tick for the next deadline, if it is earlier than the one already requested.
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
            fx.push(Effect::WakeAt { at });
        }
    }

    fn effect_id(&mut self) -> EffectId {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        id
    }

    /// Asks a hook or a person, and waits for the answer.
    fn consult(&mut self, point: Point, ask: ConsultPoint, fx: &mut Vec<Effect>) {
        let id = self.effect_id();
        self.phase = Phase::Consulting { id, point };
        fx.push(Effect::Consult { id, point: ask });
    }

    /// Takes the model call with this id out of the phase; `None` if it is not in progress.
    fn take_call(&mut self, id: EffectId) -> Option<Call> {
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

/// Runs user code; a panic becomes the ending of the run instead of unwinding through the driver.
fn guarded<T>(name: String, code: impl FnOnce() -> T) -> Result<T, Box<Ending>> {
    // `AssertUnwindSafe` is sound here because the policy is never used again after a panic: the
    // run ends.
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
