//! The boundary before a turn: the checks in their fixed order, and the model call.
//!
//! The order is one table, [`PRE_TURN`]. If several limits are reached at once, the first one in
//! the table decides, so that the same run always ends for the same reason. Terminate, cancel and
//! halt are not in the table, because they are decided as soon as their event arrives.
//!
//! ```text
//! before_turn: limits ─► compaction? ─► pre_iteration? ─► chat_params? ─► before_call
//! before_call: budgets (retries only) ─► quote ─► Reserve? ─► CallModel
//! ```

use super::call::Call;
use super::decided_by::{Decision, Layer};
use super::effect::{ConsultPoint, Effect, EffectId, InjectionReason, RunEvent};
use super::event::Answer;
use super::guard::{Flow, guarded};
use super::ledger::{Ceiling, Granted, Quote};
use super::machine::{Attempts, Machine, Phase, Point};
use super::outcome::Ending;
use super::pre_turn::{CheckState, PRE_TURN, PreTurnCheck};
use super::quote::USUAL_SHARED_OUTPUT;
use crate::message::{Message, Part, Role};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::NanoUsd;
use std::ops::ControlFlow::{Break, Continue};

impl Machine {
    /// Returns the current value of a limit.
    pub(super) fn check_state(&self, check: PreTurnCheck) -> CheckState {
        let limits = &self.settings.limits;
        let turns = |value: u32, max: Option<u32>| ("turns", f64::from(value), max.map(f64::from));
        let (limit, (unit, value, max)) = match check {
            PreTurnCheck::MaxTurns => ("max_turns", turns(self.counts.turns, limits.max_turns)),
            PreTurnCheck::Mistakes => {
                let max = limits.max_consecutive_mistakes;
                ("max_consecutive_mistakes", turns(self.counts.mistakes, max))
            }
            PreTurnCheck::BudgetUsd => {
                let committed = self.ledger.committed().to_usd();
                ("max_budget_usd", ("usd", committed, limits.max_budget_usd))
            }
            PreTurnCheck::BudgetTokens => {
                let max = limits.max_tokens.map(|max| max as f64);
                ("max_tokens", ("tokens", self.ledger.committed_tokens() as f64, max))
            }
            PreTurnCheck::BudgetTime => {
                let max = limits.timeout.map(|max| max.as_secs_f64());
                ("timeout", ("seconds", self.now.as_secs_f64(), max))
            }
            PreTurnCheck::NoProgress => {
                let max = limits.max_unproductive_turns;
                ("max_unproductive_turns", turns(self.progress.unproductive(), max))
            }
        };
        CheckState { limit, unit, value, max, met: self.met(check).is_some() }
    }

    /// Returns the limit's name and the evidence if the limit is reached.
    fn met(&self, check: PreTurnCheck) -> Option<(Decision, String)> {
        // Limits are reached at equality: 25 of 25 turns leave no room for another one.
        let reached = |value: u32, limit: Option<u32>| limit.filter(|limit| value >= *limit);
        match check {
            PreTurnCheck::MaxTurns => reached(self.counts.turns, self.settings.limits.max_turns)
                .map(|max| (Decision::MaxTurns, format!("{} of {max} turns", self.counts.turns))),
            PreTurnCheck::Mistakes => {
                reached(self.counts.mistakes, self.settings.limits.max_consecutive_mistakes).map(
                    |max| {
                        (
                            Decision::MaxConsecutiveMistakes,
                            format!(
                                "{} of {max} turns in a row whose every tool call failed",
                                self.counts.mistakes
                            ),
                        )
                    },
                )
            }
            // Includes the possible cost of attempts that the provider did not count, see
            // `Ledger::committed`.
            PreTurnCheck::BudgetUsd => self.ledger.usd_exceeded().then(|| {
                let max = self.ledger.max_usd.unwrap_or_default();
                (
                    Decision::MaxBudgetUsd,
                    match self.more_spent() {
                        Some(more) => format!("{more}, of {max}"),
                        None => format!("{} of {max} spent", self.ledger.spent),
                    },
                )
            }),
            PreTurnCheck::BudgetTokens => self.ledger.tokens_exceeded().then(|| {
                let max = self.ledger.max_tokens.unwrap_or_default();
                (
                    Decision::MaxTokens,
                    match self.more_used() {
                        Some(more) => format!("{more}, of {max}"),
                        None => format!("{} of {max} tokens used", self.ledger.tokens),
                    },
                )
            }),
            PreTurnCheck::BudgetTime => {
                self.settings.limits.timeout.filter(|limit| self.now >= *limit).map(|limit| {
                    (
                        Decision::Timeout,
                        format!("the run took {:?} of {limit:?}", self.shown_time()),
                    )
                })
            }
            PreTurnCheck::NoProgress => {
                let stuck = self.progress.unproductive();
                reached(stuck, self.settings.limits.max_unproductive_turns).map(|max| {
                    (
                        Decision::MaxUnproductiveTurns,
                        format!("{stuck} of {max} turns in a row that repeat an earlier one and say nothing new"),
                    )
                })
            }
        }
    }

    /// The terminations whose limits are reached now; the outcome lists them in `also`.
    pub(super) fn also_true(&self) -> Vec<Termination> {
        PRE_TURN
            .into_iter()
            .filter(|check| self.met(*check).is_some())
            .map(PreTurnCheck::termination)
            .collect()
    }

    /// Returns the ending of the first limit in [`PRE_TURN`] that is reached.
    fn check_limits(&self) -> Flow {
        for check in PRE_TURN {
            if let Some((limit, evidence)) = self.met(check) {
                return Break(Ending::new(check.termination(), Layer::Limit, limit, evidence));
            }
        }
        Continue(())
    }

    /// Checks the budgets again before a retry, because the failed attempt may have spent the rest.
    pub(super) fn check_budgets(&self) -> Flow {
        for check in [PreTurnCheck::BudgetUsd, PreTurnCheck::BudgetTokens] {
            if let Some((limit, evidence)) = self.met(check) {
                return Break(Ending::new(check.termination(), Layer::Limit, limit, evidence));
            }
        }
        Continue(())
    }

    /// Starts a turn: limits, then compaction, then the `pre_iteration` hook.
    pub(super) fn before_turn(&mut self, effects: &mut Vec<Effect>) -> Flow {
        // Measurements belong to one step, so the next one starts without any.
        self.context.step = i64::from(self.counts.turns);
        self.context.metrics.clear();
        // Everything below is counted per turn, not per run.
        self.attempts = Attempts::default();
        self.compactions.forced_this_turn = false;
        self.check_limits()?;
        if self.compaction_is_due() {
            // The turn continues in `compacted`, with the `pre_iteration` hook.
            self.compact(false, effects);
            return Continue(());
        }
        self.pre_iteration(effects)
    }

    /// Consults the hook before a turn, if there is one.
    pub(super) fn pre_iteration(&mut self, effects: &mut Vec<Effect>) -> Flow {
        if self.settings.hooks.pre_iteration {
            let ask = ConsultPoint::PreIteration {
                tool_turns: self.counts.tool_turns,
                unproductive: self.progress.unproductive(),
            };
            self.consult(Point::PreIteration, ask, effects);
            return Continue(());
        }
        self.chat_params(effects)
    }

    /// Consults the hook before a model call, if there is one.
    fn chat_params(&mut self, effects: &mut Vec<Effect>) -> Flow {
        if self.settings.hooks.chat_params {
            let ask = ConsultPoint::ChatParams {
                tool_turns: self.counts.tool_turns,
                output_cap: self.output_cap,
            };
            self.consult(Point::ChatParams, ask, effects);
            return Continue(());
        }
        self.before_call(effects)
    }

    /// Prepares a model call: reserve its worst cost, then make it. Retries also come through here,
    /// so that the cost of the failed attempt is checked first.
    pub(super) fn before_call(&mut self, effects: &mut Vec<Effect>) -> Flow {
        // Before the first attempt, `check_limits` has done this already.
        if self.attempts.attempt > 0 {
            self.check_budgets()?;
        }
        let own = self.own_cap();
        // No ceiling applies to the call: send the caller's own cap, and compute the worst cost for
        // display only.
        let Some(usual) = self.usual_output() else {
            let prompt = self.prompt_bound();
            let worst = self.ledger.price.filter(|_| self.settings.reserve).zip(own);
            let worst = worst.map(|(price, cap)| price.worst(prompt, cap));
            return self.call((own, own), None, worst, None, effects);
        };
        let ask = self.ask(usual);
        let quote = match self.ledger.quote(ask, None) {
            Ok(quote) => quote,
            Err(short) => return Break(self.does_not_fit(short)),
        };
        if self.settings.shared_budget {
            let id = self.effect_id();
            self.phase = Phase::Reserving { id };
            let Quote { worst, least, .. } = quote;
            effects.push(Effect::Reserve {
                id,
                want: worst.usd,
                least: least.usd,
                want_tokens: worst.tokens.unwrap_or_default(),
                least_tokens: least.tokens.unwrap_or_default(),
            });
            return Continue(());
        }
        self.call_as_quoted(ask.cap, quote, None, effects)
    }

    /// Makes the call under its quote, and with the cap that the quote allows.
    fn call_as_quoted(
        &mut self,
        own: u64,
        quote: Quote,
        reservation: Option<EffectId>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        let worst = self.ledger.price.map(|_| quote.worst.usd);
        // A call without cost needs no cap, and an unnecessary cap could truncate the answer.
        let bounded = self.settings.shared_budget || self.ledger.bounds_output();
        let caps = if bounded {
            (Some(own), Some(quote.output_cap))
        } else {
            (self.own_cap(), self.own_cap())
        };
        self.call(caps, quote.lowered_by, worst, reservation, effects)
    }

    /// Handles the shared budget's answer: makes the call under the grant, or ends the run.
    pub(super) fn reserved(
        &mut self,
        id: EffectId,
        granted: Granted,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        // A grant for an abandoned reservation is the driver's to return; see `Effect::Abandon`.
        if !matches!(self.phase, Phase::Reserving { id: waited } if waited == id) {
            return Continue(());
        }
        let ask = self.ask(USUAL_SHARED_OUTPUT);
        // The grant acts as one more ceiling, for this call only.
        match self.ledger.quote(ask, Some(granted)) {
            Ok(quote) => self.call_as_quoted(ask.cap, quote, Some(id), effects),
            // Refused: settle with zero, so that the budget releases what it granted.
            Err(short) => {
                effects.push(Effect::Settle { id, spent: NanoUsd::ZERO, tokens: 0 });
                Break(self.does_not_fit(short))
            }
        }
    }

    /// Makes the model call: the only place that requests one.
    fn call(
        &mut self,
        (own_cap, cap): (Option<u64>, Option<u64>),
        lowered_by: Option<Ceiling>,
        quote: Option<NanoUsd>,
        reservation: Option<EffectId>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        self.watchers.begin_text();
        // Before the call is counted, because a policy that panics here prevents the call.
        if let Some(policy) = &mut self.policy {
            guarded(policy.name().to_owned(), || policy.begin_turn())?;
        }
        let id = self.effect_id();
        let prompt_bound = self.prompt_bound();
        self.attempts.attempt += 1;
        self.counts.model_calls = self.counts.model_calls.saturating_add(1);
        // The turn is counted when it ends, so the current one is `turns + 1`.
        let turn = self.counts.turns + 1;
        // A retry is the same iteration: observers count iterations, not attempts.
        if self.attempts.attempt == 1 {
            self.state.iteration = turn;
            self.state.last_iteration_at = Some(self.now);
        }
        self.stream(StreamingState::Streaming);
        self.phase = Phase::Calling(Call {
            id,
            started: self.now,
            last_content: None,
            text: String::new(),
            deferred_stop: false,
            hidden: 0,
            own_cap,
            cap,
            lowered_by,
            quote,
            reservation,
            prompt_bound,
        });
        // Observers learn of the attempt before the driver starts it.
        effects.push(Effect::Emit(RunEvent::TurnStarted { turn, attempt: self.attempts.attempt }));
        effects.push(Effect::CallModel {
            id,
            turn,
            attempt: self.attempts.attempt,
            output_cap: cap,
        });
        Continue(())
    }

    /// Upper bound on the tokens of the next prompt: the provider's count as far as there is one,
    /// and one token per byte for the rest, because no tokenizer makes more than one token of a
    /// byte.
    pub(super) fn prompt_bound(&mut self) -> u64 {
        let messages = &self.state.messages;
        if let Some((tokens, covered)) = self.known_prompt {
            let rest = messages.get(covered..).unwrap_or_default();
            return tokens.saturating_add(rest.iter().map(Message::byte_len).sum());
        }
        let (bytes, counted) = &mut self.counted;
        // A shorter conversation than counted means that it was replaced by a compaction.
        if *counted > messages.len() {
            (*bytes, *counted) = (0, 0);
        }
        *bytes += messages[*counted..].iter().map(Message::byte_len).sum::<u64>();
        *counted = messages.len();
        bytes.saturating_add(self.settings.prompt_overhead)
    }

    /// Estimated tokens of the next prompt: one for every four bytes that the provider has not
    /// counted.
    pub(super) fn prompt_estimate(&mut self) -> u64 {
        match self.known_prompt {
            Some((tokens, _)) => {
                tokens.saturating_add(self.prompt_bound().saturating_sub(tokens) / 4)
            }
            None => self.prompt_bound() / 4,
        }
    }

    /// Handles an answer of a hook or a person. `tools.rs` handles the answers of `pre_tool` and
    /// approvals.
    pub(super) fn answered(
        &mut self,
        id: EffectId,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        if matches!(self.phase, Phase::Tools(_)) {
            return self.tool_answered(id, answer, effects);
        }
        // Ignore an answer to another question than the current one.
        let point = match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Consulting { id: waited, point } if waited == id => point,
            other => {
                self.phase = other;
                return Continue(());
            }
        };
        let point = match point {
            Point::Stop(success) => return self.stop_hook_answered(success, answer, effects),
            Point::Reply(success) => return self.reply_answered(success, answer, effects),
            other => other,
        };
        match answer {
            // Before a turn there is nothing to deny but the turn itself, so a denial ends the run
            // too.
            Answer::Halt(reason) | Answer::Deny(reason) => {
                let decision = match point {
                    Point::Prompt => Decision::PromptHook,
                    Point::PreIteration => Decision::PreIterationHook,
                    Point::ChatParams => Decision::ChatParamsHook,
                    Point::Stop(_) | Point::Reply(_) => Decision::StopHook,
                };
                return Break(Ending::halted(Layer::Hook, decision, reason));
            }
            Answer::ProceedWith(text) => self.inject_message(InjectionReason::Hook, text, effects),
            Answer::OutputCap(cap) => self.output_cap = Some(cap),
            Answer::Proceed => {}
        }
        match point {
            Point::Prompt => self.before_turn(effects),
            Point::PreIteration => self.chat_params(effects),
            Point::ChatParams | Point::Stop(_) | Point::Reply(_) => self.before_call(effects),
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
        effects.push(Effect::Emit(RunEvent::MessageInjected { why, text: text.clone() }));
        self.state.push(Role::User, vec![Part::Text { text }]);
    }
}
