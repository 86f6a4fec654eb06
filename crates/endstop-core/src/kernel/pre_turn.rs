//! The limits that are checked before each turn, in their fixed order.

use crate::termination::Termination;
use serde::Serialize;

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
