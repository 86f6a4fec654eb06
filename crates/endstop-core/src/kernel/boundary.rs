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

use super::ledger::{Ceiling, Granted, Quote};
use super::outcome::Ending;
use super::quote::USUAL_SHARED_OUTPUT;
use super::{
    Answer, Call, ConsultPoint, Effect, EffectId, Flow, Inner, Phase, Point, RunEvent, guarded,
};
use crate::message::{Message, Part, Role};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::NanoUsd;
use serde::Serialize;
use std::time::Duration;

/// A limit that is checked before each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreTurnCheck {
    /// `max_turns`.
    MaxTurns,
    /// `max_consecutive_mistakes`.
    Mistakes,
    /// `max_budget_usd`.
    BudgetUsd,
    /// `max_tokens`.
    BudgetTokens,
    /// `timeout`.
    BudgetTime,
    /// `max_unproductive_turns`.
    NoProgress,
}

/// The limits checked before each turn, in this order; then come compaction and the `pre_iteration`
/// hook.
pub const PRE_TURN: [PreTurnCheck; 6] = [
    PreTurnCheck::MaxTurns,
    PreTurnCheck::Mistakes,
    PreTurnCheck::BudgetUsd,
    PreTurnCheck::BudgetTokens,
    PreTurnCheck::BudgetTime,
    PreTurnCheck::NoProgress,
];

impl PreTurnCheck {
    /// Returns the termination of a run that reached this limit.
    pub const fn termination(self) -> Termination {
        match self {
            PreTurnCheck::MaxTurns => Termination::ErrorMaxTurns,
            PreTurnCheck::Mistakes => Termination::ErrorConsecutiveMistakes,
            PreTurnCheck::BudgetUsd => Termination::ErrorMaxBudgetUsd,
            PreTurnCheck::BudgetTokens => Termination::ErrorMaxTokens,
            PreTurnCheck::BudgetTime => Termination::ErrorTimeout,
            PreTurnCheck::NoProgress => Termination::ErrorNoProgress,
        }
    }
}

/// A limit that is checked before each turn, with its current value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CheckState {
    /// The limit, as configuration spells it.
    pub limit: &'static str,
    /// Unit of the values: `turns`, `usd`, `tokens` or `seconds`.
    pub unit: &'static str,
    /// Current value.
    pub value: f64,
    /// The limit; `None`: off.
    pub max: Option<f64>,
    /// `true` if the limit is reached.
    pub met: bool,
}

impl Inner {
    /// Returns the current value of a limit.
    pub(super) fn check_state(&self, check: PreTurnCheck) -> CheckState {
        let limits = &self.limits;
        let turns = |value: u32, max: Option<u32>| ("turns", f64::from(value), max.map(f64::from));
        let (limit, (unit, value, max)) = match check {
            PreTurnCheck::MaxTurns => ("max_turns", turns(self.turns, limits.max_turns)),
            PreTurnCheck::Mistakes => {
                let max = limits.max_consecutive_mistakes;
                ("max_consecutive_mistakes", turns(self.mistakes, max))
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
    fn met(&self, check: PreTurnCheck) -> Option<(&'static str, String)> {
        // Limits are reached at equality: 25 of 25 turns leave no room for another one.
        let reached = |value: u32, limit: Option<u32>| limit.filter(|limit| value >= *limit);
        match check {
            PreTurnCheck::MaxTurns => reached(self.turns, self.limits.max_turns)
                .map(|max| ("max_turns", format!("{} of {max} turns", self.turns))),
            PreTurnCheck::Mistakes => reached(self.mistakes, self.limits.max_consecutive_mistakes)
                .map(|max| {
                    (
                        "max_consecutive_mistakes",
                        format!(
                            "{} of {max} turns in a row whose every tool call failed",
                            self.mistakes
                        ),
                    )
                }),
            // Includes the possible cost of attempts that the provider did not count, see
            // `Ledger::committed`.
            PreTurnCheck::BudgetUsd => self.ledger.usd_exceeded().then(|| {
                let max = self.ledger.max_usd.unwrap_or_default();
                (
                    "max_budget_usd",
                    match self.more_spent() {
                        Some(more) => format!("{more}, of {max}"),
                        None => format!("{} of {max} spent", self.ledger.spent),
                    },
                )
            }),
            PreTurnCheck::BudgetTokens => self.ledger.tokens_exceeded().then(|| {
                let max = self.ledger.max_tokens.unwrap_or_default();
                (
                    "max_tokens",
                    match self.more_used() {
                        Some(more) => format!("{more}, of {max}"),
                        None => format!("{} of {max} tokens used", self.ledger.tokens),
                    },
                )
            }),
            PreTurnCheck::BudgetTime => {
                self.limits.timeout.filter(|limit| self.now >= *limit).map(|limit| {
                    ("timeout", format!("the run took {:?} of {limit:?}", self.shown_time()))
                })
            }
            PreTurnCheck::NoProgress => {
                let stuck = self.progress.unproductive();
                reached(stuck, self.limits.max_unproductive_turns).map(|max| {
                    (
                        "max_unproductive_turns",
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
                return Err(Ending::new(check.termination(), "limit", limit, evidence));
            }
        }
        Ok(())
    }

    /// Checks the budgets again before a retry, because the failed attempt may have spent the rest.
    pub(super) fn check_budgets(&self) -> Flow {
        for check in [PreTurnCheck::BudgetUsd, PreTurnCheck::BudgetTokens] {
            if let Some((limit, evidence)) = self.met(check) {
                return Err(Ending::new(check.termination(), "limit", limit, evidence));
            }
        }
        Ok(())
    }

    /// Starts a turn: limits, then compaction, then the `pre_iteration` hook.
    pub(super) fn before_turn(&mut self, fx: &mut Vec<Effect>) -> Flow {
        // Measurements belong to one step, so the next one starts without any.
        self.context.step = i64::from(self.turns);
        self.context.metrics.clear();
        // Everything below is counted per turn, not per run.
        self.attempt = 0;
        self.retries = 0;
        self.failed_since = None;
        self.waited = Duration::ZERO;
        self.call_again = false;
        self.compactions.forced_this_turn = false;
        self.starved_this_turn = false;
        self.check_limits()?;
        if self.compaction_is_due() {
            // The turn continues in `compacted`, with the `pre_iteration` hook.
            self.compact(false, fx);
            return Ok(());
        }
        self.pre_iteration(fx)
    }

    /// Consults the hook before a turn, if there is one.
    pub(super) fn pre_iteration(&mut self, fx: &mut Vec<Effect>) -> Flow {
        if self.hooks.pre_iteration {
            let ask = ConsultPoint::PreIteration {
                tool_turns: self.tool_turns,
                unproductive: self.progress.unproductive(),
            };
            self.consult(Point::PreIteration, ask, fx);
            return Ok(());
        }
        self.chat_params(fx)
    }

    /// Consults the hook before a model call, if there is one.
    fn chat_params(&mut self, fx: &mut Vec<Effect>) -> Flow {
        if self.hooks.chat_params {
            let ask = ConsultPoint::ChatParams {
                tool_turns: self.tool_turns,
                output_cap: self.output_cap,
            };
            self.consult(Point::ChatParams, ask, fx);
            return Ok(());
        }
        self.before_call(fx)
    }

    /// Prepares a model call: reserve its worst cost, then make it. Retries also come through here,
    /// so that the cost of the failed attempt is checked first.
    pub(super) fn before_call(&mut self, fx: &mut Vec<Effect>) -> Flow {
        // Before the first attempt, `check_limits` has done this already.
        if self.attempt > 0 {
            self.check_budgets()?;
        }
        let own = self.own_cap();
        // No ceiling applies to the call: send the caller's own cap, and compute the worst cost for
        // display only.
        let Some(usual) = self.usual_output() else {
            let prompt = self.prompt_bound();
            let worst = self.ledger.price.filter(|_| self.reserve).zip(own);
            let worst = worst.map(|(price, cap)| price.worst(prompt, cap));
            return self.call((own, own), None, worst, None, fx);
        };
        let ask = self.ask(usual);
        let quote = self.ledger.quote(ask, None).map_err(|short| self.does_not_fit(short))?;
        if self.shared_budget {
            let id = self.effect_id();
            self.phase = Phase::Reserving { id };
            let Quote { worst, least, .. } = quote;
            fx.push(Effect::Reserve {
                id,
                want: worst.usd,
                least: least.usd,
                want_tokens: worst.tokens.unwrap_or_default(),
                least_tokens: least.tokens.unwrap_or_default(),
            });
            return Ok(());
        }
        self.call_as_quoted(ask.cap, quote, None, fx)
    }

    /// Makes the call under its quote, and with the cap that the quote allows.
    fn call_as_quoted(
        &mut self,
        own: u64,
        quote: Quote,
        reservation: Option<EffectId>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        let worst = self.ledger.price.map(|_| quote.worst.usd);
        // A call without cost needs no cap, and an unnecessary cap could truncate the answer.
        let bounded = self.shared_budget || self.ledger.bounds_output();
        let caps = if bounded {
            (Some(own), Some(quote.output_cap))
        } else {
            (self.own_cap(), self.own_cap())
        };
        self.call(caps, quote.lowered_by, worst, reservation, fx)
    }

    /// Handles the shared budget's answer: makes the call under the grant, or ends the run.
    pub(super) fn reserved(
        &mut self,
        id: EffectId,
        granted: Granted,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        // A grant for an abandoned reservation is the driver's to return; see `Effect::Abandon`.
        if !matches!(self.phase, Phase::Reserving { id: waited } if waited == id) {
            return Ok(());
        }
        let ask = self.ask(USUAL_SHARED_OUTPUT);
        // The grant acts as one more ceiling, for this call only.
        match self.ledger.quote(ask, Some(granted)) {
            Ok(quote) => self.call_as_quoted(ask.cap, quote, Some(id), fx),
            // Refused: settle with zero, so that the budget releases what it granted.
            Err(short) => {
                fx.push(Effect::Settle { id, spent: NanoUsd::ZERO, tokens: 0 });
                Err(self.does_not_fit(short))
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
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.watchers.begin_text();
        // Before the call is counted, because a policy that panics here prevents the call.
        if let Some(policy) = &mut self.policy {
            guarded(policy.name().to_owned(), || policy.begin_turn())?;
        }
        let id = self.effect_id();
        let prompt_bound = self.prompt_bound();
        self.attempt += 1;
        self.model_calls = self.model_calls.saturating_add(1);
        // The turn is counted when it ends, so the current one is `turns + 1`.
        let turn = self.turns + 1;
        // A retry is the same iteration: observers count iterations, not attempts.
        if self.attempt == 1 {
            self.state.iteration = turn;
            self.state.last_iteration_at = Some(self.now);
        }
        self.stream(StreamingState::Streaming);
        self.phase = Phase::Calling(Call {
            id,
            started: self.now,
            last_content: None,
            text: String::new(),
            held: false,
            hidden: 0,
            own_cap,
            cap,
            lowered_by,
            quote,
            reservation,
            prompt_bound,
        });
        // Observers learn of the attempt before the driver starts it.
        fx.push(Effect::Emit(RunEvent::TurnStarted { turn, attempt: self.attempt }));
        fx.push(Effect::CallModel { id, turn, attempt: self.attempt, output_cap: cap });
        Ok(())
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
        bytes.saturating_add(self.prompt_overhead)
    }

    /// Estimated tokens of the next prompt: one for every four bytes that the provider has not
    /// counted.
    pub(super) fn prompt_estimate(&mut self) -> u64 {
        match self.known_prompt {
            Some((tokens, _)) => tokens + self.prompt_bound().saturating_sub(tokens) / 4,
            None => self.prompt_bound() / 4,
        }
    }

    /// Handles an answer of a hook or a person. `tools.rs` handles the answers of `pre_tool` and
    /// approvals.
    pub(super) fn answered(&mut self, id: EffectId, answer: Answer, fx: &mut Vec<Effect>) -> Flow {
        if matches!(self.phase, Phase::Tools(_)) {
            return self.tool_answered(id, answer, fx);
        }
        // Ignore an answer to another question than the current one.
        let point = match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Consulting { id: waited, point } if waited == id => point,
            other => {
                self.phase = other;
                return Ok(());
            }
        };
        let point = match point {
            Point::Stop(success) => return self.stop_hook_answered(success, answer, fx),
            Point::Reply(success) => return self.reply_answered(success, answer, fx),
            other => other,
        };
        match answer {
            // Before a turn there is nothing to deny but the turn itself, so a denial ends the run
            // too.
            Answer::Halt(reason) | Answer::Deny(reason) => {
                let name = match point {
                    Point::Prompt => "prompt",
                    Point::PreIteration => "pre_iteration",
                    Point::ChatParams => "chat_params",
                    Point::Stop(_) | Point::Reply(_) => "stop",
                };
                return Err(Ending::halted("hook", name, reason));
            }
            Answer::ProceedWith(text) => self.tell("hook", text, fx),
            Answer::OutputCap(cap) => self.output_cap = Some(cap),
            Answer::Proceed => {}
        }
        match point {
            Point::Prompt => self.before_turn(fx),
            Point::PreIteration => self.chat_params(fx),
            Point::ChatParams | Point::Stop(_) | Point::Reply(_) => self.before_call(fx),
        }
    }

    /// Sends a message from the loop itself to the model. The role is `user`, because every
    /// provider accepts it at this place.
    pub(super) fn tell(&mut self, why: &str, text: String, fx: &mut Vec<Effect>) {
        fx.push(Effect::Emit(RunEvent::Told { why: why.to_owned(), text: text.clone() }));
        self.state.push(Role::User, vec![Part::Text { text }]);
    }
}
