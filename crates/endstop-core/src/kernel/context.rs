//! The state of a run that all phases share: settings, conversation, amounts and counters.
//!
//! The phases call these methods, and nothing here calls a phase. What only one phase needs is in
//! that phase's own data, see `phase.rs`.

use super::ceilings::ledger::Ledger;
use super::ceilings::near::Near;
use super::ceilings::prompt::PromptSize;
use super::ceilings::rates::Recent;
use super::ceilings::windows::Windows;
use super::effect::{Effect, EffectId, InjectionReason, RunEvent};
use super::judge::Judge;
use super::records::{Attempts, Compactions, Counts, GuestState, HandOver, Jitter, Said, Verdicts};
use super::setup::guest_mode::Capability;
use super::setup::models::Models;
use super::setup::spec::RunSpec;
use super::tools::open_calls::Background;
use crate::limits::Limits;
use crate::message::{Message, MessageId, Part, Role};
use crate::policy::StepContext;
use crate::state::MultiTurnState;
use crate::streaming::StreamingState;
use crate::usage::NanoUsd;
use crate::visible::visible_text;
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
    pub(super) windows: Windows,
    pub(super) recent: Recent,
    /// The shares of limits of which the model was warned.
    pub(super) near: Near,
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

impl RunContext {
    /// Takes the specification apart for a run that has not started.
    pub(super) fn new(mut spec: RunSpec) -> RunContext {
        spec.restrict_to_guest();
        // The possible cost of an aborted call bounds nothing if its cap could not be lowered.
        let reserves = spec.reserve && spec.may(Capability::Cap);
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
            ledger: Ledger::new(&spec.limits, reserves),
            windows: Windows::default(),
            recent: Recent::default(),
            near: Near::default(),
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

    /// `true` if the driver has the capability. Only a guest may lack one.
    pub(super) fn may(&self, capability: Capability) -> bool {
        self.settings.may(capability)
    }

    /// Replaces the limits. What was spent so far counts against them.
    pub(super) fn replace_limits(&mut self, limits: Limits) {
        self.ledger.set_ceilings(&limits);
        self.state.iteration_limit = limits.max_turns;
        self.settings.limits = limits;
    }

    /// Books in the ledger, and notes what counts against the rates.
    pub(super) fn book<T>(&mut self, book: impl FnOnce(&mut Ledger) -> T) -> T {
        let before = (self.ledger.committed(), self.ledger.committed_tokens());
        let done = book(&mut self.ledger);
        if self.settings.limits.max_rate.is_some() {
            let usd = self.ledger.committed().saturating_sub(before.0);
            let tokens = self.ledger.committed_tokens().saturating_sub(before.1);
            self.recent.add(usd, tokens, self.now);
        }
        done
    }

    /// `true` if there is something that the next model call must read: a message of the user, or the
    /// result of a background call.
    pub(super) fn has_news(&self) -> bool {
        !self.unread.is_empty() || self.background.has_results()
    }

    /// `true` if the run asks for a hand-over when a ceiling ends it.
    pub(super) fn wraps_up(&self) -> bool {
        self.settings.limits.wrap_up && self.may(Capability::Loop) && !self.hand_over.tried
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
        if !self.may(Capability::Inject) {
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
