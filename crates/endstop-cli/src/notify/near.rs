//! The amounts of a run that a person is notified of, and the notice when one is near its limit.
//!
//! ```text
//! near.crossed(used.of(&limits), &[80, 95]) // max_turns: 80 %
//! near.crossed(used.of(&limits), &[80, 95]) // nothing more
//! ```

use endstop::core::limits::Unit;
use endstop::core::{Crossing, Limit};
use endstop::{Limits, NanoUsd};
use serde_json::{Value, json};
use std::time::Duration;

/// Amounts that a run has used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) turns: u32,
    pub(super) cost: NanoUsd,
    pub(super) tokens: u64,
    pub(super) time: Duration,
}

impl Used {
    /// The used amounts of the limits that a person is notified of, with their values.
    pub(super) fn of(&self, limits: &Limits) -> Vec<(Limit, f64, f64)> {
        #[expect(clippy::cast_precision_loss, reason = "a share of a limit")]
        let rows = [
            (Limit::MaxBudgetUsd, limits.max_budget_usd.map(|of| (self.cost.to_usd(), of))),
            (Limit::MaxTurns, limits.max_turns.map(|of| (f64::from(self.turns), f64::from(of)))),
            (Limit::MaxTokens, limits.max_tokens.map(|of| (self.tokens as f64, of as f64))),
            (Limit::Timeout, limits.timeout.map(|of| (self.time.as_secs_f64(), of.as_secs_f64()))),
        ];
        let amounts = rows.into_iter().filter_map(|(limit, amounts)| {
            let (used, of) = amounts?;
            Some((limit, used, of))
        });
        amounts.collect()
    }
}

/// Returns the notice of a threshold that a run has crossed.
pub(super) fn notice(crossing: &Crossing, run_id: &str) -> Value {
    let Crossing { limit, percent, used, of } = crossing;
    let number = |amount: f64| match limit.row().unit {
        Unit::Turns | Unit::Tokens | Unit::Count => json!(amount as u64),
        Unit::Time => json!(amount.round()),
        Unit::Usd | Unit::Switch | Unit::TokensCounted | Unit::Windows | Unit::Rates => {
            json!(amount)
        }
    };
    let (used, of) = (number(*used), number(*of));
    json!({"type": "limit_near", "run_id": run_id, "limit": limit, "percent": percent, "used": used, "of": of})
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::core::Near;

    fn percents(near: &mut Near, used: &Used, limits: &Limits) -> Vec<(&'static str, u8)> {
        let crossed = near.crossed(used.of(limits), &[80, 95]);
        crossed.iter().map(|one| (one.limit.name(), one.percent)).collect()
    }

    #[test]
    fn each_threshold_is_crossed_once() {
        let mut limits = Limits { max_turns: Some(100), ..Limits::none() };
        let mut near = Near::default();
        let mut all = Vec::new();
        for turns in 0..=100 {
            all.extend(percents(&mut near, &Used { turns, ..Used::default() }, &limits));
        }
        assert_eq!(all, [("max_turns", 80), ("max_turns", 95)]);
        // Also if the limit is raised and reached again.
        limits.max_turns = Some(200);
        let used = Used { turns: 200, ..Used::default() };
        assert_eq!(percents(&mut near, &used, &limits), []);
    }

    #[test]
    fn all_four_limits_count() {
        let limits = Limits {
            max_turns: Some(10),
            max_budget_usd: Some(2.0),
            max_tokens: Some(1000),
            timeout: Some(Duration::from_secs(10)),
            ..Limits::none()
        };
        let used = Used {
            turns: 8,
            cost: NanoUsd::from_usd(1.9),
            tokens: 799,
            time: Duration::from_secs(11),
        };
        let expected = [("max_budget_usd", 95), ("max_turns", 80), ("timeout", 95)];
        assert_eq!(percents(&mut Near::default(), &used, &limits), expected);
        assert_eq!(percents(&mut Near::default(), &used, &Limits::none()), []);
        let zero = Limits { max_turns: Some(0), ..Limits::none() };
        assert_eq!(percents(&mut Near::default(), &used, &zero), []);
    }
}
