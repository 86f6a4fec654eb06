//! The state of a run that all phases share: settings, conversation, amounts and counters.
//!
//! The phases call these methods, and nothing here calls a phase. What only one phase needs is in
//! that phase's own data, see `phase.rs`.

use super::ceilings::ledger::Ledger;
use super::ceilings::prompt::PromptSize;
use super::compactions::Compactions;
use super::counts::Counts;
use super::effect::{Effect, EffectId, InjectionReason, RunEvent};
use super::jitter::Jitter;
use super::judge::{Judge, SaidText};
use super::setup::models::Models;
use super::setup::spec::RunSpec;
use super::tools::open_work::Background;
use super::verdicts::Verdicts;
use crate::error_class::ModelError;
use crate::limits::Limits;
use crate::message::{Message, MessageId, Part, Role};
use crate::policy::StepContext;
use crate::price::Price;
use crate::state::MultiTurnState;
use crate::streaming::StreamingState;
use crate::usage::NanoUsd;
use crate::visible::{append_piece, visible_text};
use serde_json::{Map, Value};
use std::mem::take;
use std::time::Duration;

/// Largest part of the run's `timeout` that is kept for the hand-over.
const LONGEST_HAND_OVER: Duration = Duration::from_secs(60);

/// The state of a run that all phases share.
#[derive(Debug)]
pub(crate) struct RunContext {
    /// The run's specification. The conversation, the policy, the watches and the variables have
    /// been moved out of it; a resumption may replace the limits, the tools and the model.
    pub(super) settings: RunSpec,
    pub(super) judge: Judge,
    /// The user message that started the run. A compaction must keep it.
    pub(super) task_message: Option<MessageId>,
    /// The caller's output cap, which a hook may change before each call.
    pub(super) output_cap: Option<u64>,
    pub(super) state: MultiTurnState,
    /// The time on the run's own clock.
    pub(super) now: Duration,
    pub(super) next_effect: u64,
    pub(super) jitter: Jitter,
    pub(super) ledger: Ledger,
    pub(super) models: Models,
    pub(super) counts: Counts,
    pub(super) attempts: Attempts,
    pub(super) compactions: Compactions,
    pub(super) verdicts: Verdicts,
    pub(super) hand_over: HandOver,
    pub(super) said: Said,
    pub(super) prompt: PromptSize,
    pub(super) guest: GuestState,
    /// Messages of the user that no model call has read yet.
    pub(super) unread: Vec<String>,
    pub(super) background: Background,
    /// `true` if limits have changed since the shared budget was last asked.
    pub(super) asked_under_other_limits: bool,
    /// Time in which the process was suspended during model calls.
    pub(super) suspended: Duration,
}

/// The text of the model so far. Only what is visible of it counts, see [`visible_text`].
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The answer so far, if earlier turns were truncated and continued, or paused.
    pub(super) partial: String,
    /// The last text of the run with a visible part, or else its first one. With its reasoning.
    pub(super) last_text: Option<String>,
    /// The model that answered, as the provider names it.
    pub(super) model: Option<String>,
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
    /// The failure of the last attempt, while the turn is attempted again. Boxed, because most turns have none.
    pub(super) failure: Option<Box<ModelError>>,
    /// A response of this turn was appended to the conversation.
    pub(super) recorded: bool,
}

/// The hand-over of a run.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    /// The request was made, or was not possible; it is tried once.
    pub(super) tried: bool,
    pub(super) text: Option<String>,
}

impl Said {
    /// Returns the answer so far, with another piece.
    pub(super) fn with(&self, piece: &str) -> String {
        let mut answer = self.partial.clone();
        append_piece(&mut answer, piece);
        answer
    }

    /// Returns the visible part of the piece that continues the answer so far.
    pub(super) fn rest(&self, piece: &str) -> String {
        let (before, whole) = (visible_text(&self.partial), self.with(piece));
        let whole = visible_text(&whole);
        // Only later pieces show that the first one was reasoning.
        whole.strip_prefix(before).unwrap_or(whole).to_owned()
    }

    /// The visible text of the run that is the answer of a success without one of its own.
    pub(super) fn visible(&self) -> Option<&str> {
        self.last_text.as_deref().map(visible_text)
    }

    /// What policies and rules read at a step with this visible text.
    pub(super) fn at<'a>(&'a self, text: &'a str) -> SaidText<'a> {
        SaidText { text, last: self.last_text.as_deref() }
    }
}

impl HandOver {
    /// Stores the text of the hand-over, unless it is blank.
    pub(super) fn take_text(&mut self, text: &str) {
        self.text = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    }
}

/// The state that only a guest's run has.
#[derive(Debug, Default)]
pub(super) struct GuestState {
    /// The price of calls that have none of their own. Boxed, because other runs have none here.
    pub(super) price: Option<Box<Price>>,
    /// The calls had different prices.
    pub(super) prices_differ: bool,
    /// Number of messages before the response of the current turn.
    pub(super) before_response: usize,
    /// Complete responses in a row that were replaced by an equal request.
    pub(super) retakes: u32,
    /// Turns of other conversations that were in flight at the last call.
    pub(super) turns_in_flight: u32,
    /// Calls in a row that the provider refused because of the key.
    pub(super) refused: u32,
}

impl RunContext {
    /// Takes the specification apart for a run that has not started.
    pub(super) fn new(mut spec: RunSpec) -> RunContext {
        spec.restrict_to_guest();
        // The possible cost of an aborted call bounds nothing if its cap could not be lowered.
        let reserves = spec.reserve && spec.guest.is_none_or(|mode| mode.capped);
        // Only a user message is a task. A resumed conversation may end with a tool message.
        let last = spec.messages.last().filter(|last| last.role == Role::User);
        let task_message = spec.task_message.or_else(|| last.map(|last| last.id));
        let mut state = MultiTurnState::new(take(&mut spec.messages), spec.epoch);
        state.iteration_limit = spec.limits.max_turns;
        let observed = StepContext {
            task: take(&mut spec.task),
            step: 0,
            variables: take(&mut spec.variables),
            metrics: Map::new(),
            cost: None,
            message_arrived: false,
        };
        RunContext {
            judge: Judge::new(spec.policy.take(), take(&mut spec.watches), observed),
            task_message,
            output_cap: spec.output_cap,
            state,
            now: Duration::ZERO,
            next_effect: 1,
            jitter: Jitter::default(),
            ledger: Ledger {
                max_usd: spec.limits.max_budget_usd.map(NanoUsd::from_usd),
                max_tokens: spec.limits.max_tokens,
                counts: spec.limits.max_tokens_counts,
                reserves,
                ..Ledger::default()
            },
            models: Models::default(),
            counts: Counts::default(),
            attempts: Attempts::default(),
            compactions: Compactions::default(),
            verdicts: Verdicts::default(),
            hand_over: HandOver::default(),
            said: Said::default(),
            prompt: PromptSize::default(),
            guest: GuestState::default(),
            unread: Vec::new(),
            background: Background::default(),
            asked_under_other_limits: false,
            suspended: Duration::ZERO,
            settings: spec,
        }
    }

    /// The visible text of the turn whose calls are open.
    pub(super) fn turn_text(&self) -> String {
        let text = self.state.messages.last().map(Message::plain_text).unwrap_or_default();
        visible_text(&text).to_owned()
    }

    /// `true` if the driver does not own the loop.
    pub(super) fn is_guest(&self) -> bool {
        self.settings.guest.is_some()
    }

    /// `true` if no event of turns and tool calls is emitted.
    pub(super) fn is_unobserved(&self) -> bool {
        self.settings.guest.is_some_and(|mode| mode.unobserved)
    }

    /// Replaces the limits. What was spent so far counts against them.
    pub(super) fn replace_limits(&mut self, limits: Limits) {
        self.ledger.max_usd = limits.max_budget_usd.map(NanoUsd::from_usd);
        self.ledger.max_tokens = limits.max_tokens;
        self.ledger.counts = limits.max_tokens_counts;
        self.state.iteration_limit = limits.max_turns;
        self.settings.limits = limits;
    }

    /// `true` if there is something that the next model call must read: a message of the user, or the
    /// result of a background call.
    pub(super) fn has_news(&self) -> bool {
        !self.unread.is_empty() || self.background.has_results()
    }

    /// `true` if the run asks for a hand-over when a ceiling ends it.
    pub(super) fn wraps_up(&self) -> bool {
        self.settings.limits.wrap_up && !self.is_guest() && !self.hand_over.tried
    }

    /// The time at which the run stops working: its `timeout`, or earlier if the rest is kept for
    /// the hand-over.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let timeout = self.settings.limits.timeout?;
        // A tenth, so that a short run has most of its time for the work.
        let kept = if self.wraps_up() { timeout / 10 } else { Duration::ZERO };
        Some(timeout.saturating_sub(kept.min(LONGEST_HAND_OVER)))
    }

    /// `true` if a success must be accepted by the verifier.
    pub(super) fn needs_verdict(&self) -> bool {
        self.settings.verifier && self.settings.limits.verify_rounds.is_some()
    }

    /// `true` if the driver can stop calls that run.
    pub(super) fn stops_tools(&self) -> bool {
        self.settings.guest.is_none_or(|mode| mode.clocks)
    }

    pub(super) fn effect_id(&mut self) -> EffectId {
        let id = EffectId(self.next_effect);
        self.next_effect += 1;
        id
    }

    /// The time since the start in whole milliseconds, so that messages do not show nanoseconds.
    pub(super) fn shown_time(&self) -> Duration {
        let ms = u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(ms)
    }

    /// Moves the streaming state machine. The kernel's own transitions are all allowed; if one were
    /// not, the stream is aborted instead of panicking, because a diagnostic state must not end a
    /// run.
    pub(super) fn stream(&mut self, to: StreamingState) {
        if self.state.streaming != to && self.state.streaming.transition(to).is_err() {
            self.state.streaming.abort();
        }
    }

    /// Sends a message from the loop itself to the model. The role is `user`, because every
    /// provider accepts it at this place.
    pub(super) fn inject_message(
        &mut self,
        why: InjectionReason,
        text: String,
        effects: &mut Vec<Effect>,
    ) {
        if self.settings.guest.is_some_and(|mode| !mode.inject) {
            return;
        }
        effects.push(Effect::Emit(RunEvent::MessageInjected { why, text: text.clone() }));
        self.state.push(Role::User, vec![Part::Text { text }]);
    }

    /// Sends the observations of the watch rules to the model.
    pub(super) fn inject_nudges(&mut self, nudges: Vec<String>, effects: &mut Vec<Effect>) {
        for evidence in nudges {
            let text = format!(
                "You seem to be stuck ({evidence}). Try a different approach, or say what is blocking you."
            );
            self.inject_message(InjectionReason::Watch, text, effects);
        }
    }

    /// Adds what the caller or a tool observed, for policies and rules.
    pub(super) fn observe(&mut self, variables: Map<String, Value>, metrics: Map<String, Value>) {
        self.judge.context.variables.extend(variables);
        self.judge.context.metrics.extend(metrics);
    }

    /// Removes the first messages, which the guest does not need.
    pub(super) fn forget_messages(&mut self, number: usize) {
        self.state.forget(number);
        self.prompt.forget(number);
        self.guest.before_response = self.guest.before_response.saturating_sub(number);
    }

    /// Upper bound on the tokens of the next prompt.
    pub(super) fn prompt_bound(&mut self) -> u64 {
        let RunSpec { prompt_overhead, image_tokens, .. } = self.settings;
        self.prompt.bound(&self.state.messages, prompt_overhead, image_tokens)
    }

    /// Estimated tokens of the next prompt.
    pub(super) fn prompt_estimate(&mut self) -> u64 {
        let RunSpec { prompt_overhead, image_tokens, .. } = self.settings;
        self.prompt.estimate(&self.state.messages, prompt_overhead, image_tokens)
    }

    /// The cost of the run so far, if every part of it has a known price.
    pub(super) fn known_cost(&self) -> Option<NanoUsd> {
        self.ledger.known_cost()
    }
}
