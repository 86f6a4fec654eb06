//! The outcome and the usage of runs, as sums of whole numbers: they do not depend on the order in
//! which threads count.
//!
//! ```text
//! task.count(&run, &prices);
//! let mean = task.steps.mean();
//! ```

use crate::model::Trajectory;
use crate::pricing::Prices;
use endstop_core::NanoUsd;

/// A sum over runs that have a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) runs: u32,
    pub(super) total: i128,
}

impl Sum {
    pub(super) fn add(&mut self, value: i128) {
        self.runs = self.runs.saturating_add(1);
        self.total = self.total.saturating_add(value);
    }

    pub(super) fn merge(&mut self, other: Sum) {
        self.runs = self.runs.saturating_add(other.runs);
        self.total = self.total.saturating_add(other.total);
    }

    /// Returns the mean; `None` without a run.
    pub(super) fn mean(self) -> Option<f64> {
        (self.runs > 0).then(|| self.total as f64 / f64::from(self.runs))
    }
}

/// The usage of one run, up to a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) steps: u32,
    /// Tokens; `None` if a turn has no count.
    pub(super) tokens: Option<u64>,
    /// Dollars; `None` if a turn has neither a cost nor a price.
    pub(super) usd: Option<NanoUsd>,
}

impl Used {
    /// Returns the usage of a run until it is stopped after this turn, and of the whole run.
    pub(super) fn until(run: &Trajectory<'_>, stops: &[Option<u32>], prices: &Prices) -> Vec<Used> {
        let mut all = Used { steps: 0, tokens: Some(0), usd: Some(NanoUsd(0)) };
        // Taken at the stop, but unknown if any turn of the run is: otherwise one policy would be
        // compared on other runs than the other.
        let mut found = vec![None; stops.len()];
        for step in run.turns() {
            all.steps = all.steps.saturating_add(1);
            all.tokens = all.tokens.zip(step.tokens()).map(|(sum, one)| sum.saturating_add(one));
            let cost = prices.usd(step, run).map(NanoUsd::from_usd);
            all.usd = all.usd.zip(cost).map(|(mut sum, one)| {
                sum += one;
                sum
            });
            for (found, stop) in found.iter_mut().zip(stops) {
                if *stop == Some(all.steps) {
                    *found = Some(all);
                }
            }
        }
        let known = |used: Used| Used {
            steps: used.steps,
            tokens: used.tokens.filter(|_| all.tokens.is_some()),
            usd: used.usd.filter(|_| all.usd.is_some()),
        };
        found.into_iter().map(|found| known(found.unwrap_or(all))).collect()
    }
}
