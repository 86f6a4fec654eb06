//! What a run or a part of it has spent: usage, cost, turns and model calls.

use crate::usage::{NanoUsd, Unreported, Usage};
use serde::{Deserialize, Serialize};

/// The spending of a nested run, such as a sub-agent, since its last report; or that of a guest so
/// far ([`Guest::spending`](crate::guest::Guest::spending)).
///
/// ```
/// use endstop_core::guest::Spending;
/// let before = Spending { turns: 1, calls: 1, ..Spending::default() };
/// let mut now = before.clone();
/// now.add(&Spending { calls: 2, ..Spending::default() });
/// assert_eq!(now.since(&before), Spending { calls: 2, unreported: now.unreported, ..Spending::default() });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// Usage.
    pub usage: Usage,
    /// Known cost of that usage.
    pub cost: NanoUsd,
    /// `true` if part of the cost is unknown.
    pub cost_unknown: bool,
    /// Upper bound on the unreported usage. `None`: nothing is unreported or, if `cost_unknown` is
    /// set, the cost has no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<Unreported>,
    /// Number of turns that count towards `max_turns`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u32,
    /// Number of model calls, for the outcome.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u32,
}

impl Spending {
    /// Upper bound on what was not reported.
    pub fn unreported(&self) -> Unreported {
        self.unreported.unwrap_or(Unreported::of_unknown(self.cost_unknown))
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Spending) {
        let mut total = self.unreported();
        total += more.unreported();
        self.usage.add(&more.usage);
        self.cost += more.cost;
        self.cost_unknown |= more.cost_unknown;
        self.turns = self.turns.saturating_add(more.turns);
        self.calls = self.calls.saturating_add(more.calls);
        self.unreported = Some(total);
    }

    /// The part of this sum that is not in `before`, an earlier state of it.
    #[must_use]
    pub fn since(&self, before: &Spending) -> Spending {
        let unreported = increase(self.unreported(), before.unreported());
        Spending {
            usage: self.usage.since(&before.usage),
            cost: self.cost.saturating_sub(before.cost),
            // A bill that the tokens do not determine stays in doubt with each part of it.
            cost_unknown: self.cost_unknown && !before.cost_unknown
                || unreported.cost != Some(NanoUsd::ZERO)
                || !self.usage.billing.is_by_tokens(),
            unreported: Some(unreported),
            turns: self.turns.saturating_sub(before.turns),
            calls: self.calls.saturating_sub(before.calls),
        }
    }

    /// `true` if there is nothing to report.
    pub fn is_nothing(&self) -> bool {
        self.turns == 0
            && self.calls == 0
            && self.cost == NanoUsd::ZERO
            && !self.cost_unknown
            && self.unreported() == Unreported::NOTHING
            && self.usage.total_tokens() == 0
    }
}

/// The increase of a total. A total that had no bound before has nothing to add to that.
fn increase(now: Unreported, before: Unreported) -> Unreported {
    let since = now.since(before);
    Unreported {
        cost: before.cost.map_or(Some(NanoUsd::ZERO), |_| since.cost),
        tokens: before.tokens.map_or(Some(0), |_| since.tokens),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
