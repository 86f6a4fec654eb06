//! Compactions: when one is due, which result is accepted, and what happens after failures.
//!
//! ```text
//! before a turn ── due? ──► Compact ──► accept? shorter by `least_gain`, valid, nothing lost
//! refused prompt ─────────► Compact ──►   yes: a new epoch    no: a failed attempt
//! ```
//!
//! A run never compacts without end: at most twice per turn (once before its call, once after a
//! refusal), and after `max_failures` consecutive failures only if the provider has refused the
//! prompt.

use super::decided_by::{Decision, Layer};
use super::effect::{ConversationSize, Effect, EffectId, RunEvent};
use super::event::Compaction;
use super::guard::Flow;
use super::machine::{Machine, Phase};
use super::outcome::{CompactionAttempt, Ending};
use super::spec::ProactiveCompaction;
use crate::error_class::ErrorClass;
use crate::history::shortened_problem;
use crate::message::Message;
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};
use std::ops::ControlFlow::{Break, Continue};

impl Machine {
    /// `true` if the conversation must be shortened before the next call.
    pub(super) fn compaction_is_due(&mut self) -> bool {
        // After repeated failures each further try would cost a model call and change nothing.
        if self.compactions.failed_in_a_row >= self.settings.compaction.max_failures {
            return false;
        }
        match self.settings.compaction.proactive {
            ProactiveCompaction::Never => false,
            ProactiveCompaction::Ask => true,
            ProactiveCompaction::AtShare(share) => self
                .settings
                .context_window
                .is_some_and(|window| self.prompt_estimate() as f64 >= share * window as f64),
        }
    }

    /// Requests a compaction.
    pub(super) fn compact(&mut self, forced: bool, effects: &mut Vec<Effect>) {
        let id = self.effect_id();
        let before = self.size();
        self.phase = Phase::Compacting { id, forced, before };
        let target = self.target(before);
        effects.push(Effect::Compact { id, forced, task: self.task_message, before, target });
    }

    /// The current size of the conversation.
    fn size(&mut self) -> ConversationSize {
        let messages = &self.state.messages;
        let bytes = bytes(messages);
        let messages = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        ConversationSize { messages, bytes, tokens: self.prompt_estimate() }
    }

    /// The target size in bytes: half of the current size, or half of the share of the window at
    /// which a compaction is due, whichever is smaller. Half, so that the next compaction is not
    /// due right away.
    fn target(&self, before: ConversationSize) -> u64 {
        let half = before.bytes / 2;
        let wanted = match (self.settings.compaction.proactive, self.settings.context_window) {
            (ProactiveCompaction::AtShare(share), Some(window)) => share * window as f64 / 2.0,
            _ => return half,
        };
        // Bytes per token vary by content, so scale by this conversation's own ratio.
        let share = wanted / before.tokens.max(1) as f64;
        half.min((before.bytes as f64 * share) as u64)
    }

    /// Books the cost of a compaction, also with the shared budget, because nothing was reserved
    /// for it.
    pub(super) fn book_compaction(
        &mut self,
        id: EffectId,
        cost: NanoUsd,
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(self.phase, Phase::Compacting { id: waited, .. } if waited == id) {
            return;
        }
        self.ledger.book(&Usage::default(), cost, false, Unreported::NOTHING);
        if self.settings.shared_budget && cost > NanoUsd::ZERO {
            effects.push(Effect::Settle { id, spent: cost, tokens: 0 });
        }
    }

    /// Handles the result of a compaction: accepts or discards it, and continues the turn.
    pub(super) fn compacted(
        &mut self,
        id: EffectId,
        result: Compaction,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        let (forced, before) = match self.phase {
            Phase::Compacting { id: waited, forced, before } if waited == id => (forced, before),
            _ => return Continue(()),
        };
        let mut attempt = CompactionAttempt {
            turn: self.counts.turns + 1,
            forced,
            strategy: String::new(),
            before,
            after: None,
            failed: None,
        };
        // A proactive compaction may find nothing to do; a forced one must not, since the prompt
        // was refused.
        let taken = match result {
            Compaction::NotNeeded if forced => {
                Err("the compactor reported that no compaction is needed, but the provider refused the prompt".to_owned())
            }
            Compaction::NotNeeded => return self.pre_iteration(effects),
            Compaction::Failed(why) => Err(why),
            Compaction::Done { messages, strategy, .. } => {
                attempt.strategy = strategy;
                self.judged(before, &messages).map(|()| messages)
            }
        };
        match taken {
            Ok(messages) => {
                self.state.replace(messages);
                // The provider's count was for the old conversation.
                self.known_prompt = None;
                self.counted = (0, 0);
                let after = self.size();
                effects.push(Effect::Emit(RunEvent::Compacted {
                    before: before.messages,
                    after: after.messages,
                    bytes_before: before.bytes,
                    bytes_after: after.bytes,
                    tokens_before: before.tokens,
                    tokens_after: after.tokens,
                    strategy: attempt.strategy.clone(),
                    forced,
                }));
                attempt.after = Some(after);
                self.compactions.tried.push(attempt);
                self.compactions.failed_in_a_row = 0;
            }
            Err(why) => {
                self.compactions.failed_in_a_row += 1;
                effects.push(Effect::Emit(RunEvent::CompactionFailed {
                    why: why.clone(),
                    forced,
                    in_a_row: self.compactions.failed_in_a_row,
                }));
                attempt.failed = Some(why.clone());
                self.compactions.tried.push(attempt);
                self.compaction_failed(forced, why)?;
            }
        }
        // A forced compaction happens within a turn whose hooks have already run.
        if forced { self.before_call(effects) } else { self.pre_iteration(effects) }
    }

    /// Checks that the result of a compaction is valid, contains what must be kept, and is short
    /// enough.
    fn judged(&self, before: ConversationSize, messages: &[Message]) -> Result<(), String> {
        if let Some(problem) = shortened_problem(&self.state.messages, messages, self.task_message)
        {
            return Err(problem.to_string());
        }
        let after = bytes(messages);
        let gain = self.settings.compaction.least_gain;
        // Written as a positive condition so that a NaN share rejects everything instead of
        // accepting it.
        let enough = after as f64 <= before.bytes as f64 * (1.0 - gain) && after <= before.bytes;
        if enough {
            return Ok(());
        }
        let percent = gain * 100.0;
        let from = before.bytes;
        Err(format!(
            "not_smaller: {from} bytes became {after}; at least {percent} % less is required"
        ))
    }

    /// Ends the run after a failed compaction if it cannot continue: the prompt was refused, or it
    /// is not known to fit and a refusal could not be answered by another compaction.
    fn compaction_failed(&self, forced: bool, why: String) -> Flow {
        let told = self.compactions.told();
        if forced {
            return Break(
                Ending::new(
                    Termination::ErrorPromptTooLong,
                    Layer::Provider,
                    Decision::CallFailed(ErrorClass::ContextLengthExceeded),
                    format!("the prompt does not fit, and compaction failed: {told}"),
                )
                .diagnostic(why),
            );
        }
        let fits = self.settings.context_window.is_some_and(|window| self.last_estimate() < window);
        let may_be_refused =
            self.settings.context_window.is_some() && self.settings.compaction.reactive;
        if fits || may_be_refused {
            return Continue(());
        }
        Break(
            Ending::new(
                Termination::ErrorCompactionFailed,
                Layer::Limit,
                Decision::Compaction,
                format!("{why} ({told})"),
            )
            .diagnostic(why),
        )
    }

    /// Estimated prompt size at the last compaction attempt; still valid, because no message came
    /// since.
    fn last_estimate(&self) -> u64 {
        self.compactions.tried.last().map_or(0, |attempt| attempt.before.tokens)
    }
}

fn bytes(messages: &[Message]) -> u64 {
    messages.iter().map(Message::byte_len).sum()
}
