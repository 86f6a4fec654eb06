//! The usage of a run after each of its turns.
//!
//! ```text
//! let spent = Curve::of(&run, &prices);
//! ```

use crate::model::Trajectory;
use crate::pricing::Prices;
use endstop_core::NanoUsd;

/// Cumulative tokens and dollars after each turn; empty if the count of any turn is missing.
#[derive(Debug, Default)]
pub(in crate::backtest) struct Curve {
    pub(in crate::backtest) tokens: Vec<u64>,
    pub(in crate::backtest) usd: Vec<NanoUsd>,
}

impl Curve {
    /// Sums the usage of a run.
    pub(in crate::backtest) fn of(run: &Trajectory<'_>, prices: &Prices) -> Curve {
        let (mut tokens, mut usd) = (Vec::new(), Vec::new());
        let (mut all, mut cost) = (0u64, NanoUsd(0));
        let turns = run.turns().count();
        for step in run.turns() {
            if let Some(one) = step.tokens() {
                all = all.saturating_add(one);
                tokens.push(all);
            }
            if let Some(one) = prices.usd(step, run) {
                cost += NanoUsd::from_usd(one);
                usd.push(cost);
            }
        }
        // Partial sums would understate the savings, so they are discarded.
        if tokens.len() != turns {
            tokens.clear();
        }
        if usd.len() != turns {
            usd.clear();
        }
        Curve { tokens, usd }
    }
}
