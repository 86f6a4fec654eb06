//! A run as its driver sees it: feed it events, perform its effects.

use super::ceilings::ledger::Ceiling;
use super::ceilings::pause::{Pause, pause};
use super::ceilings::precheck::{CheckState, PRE_TURN};
use super::effect::{Effect, EffectId};
use super::event::Event;
use super::machine::Machine;
use super::outcome::Outcome;
use super::outcome::decided_by::DecidedBy;
use super::phase::{Phase, Point, Stage};
use super::setup::spec::RunSpec;
use super::setup::watch::RuleHit;
use super::stopping::conclude::conclude;
use super::stopping::terminated;
use crate::limits::Limits;
use crate::limits::Window;
use crate::message::Message;
use crate::price::Price;
use crate::state::MultiTurnState;
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};
use std::fmt;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// A run that has not ended.
///
/// `Debug` prints everything that determines the next decision, including the conversation, and the
/// policy by name. Two runs that print the same text, with policies in the same state, behave the
/// same; the search over interleavings uses this to merge equal states.
#[derive(Debug)]
#[must_use = "a run that is dropped has no outcome"]
pub struct Run(Box<Machine>);

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

/// The phase of a run: what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RunPhase {
    /// Before the first event.
    New,
    /// Waits for the hook that sees the prompt.
    ConsultingPrompt,
    /// Waits for the hook before a turn.
    ConsultingPreIteration,
    /// Waits for the hook before a model call.
    ConsultingChatParams,
    /// Waits for the `pre_call` hook.
    ConsultingPreCall,
    /// Waits for the hook that sees the result of a background call.
    ConsultingBackground,
    /// Waits for the stop hook.
    ConsultingStop,
    /// Waits for a reply to a text answer.
    ConsultingReply,
    /// Waits for a shared budget.
    Reserving,
    /// Waits for the model.
    Calling,
    /// Waits until the next attempt.
    Backoff,
    /// Waits for tools, or for decisions about them.
    Tools,
    /// Waits for a shorter conversation.
    Compacting,
    /// Waits for the validation of an answer.
    Validating,
    /// Waits for the verdict of the verifier.
    Verifying,
    /// Waits for background work, with an answer in text.
    Waiting,
    /// Waits for the next call of a guest, or for its end.
    Guest,
    /// Waits for the hand-over; the ending is decided.
    WrappingUp,
    /// Waits for running tools to end; the ending is decided.
    Stopping,
}

impl RunPhase {
    /// The phase's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            RunPhase::New => "new",
            RunPhase::ConsultingPrompt => "consulting_prompt",
            RunPhase::ConsultingPreIteration => "consulting_pre_iteration",
            RunPhase::ConsultingChatParams => "consulting_chat_params",
            RunPhase::ConsultingPreCall => "consulting_pre_call",
            RunPhase::ConsultingBackground => "consulting_background",
            RunPhase::ConsultingStop => "consulting_stop",
            RunPhase::ConsultingReply => "consulting_reply",
            RunPhase::Reserving => "reserving",
            RunPhase::Calling => "calling",
            RunPhase::Backoff => "backoff",
            RunPhase::Tools => "tools",
            RunPhase::Compacting => "compacting",
            RunPhase::Validating => "validating",
            RunPhase::Verifying => "verifying",
            RunPhase::Waiting => "waiting",
            RunPhase::Guest => "guest",
            RunPhase::WrappingUp => "wrapping_up",
            RunPhase::Stopping => "stopping",
        }
    }
}

impl fmt::Display for RunPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Run {
    /// Creates a run that has not started; the first event must be
    /// [`EventKind::Start`](crate::EventKind::Start).
    pub fn new(spec: RunSpec) -> Run {
        Run(Box::new(Machine::new(spec)))
    }

    /// Handles an event and appends the resulting effects to `effects`. The returned [`Step`] holds
    /// the run if it continues, or its outcome.
    pub fn handle(mut self, event: Event, effects: &mut Vec<Effect>) -> Step {
        match self.0.handle_event(event.at, event.kind, effects) {
            Continue(()) => {
                self.0.arm(effects);
                Step::Continue(self)
            }
            Break(ending) => {
                let Machine { context, phase, .. } = *self.0;
                Step::Ended(Box::new(conclude(*ending, phase, context, effects)))
            }
        }
    }

    /// Handles the last event of the run and returns the outcome. A run that would continue after
    /// the event ends as terminated.
    ///
    /// ```
    /// use endstop_core::{Event, EventKind, Run, RunSpec, Termination};
    /// let closed = EventKind::Closed { ok: true, detail: "no call was made".into(), ended_as: None };
    /// let run = Run::new(RunSpec::default());
    /// let outcome = run.finish(Event::new(Default::default(), closed), &mut Vec::new());
    /// assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    /// ```
    pub fn finish(mut self, event: Event, effects: &mut Vec<Effect>) -> Box<Outcome> {
        let ending = match self.0.handle_event(event.at, event.kind, effects) {
            Break(ending) => ending,
            Continue(()) => terminated(&mut self.0.phase, &self.0.context),
        };
        let Machine { context, phase, .. } = *self.0;
        Box::new(conclude(*ending, phase, context, effects))
    }

    /// The conversation so far.
    pub fn messages(&self) -> &[Message] {
        &self.0.context.state.messages
    }

    /// The conversation's epoch. If it changes, a cached encoding of the messages is void.
    pub fn epoch(&self) -> u64 {
        self.0.context.state.epoch
    }

    /// The multi-turn state of the run.
    pub fn state(&self) -> &MultiTurnState {
        &self.0.context.state
    }

    /// The cost so far: as the provider reported it or, if it did not, an estimate.
    pub fn spent(&self) -> NanoUsd {
        self.0.context.ledger.spent
    }

    /// `true` if [`spent`](Run::spent) is a lower bound, because the cost of a call is not known.
    pub fn cost_unknown(&self) -> bool {
        self.0.context.ledger.cost_unknown
    }

    /// The cost so far for display; `None` if no price is known.
    pub fn known_cost(&self) -> Option<NanoUsd> {
        self.0.context.known_cost()
    }

    /// The amount that counts against the cost ceiling: the known cost, plus the possible cost of
    /// attempts that the provider did not count.
    pub fn committed(&self) -> NanoUsd {
        self.0.context.ledger.committed()
    }

    /// The number of tokens that counts against the token ceiling.
    pub fn committed_tokens(&self) -> u64 {
        self.0.context.ledger.committed_tokens()
    }

    /// The number of tokens of all kinds, whatever counts against the token ceiling: as reported, plus
    /// what attempts that the provider did not count may have used.
    pub fn all_tokens(&self) -> u64 {
        self.0.context.ledger.all_tokens()
    }

    /// Upper bound on the unreported usage of attempts that the provider did not count.
    pub fn unreported(&self) -> Unreported {
        self.0.context.ledger.unreported
    }

    /// The worst-case cost of the current call, in addition to [`spent`](Run::spent).
    pub fn reserved(&self) -> NanoUsd {
        match &self.0.phase {
            Phase::Calling(call) => call.quote.unwrap_or_default(),
            Phase::WrappingUp(wrap_up) => match &wrap_up.stage {
                Stage::Calling(call) => call.quote.unwrap_or_default(),
                _ => NanoUsd::ZERO,
            },
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

    /// The number of the model in use: 0 is the run's own, and n the n-th of
    /// [`RunSpec::fallbacks`].
    pub fn fallback(&self) -> u32 {
        self.0.context.models.current
    }

    /// The price of the model in use, if known.
    pub fn price(&self) -> Option<Price> {
        self.0.context.ledger.price
    }

    /// The usage of all attempts so far.
    pub fn usage(&self) -> &Usage {
        &self.0.context.ledger.usage
    }

    /// Number of turns so far, that is, of responses that were appended to the conversation.
    pub fn turns(&self) -> u32 {
        self.0.context.counts.turns
    }

    /// Number of model calls so far: attempts, those that failed too, and those of nested runs.
    pub fn model_calls(&self) -> u32 {
        self.0.context.counts.model_calls
    }

    /// Number of tool calls that were started so far, and those of nested runs.
    pub fn started_calls(&self) -> u32 {
        self.0.context.counts.started
    }

    /// The ending that a guest's run has if its loop ends now; `None` if the last turn gave none.
    pub fn provisional(&self) -> Option<(Termination, &DecidedBy)> {
        let Phase::Guest(idle) = &self.0.phase else { return None };
        let ending = idle.provisional.as_ref()?;
        Some((ending.termination, &ending.decided_by))
    }

    /// The id under which the call with this id of the provider runs; `None` if it does not run, for
    /// example because it was answered or cut.
    pub fn open_tool(&self, call_id: &str) -> Option<EffectId> {
        match &self.0.phase {
            Phase::Tools(calls) | Phase::Stopping { calls, .. } => calls.running_id(call_id),
            _ => None,
        }
    }

    /// The watch rules that fired so far.
    pub fn fired(&self) -> &[RuleHit] {
        self.0.context.judge.rule_hits()
    }

    /// The limits checked before each turn, each with its current value.
    pub fn checks(&self) -> Vec<CheckState> {
        PRE_TURN.iter().map(|check| check.state(&self.0.context)).collect()
    }

    /// The windows of the subscription, as far as they are reported.
    pub fn windows(&self) -> &[Window] {
        self.0.context.windows.seen()
    }

    /// The pause that a call at this time would have to wait for, if the run waits for a window of its
    /// subscription or for a rate.
    pub fn pause(&self, at: Duration) -> Option<Pause> {
        let context = &self.0.context;
        pause(context, context.now.max(at))
    }

    /// The limits that apply now.
    pub fn limits(&self) -> &Limits {
        &self.0.context.settings.limits
    }

    /// `true` if a response may ask for a tool call too many, because the calls are limited.
    pub fn limits_tool_calls(&self) -> bool {
        let settings = &self.0.context.settings;
        settings.limits.max_tool_calls.is_some()
            || settings.tools.iter().any(|tool| tool.max_calls.is_some())
    }

    /// Time since the run began, as of the last event.
    pub fn elapsed(&self) -> Duration {
        self.0.context.now
    }

    /// The current phase.
    pub fn phase(&self) -> RunPhase {
        match &self.0.phase {
            Phase::New => RunPhase::New,
            Phase::Consulting { point, .. } => match point {
                Point::Prompt => RunPhase::ConsultingPrompt,
                Point::PreIteration => RunPhase::ConsultingPreIteration,
                Point::ChatParams => RunPhase::ConsultingChatParams,
                Point::PreCall => RunPhase::ConsultingPreCall,
                Point::Background => RunPhase::ConsultingBackground,
                Point::Stop { .. } => RunPhase::ConsultingStop,
                Point::Reply(_) => RunPhase::ConsultingReply,
            },
            Phase::Reserving { .. } => RunPhase::Reserving,
            Phase::Calling(_) => RunPhase::Calling,
            Phase::Backoff { .. } => RunPhase::Backoff,
            Phase::Tools(_) => RunPhase::Tools,
            Phase::Compacting { .. } => RunPhase::Compacting,
            Phase::Validating { .. } => RunPhase::Validating,
            Phase::Verifying { .. } => RunPhase::Verifying,
            Phase::Waiting { .. } => RunPhase::Waiting,
            Phase::Guest(_) => RunPhase::Guest,
            Phase::WrappingUp(_) => RunPhase::WrappingUp,
            Phase::Stopping { .. } => RunPhase::Stopping,
        }
    }
}
