//! The good runs that a candidate kills, and those that it stops after their work was done.
//!
//! ```text
//! killed.stop(Stop { turn, turns, success: true, full_from }, &spent);
//! ```
//!
//! A stop of a failed run saves the steps after it. A stop of a good run after the reward was full
//! loses nothing and saves them too. Any other stop of a good run kills it: the run has to be run again
//! from its start. What the candidate is worth is therefore the sum of all steps after its stops, less
//! all steps of the runs that it kills.

use super::curve::Curve;
use endstop_core::NanoUsd;
use serde::{Deserialize, Serialize};

/// A stop before the end of a run.
#[derive(Clone, Copy, Debug)]
pub(in crate::backtest) struct Stop {
    /// The turn after which the run is stopped.
    pub(in crate::backtest) turn: u32,
    /// Number of turns of the run.
    pub(in crate::backtest) turns: u32,
    /// The first turn after which the reward was full, if it is recorded.
    pub(in crate::backtest) full_from: Option<u32>,
}

impl Stop {
    /// Returns `true` if the stop kills the run, which is good.
    pub(in crate::backtest) fn kills(self) -> bool {
        self.full_from.is_none_or(|full| self.turn < full)
    }
}

/// The good runs that a candidate stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backtest) struct Killed {
    /// Good runs that were stopped after the reward was full.
    pub(in crate::backtest) done: u64,
    /// Number of these with at least four steps.
    pub(in crate::backtest) done4: u64,
    /// All steps of the good runs that were killed, and their usage.
    pub(in crate::backtest) steps: u64,
    pub(in crate::backtest) tokens: u64,
    pub(in crate::backtest) usd: NanoUsd,
}

impl Killed {
    /// Counts a stop of a good run with this usage.
    pub(in crate::backtest) fn stop(&mut self, stop: Stop, spent: &Curve) {
        if !stop.kills() {
            self.done += 1;
            self.done4 += u64::from(stop.turns >= 4);
            return;
        }
        self.steps += u64::from(stop.turns);
        self.tokens = self.tokens.saturating_add(spent.tokens.last().copied().unwrap_or(0));
        self.usd += spent.usd.last().copied().unwrap_or(NanoUsd(0));
    }

    /// Adds the counts of other runs.
    pub(in crate::backtest) fn add(&mut self, other: &Killed) {
        for (own, other) in [
            (&mut self.done, other.done),
            (&mut self.done4, other.done4),
            (&mut self.steps, other.steps),
            (&mut self.tokens, other.tokens),
        ] {
            *own = own.saturating_add(other);
        }
        self.usd += other.usd;
    }
}

/// Subtracts counts; a difference out of range saturates.
pub(in crate::backtest) fn difference(saved: u64, lost: u64) -> i64 {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    signed(saved).saturating_sub(signed(lost))
}
