//! The thresholds of a run: each is crossed once.
//!
//! ```text
//! near.crossed(&used, &limits, &[80, 95]) // max_turns: 80 %
//! near.crossed(&used, &limits, &[80, 95]) // nothing more
//! ```

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

/// The thresholds that a run has crossed.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// The highest percentage that was crossed, for each limit.
    highest: [u8; 4],
}

/// A threshold that a run has crossed.
#[derive(Debug, PartialEq)]
pub(super) struct Crossing {
    limit: &'static str,
    percent: u8,
    used: Value,
    of: Value,
}

impl Crossing {
    pub(super) fn notice(&self, run_id: &str) -> Value {
        let Crossing { limit, percent, used, of } = self;
        json!({"type": "limit_near", "run_id": run_id, "limit": limit, "percent": percent, "used": used, "of": of})
    }
}

impl Near {
    /// Returns the thresholds that are crossed now for the first time. Of several of one limit it is the highest,
    /// because the others are no news any more.
    pub(super) fn crossed(
        &mut self,
        used: &Used,
        limits: &Limits,
        percentages: &[u8],
    ) -> Vec<Crossing> {
        #[expect(clippy::cast_precision_loss, reason = "a share of a limit")]
        let rows = [
            ("max_budget_usd", limits.max_budget_usd.map(|of| (used.cost.to_usd(), of))),
            ("max_turns", limits.max_turns.map(|of| (f64::from(used.turns), f64::from(of)))),
            ("max_tokens", limits.max_tokens.map(|of| (used.tokens as f64, of as f64))),
            ("timeout", limits.timeout.map(|of| (used.time.as_secs_f64(), of.as_secs_f64()))),
        ];
        let mut crossed = Vec::new();
        for ((limit, amounts), highest) in rows.into_iter().zip(&mut self.highest) {
            // A limit of 0 has no share.
            let Some((used, of)) = amounts.filter(|(_, of)| *of > 0.0) else { continue };
            // The product, because a share such as 0.8 has no exact representation.
            let is_crossed = |percent: &&u8| used * 100.0 >= of * f64::from(**percent);
            let Some(percent) = percentages.iter().rev().find(is_crossed) else { continue };
            if percent > highest {
                *highest = *percent;
                let number = |amount: f64| match limit {
                    "max_turns" | "max_tokens" => json!(amount as u64),
                    "timeout" => json!(amount.round()),
                    _ => json!(amount),
                };
                let (used, of) = (number(used), number(of));
                crossed.push(Crossing { limit, percent: *percent, used, of });
            }
        }
        crossed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percents(near: &mut Near, used: &Used, limits: &Limits) -> Vec<(&'static str, u8)> {
        near.crossed(used, limits, &[80, 95]).iter().map(|one| (one.limit, one.percent)).collect()
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
