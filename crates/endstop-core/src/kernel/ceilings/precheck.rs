//! Checks the limits before each turn.
//!
//! The order is one table, [`PRE_TURN`]; then come compaction and the `pre_iteration` hook. If
//! several limits are reached at once, the first one in the table decides, so that the same run
//! always ends for the same reason. Terminate, cancel and halt are not in the table, because they are
//! decided as soon as their event arrives.

use super::pause::{window_left, window_pause, window_used};
use super::tool_calls::exhausted;
use crate::kernel::context::RunContext;
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::limits::{Limit, LimitValue};
use crate::termination::Termination;
use serde::Serialize;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// A limit that is checked before each turn.
#[derive(Clone, Copy, Debug)]
pub struct PreTurnCheck {
    /// The limit.
    pub limit: Limit,
    /// The termination of a run that has reached the limit.
    pub termination: Termination,
    used: Used,
}

/// The amount that is compared with a limit.
#[derive(Clone, Copy, Debug)]
enum Used {
    /// A number that the run counts; the words say of which things in the evidence.
    Count(fn(&RunContext) -> u32, &'static str),
    /// An amount, and the evidence if the limit is reached.
    Amount(fn(&RunContext) -> f64, fn(&RunContext) -> Option<String>),
}

/// The limits checked before each turn, in this order; then come compaction and the `pre_iteration`
/// hook.
pub const PRE_TURN: [PreTurnCheck; 8] = [
    PreTurnCheck {
        limit: Limit::MaxTurns,
        termination: Termination::ErrorMaxTurns,
        used: Used::Count(
            |context| context.counts.turns.saturating_add(context.guest.turns_in_flight),
            "turns",
        ),
    },
    PreTurnCheck {
        limit: Limit::MaxConsecutiveMistakes,
        termination: Termination::ErrorConsecutiveMistakes,
        used: Used::Count(
            |context| context.counts.mistakes,
            "turns in a row whose every tool call failed",
        ),
    },
    PreTurnCheck {
        limit: Limit::MaxToolCalls,
        termination: Termination::ErrorMaxToolCalls,
        // Met by a call that was not started, because as many calls as allowed may be followed by an answer.
        used: Used::Amount(|context| f64::from(context.counts.started), tool_calls_used),
    },
    BUDGET_USD,
    BUDGET_TOKENS,
    WINDOW,
    TIME,
    PreTurnCheck {
        limit: Limit::MaxUnproductiveTurns,
        termination: Termination::ErrorNoProgress,
        used: Used::Amount(|context| f64::from(context.judge.unproductive()), unproductive),
    },
];

const BUDGET_USD: PreTurnCheck = PreTurnCheck {
    limit: Limit::MaxBudgetUsd,
    termination: Termination::ErrorMaxBudgetUsd,
    used: Used::Amount(|context| context.ledger.committed().to_usd(), usd_spent),
};

const BUDGET_TOKENS: PreTurnCheck = PreTurnCheck {
    limit: Limit::MaxTokens,
    termination: Termination::ErrorMaxTokens,
    used: Used::Amount(|context| context.ledger.committed_tokens() as f64, tokens_used),
};

const WINDOW: PreTurnCheck = PreTurnCheck {
    limit: Limit::MaxWindow,
    termination: Termination::ErrorMaxWindow,
    used: Used::Amount(
        |context| {
            let shares = context.settings.limits.max_window;
            let nearest = shares.and_then(|shares| context.windows.nearest(&shares, context.now));
            nearest.map(|(used, _)| used).unwrap_or_default()
        },
        window_used,
    ),
};

const TIME: PreTurnCheck = PreTurnCheck {
    limit: Limit::Timeout,
    termination: Termination::ErrorTimeout,
    used: Used::Amount(
        |context| context.now.as_secs_f64(),
        |context| {
            let deadline = context.deadline().filter(|deadline| context.now >= *deadline);
            deadline.map(|deadline| time_used(context, deadline))
        },
    ),
};

/// A limit that is checked before each turn, with its current value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CheckState {
    /// The limit.
    pub limit: Limit,
    /// Unit of the values: `turns`, `usd`, `tokens`, `seconds` or, for other counts, `times`.
    pub unit: &'static str,
    /// Current value.
    pub value: f64,
    /// The limit; `None`: off.
    pub max: Option<f64>,
    /// `true` if the limit is reached.
    pub met: bool,
}

impl PreTurnCheck {
    /// Returns the current value of the limit.
    pub(crate) fn state(&self, context: &RunContext) -> CheckState {
        let row = self.limit.row();
        let max = match row.value(&context.settings.limits) {
            LimitValue::Count(max) => Some(max as f64),
            LimitValue::Usd(max) => Some(max),
            LimitValue::Time(max) => Some(max.as_secs_f64()),
            LimitValue::Windows(shares) => {
                context.windows.nearest(&shares, context.now).map(|(_, share)| share)
            }
            LimitValue::Off
            | LimitValue::Switch(_)
            | LimitValue::Tokens(_)
            | LimitValue::Rates(_) => None,
        };
        let value = match self.used {
            Used::Count(count, _) => f64::from(count(context)),
            Used::Amount(amount, _) => amount(context),
        };
        let met = self.met(context).is_some();
        CheckState { limit: self.limit, unit: row.unit.as_str(), value, max, met }
    }

    /// Returns the evidence if the limit is reached.
    fn met(&self, context: &RunContext) -> Option<String> {
        let (count, what) = match self.used {
            Used::Amount(_, met) => return met(context),
            Used::Count(count, what) => (count(context), what),
        };
        match self.limit.row().value(&context.settings.limits) {
            // Limits are reached at equality: 25 of 25 turns leave no room for another one.
            LimitValue::Count(max) if u64::from(count) >= max => {
                Some(format!("{count} of {max} {what}"))
            }
            _ => None,
        }
    }

    /// Ends the run if the limit is reached.
    fn check(&self, context: &RunContext) -> Flow {
        let Some(evidence) = self.met(context) else { return Continue(()) };
        let mut ending = Ending::at_limit(self.limit, self.termination, evidence);
        if self.limit == Limit::MaxWindow {
            if window_pause(context, context.now).is_some() {
                return Continue(());
            }
            ending.retry_after = window_left(context);
        }
        Break(ending)
    }
}

/// Describes the repetition, if its limit is reached.
fn unproductive(context: &RunContext) -> Option<String> {
    let (count, max) =
        (context.judge.unproductive(), context.settings.limits.max_unproductive_turns);
    let max = max.filter(|max| count >= *max)?;
    Some(match context.judge.similar() {
        None => {
            format!(
                "{count} of {max} turns in a row that repeat an earlier one and say nothing new"
            )
        }
        Some(similar) => format!(
            "{similar} turns in a row that are like an earlier one but for numbers, times, order or a word: {count} of {max} unproductive turns"
        ),
    })
}

/// Describes the calls, if one was not started because its limit was reached.
fn tool_calls_used(context: &RunContext) -> Option<String> {
    let over = context.counts.over_calls.as_deref()?;
    exhausted(over, context)
}

/// Describes the money spent, if the cost ceiling is reached. That includes the possible cost of
/// attempts that the provider did not count, see `Ledger::committed`.
fn usd_spent(context: &RunContext) -> Option<String> {
    let ledger = &context.ledger;
    ledger.usd_exceeded().then(|| {
        let max = ledger.max_usd.unwrap_or_default();
        match ledger.more_spent() {
            Some(more) => format!("{more}, of {max}"),
            None => format!("{} of {max} spent", ledger.spent),
        }
    })
}

/// Describes the tokens that count against the token ceiling, if it is reached.
fn tokens_used(context: &RunContext) -> Option<String> {
    let ledger = &context.ledger;
    ledger.tokens_exceeded().then(|| {
        let max = ledger.max_tokens.unwrap_or_default();
        if let Some(more) = ledger.more_used() {
            return format!("{more}, of {max}");
        }
        let which = ledger.counts.qualifier();
        format!("{} of {max} {which}tokens used", ledger.counted_tokens())
    })
}

/// Describes the time that the run took.
pub(crate) fn time_used(context: &RunContext, deadline: Duration) -> String {
    let (took, timeout) = (context.shown_time(), context.settings.limits.timeout);
    match timeout.map(|timeout| timeout.saturating_sub(deadline)) {
        Some(kept) if !kept.is_zero() => {
            format!("the run took {took:?} of {deadline:?}; {kept:?} are kept for the hand-over")
        }
        _ => format!("the run took {took:?} of {deadline:?}"),
    }
}

/// The terminations whose limits are reached now; the outcome lists them in `also`.
pub(crate) fn also_true(context: &RunContext) -> Vec<Termination> {
    let reached = PRE_TURN.iter().filter(|check| check.met(context).is_some());
    reached.map(|check| check.termination).collect()
}

/// Returns the ending of the first limit in [`PRE_TURN`] that is reached.
pub(crate) fn check_limits(context: &RunContext) -> Flow {
    PRE_TURN.iter().try_for_each(|check| check.check(context))
}

/// Checks the run's deadline again before the verifier starts.
pub(crate) fn check_deadline(context: &RunContext) -> Flow {
    TIME.check(context)
}

/// Ends the run if a window of the subscription is used up and the run does not wait for it.
pub(crate) fn check_window(context: &RunContext) -> Flow {
    WINDOW.check(context)
}

/// Checks the budgets again before a retry, because the failed attempt may have spent the rest.
pub(crate) fn check_budgets(context: &RunContext) -> Flow {
    BUDGET_USD.check(context)?;
    BUDGET_TOKENS.check(context)
}
