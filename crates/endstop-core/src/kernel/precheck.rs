//! Checks the limits before each turn.
//!
//! The order is one table, [`PRE_TURN`]; then come compaction and the `pre_iteration` hook. If
//! several limits are reached at once, the first one in the table decides, so that the same run
//! always ends for the same reason. Terminate, cancel and halt are not in the table, because they are
//! decided as soon as their event arrives.

use super::context::RunContext;
use super::decided_by::{Decision, Layer};
use super::ending::Ending;
use super::guard::Flow;
use crate::termination::Termination;
use serde::Serialize;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// A limit that is checked before each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The limit.
    #[serde(skip)]
    pub check: PreTurnCheck,
    /// The name of the limit, as configuration spells it.
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

/// Returns the current value of a limit.
pub(super) fn check_state(context: &RunContext, check: PreTurnCheck) -> CheckState {
    let limits = &context.settings.limits;
    let turns = |value: u32, max: Option<u32>| ("turns", f64::from(value), max.map(f64::from));
    let (limit, (unit, value, max)) = match check {
        PreTurnCheck::MaxTurns => ("max_turns", turns(context.counts.turns, limits.max_turns)),
        PreTurnCheck::Mistakes => {
            let max = limits.max_consecutive_mistakes;
            ("max_consecutive_mistakes", turns(context.counts.mistakes, max))
        }
        PreTurnCheck::BudgetUsd => {
            let committed = context.ledger.committed().to_usd();
            ("max_budget_usd", ("usd", committed, limits.max_budget_usd))
        }
        PreTurnCheck::BudgetTokens => {
            let max = limits.max_tokens.map(|max| max as f64);
            ("max_tokens", ("tokens", context.ledger.committed_tokens() as f64, max))
        }
        PreTurnCheck::BudgetTime => {
            let max = limits.timeout.map(|max| max.as_secs_f64());
            ("timeout", ("seconds", context.now.as_secs_f64(), max))
        }
        PreTurnCheck::NoProgress => {
            let max = limits.max_unproductive_turns;
            ("max_unproductive_turns", turns(context.judge.unproductive(), max))
        }
    };
    CheckState { check, limit, unit, value, max, met: met(context, check).is_some() }
}

/// Returns the limit's name and the evidence if the limit is reached.
fn met(context: &RunContext, check: PreTurnCheck) -> Option<(Decision, String)> {
    // Limits are reached at equality: 25 of 25 turns leave no room for another one.
    let reached = |value: u32, limit: Option<u32>| limit.filter(|limit| value >= *limit);
    match check {
        PreTurnCheck::MaxTurns => reached(context.counts.turns, context.settings.limits.max_turns)
            .map(|max| (Decision::MaxTurns, format!("{} of {max} turns", context.counts.turns))),
        PreTurnCheck::Mistakes => {
            reached(context.counts.mistakes, context.settings.limits.max_consecutive_mistakes).map(
                |max| {
                    (
                        Decision::MaxConsecutiveMistakes,
                        format!(
                            "{} of {max} turns in a row whose every tool call failed",
                            context.counts.mistakes
                        ),
                    )
                },
            )
        }
        // Includes the possible cost of attempts that the provider did not count, see
        // `Ledger::committed`.
        PreTurnCheck::BudgetUsd => context.ledger.usd_exceeded().then(|| {
            let max = context.ledger.max_usd.unwrap_or_default();
            (
                Decision::MaxBudgetUsd,
                match context.ledger.more_spent() {
                    Some(more) => format!("{more}, of {max}"),
                    None => format!("{} of {max} spent", context.ledger.spent),
                },
            )
        }),
        PreTurnCheck::BudgetTokens => {
            context.ledger.tokens_exceeded().then(|| (Decision::MaxTokens, tokens_used(context)))
        }
        PreTurnCheck::BudgetTime => {
            let deadline = context.deadline().filter(|deadline| context.now >= *deadline);
            deadline.map(|deadline| (Decision::Timeout, time_used(context, deadline)))
        }
        PreTurnCheck::NoProgress => {
            let stuck = context.judge.unproductive();
            reached(stuck, context.settings.limits.max_unproductive_turns).map(|max| {
                (
                    Decision::MaxUnproductiveTurns,
                    format!("{stuck} of {max} turns in a row that repeat an earlier one and say nothing new"),
                )
            })
        }
    }
}

/// Describes the tokens that count against the token ceiling.
fn tokens_used(context: &RunContext) -> String {
    let ledger = &context.ledger;
    let max = ledger.max_tokens.unwrap_or_default();
    if let Some(more) = ledger.more_used() {
        return format!("{more}, of {max}");
    }
    format!("{} of {max} {}tokens used", ledger.counted_tokens(), ledger.counts.qualifier())
}

/// Describes the time that the run took.
pub(super) fn time_used(context: &RunContext, deadline: Duration) -> String {
    let (took, timeout) = (context.shown_time(), context.settings.limits.timeout);
    match timeout.map(|timeout| timeout.saturating_sub(deadline)) {
        Some(kept) if !kept.is_zero() => {
            format!("the run took {took:?} of {deadline:?}; {kept:?} are kept for the hand-over")
        }
        _ => format!("the run took {took:?} of {deadline:?}"),
    }
}

/// The terminations whose limits are reached now; the outcome lists them in `also`.
pub(super) fn also_true(context: &RunContext) -> Vec<Termination> {
    PRE_TURN
        .into_iter()
        .filter(|check| met(context, *check).is_some())
        .map(PreTurnCheck::termination)
        .collect()
}

/// Returns the ending of the first limit in [`PRE_TURN`] that is reached.
pub(super) fn check_limits(context: &RunContext) -> Flow {
    for check in PRE_TURN {
        if let Some((limit, evidence)) = met(context, check) {
            return Break(Ending::new(check.termination(), Layer::Limit, limit, evidence));
        }
    }
    Continue(())
}

/// Checks the run's deadline again before the verifier starts.
pub(super) fn check_deadline(context: &RunContext) -> Flow {
    let check = PreTurnCheck::BudgetTime;
    match met(context, check) {
        Some((limit, evidence)) => {
            Break(Ending::new(check.termination(), Layer::Limit, limit, evidence))
        }
        None => Continue(()),
    }
}

/// Checks the budgets again before a retry, because the failed attempt may have spent the rest.
pub(super) fn check_budgets(context: &RunContext) -> Flow {
    for check in [PreTurnCheck::BudgetUsd, PreTurnCheck::BudgetTokens] {
        if let Some((limit, evidence)) = met(context, check) {
            return Break(Ending::new(check.termination(), Layer::Limit, limit, evidence));
        }
    }
    Continue(())
}
