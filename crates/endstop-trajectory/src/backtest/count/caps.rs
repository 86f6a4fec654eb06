//! Caps on turns, the baseline of all candidates: what each cap stops and saves.
//!
//! ```text
//! let caps = Caps::of(&lengths);
//! let cap = caps.best(killed);     // the best cap that kills no more good runs
//! ```

use crate::backtest::judge::killed::difference;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The lengths of runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::backtest) struct Lengths {
    /// Numbers of good and failed runs by number of steps.
    runs: BTreeMap<u32, (u64, u64)>,
    /// Good runs by the smallest cap that does not kill them: their number, the number of those with at
    /// least four steps, and their steps.
    spared: BTreeMap<u32, (u64, u64, u64)>,
}

/// The effect of a cap on turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::backtest) struct CapEffect {
    pub(in crate::backtest) turns: u32,
    pub(in crate::backtest) failed: u64,
    pub(in crate::backtest) good: u64,
    pub(in crate::backtest) good4: u64,
    /// Good runs that are killed: stopped before the reward was full.
    pub(in crate::backtest) killed: u64,
    pub(in crate::backtest) killed4: u64,
    pub(in crate::backtest) steps_saved: u64,
    /// Steps saved less all steps of the killed runs.
    pub(in crate::backtest) net_steps: i64,
}

impl Lengths {
    /// Counts a run; `full_from` is the first turn of a good run after which the reward was full.
    pub(in crate::backtest) fn count(&mut self, turns: u32, success: bool, full_from: Option<u32>) {
        let runs = self.runs.entry(turns).or_default();
        *(if success { &mut runs.0 } else { &mut runs.1 }) += 1;
        if success {
            let spared = self.spared.entry(full_from.unwrap_or(turns).min(turns)).or_default();
            spared.0 += 1;
            spared.1 += u64::from(turns >= 4);
            spared.2 += u64::from(turns);
        }
    }

    /// Adds the lengths of other runs.
    pub(in crate::backtest) fn add(&mut self, other: Lengths) {
        let sum = |own: &mut u64, other: u64| *own = own.saturating_add(other);
        for (turns, (good, failed)) in other.runs {
            let own = self.runs.entry(turns).or_default();
            sum(&mut own.0, good);
            sum(&mut own.1, failed);
        }
        for (turns, (runs, long, steps)) in other.spared {
            let own = self.spared.entry(turns).or_default();
            sum(&mut own.0, runs);
            sum(&mut own.1, long);
            sum(&mut own.2, steps);
        }
    }

    /// Returns the shortest length that is not exceeded by this share of the runs.
    pub(in crate::backtest) fn percentile(&self, share: f64) -> u32 {
        let sum = |all: u64, (good, failed): &(u64, u64)| {
            all.saturating_add(*good).saturating_add(*failed)
        };
        let all = self.runs.values().fold(0, sum);
        // Rounded up (nearest rank), so that at least this share of the runs is within the cap.
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (length, runs) in &self.runs {
            seen = sum(seen, runs);
            if seen >= wanted {
                return *length;
            }
        }
        0
    }
}

/// The effects of all caps that differ.
#[derive(Clone, Debug)]
pub(in crate::backtest) struct Caps(Vec<CapEffect>);

impl Caps {
    /// Computes the effect of each cap at which the set of stopped or killed runs changes. Between two
    /// of these a lower cap only saves more.
    pub(in crate::backtest) fn of(lengths: &Lengths) -> Caps {
        let mut turns: BTreeSet<u32> = lengths.runs.keys().copied().collect();
        turns.extend(lengths.spared.keys());
        turns.insert(1);
        turns.remove(&0);
        let mut caps: Vec<CapEffect> = Vec::with_capacity(turns.len());
        // From the longest run down, so that each sum is over the runs that a cap stops.
        let (mut runs, mut spared) = (lengths.runs.iter().rev(), lengths.spared.iter().rev());
        let (mut next_runs, mut next_spared) = (runs.next(), spared.next());
        let mut all = CapEffect::default();
        let (mut steps, mut killed_steps) = (0_u64, 0_u64);
        let sum = |own: &mut u64, other: u64| *own = own.saturating_add(other);
        for cap in turns.into_iter().rev() {
            while let Some((length, (good, failed))) =
                next_runs.filter(|(length, _)| **length > cap)
            {
                sum(&mut all.good, *good);
                sum(&mut all.good4, if *length >= 4 { *good } else { 0 });
                sum(&mut all.failed, *failed);
                sum(&mut steps, u64::from(*length).saturating_mul(good.saturating_add(*failed)));
                next_runs = runs.next();
            }
            while let Some((_, (good, long, own))) = next_spared.filter(|(at, _)| **at > cap) {
                sum(&mut all.killed, *good);
                sum(&mut all.killed4, *long);
                sum(&mut killed_steps, *own);
                next_spared = spared.next();
            }
            let stopped = all.good.saturating_add(all.failed);
            let saved = steps.saturating_sub(u64::from(cap).saturating_mul(stopped));
            let net_steps = difference(saved, killed_steps);
            caps.push(CapEffect { turns: cap, steps_saved: saved, net_steps, ..all });
        }
        Caps(caps)
    }

    /// Returns the effect of a cap at a length of a run; of none, if no run has this length.
    pub(in crate::backtest) fn at(&self, turns: u32) -> CapEffect {
        let found = self.0.iter().find(|cap| cap.turns == turns).copied();
        found.unwrap_or(CapEffect { turns, ..CapEffect::default() })
    }

    /// Returns the cap that is worth most among those that kill at most this number of good runs.
    pub(in crate::backtest) fn best(&self, killed: u64) -> Option<CapEffect> {
        // The caps begin with the highest; of equals the higher one is milder.
        self.0
            .iter()
            .filter(|cap| cap.killed <= killed)
            .rev()
            .max_by_key(|cap| cap.net_steps)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn effects_follow_from_the_runs(
            runs in proptest::collection::vec((1_u32..12, any::<bool>(), proptest::option::of(1_u32..14)), 1..30),
        ) {
            let mut lengths = Lengths::default();
            for (turns, success, full) in &runs {
                lengths.count(*turns, *success, *full);
            }
            let caps = Caps::of(&lengths);
            let net = |cap: u32| -> (u64, i64, u64) {
                let mut of = (0, 0, 0);
                for (turns, success, full) in &runs {
                    if *turns <= cap { continue }
                    let kills = *success && full.is_none_or(|full| cap < full.min(*turns));
                    of.0 += u64::from(kills);
                    of.1 += if kills { -i64::from(cap) } else { i64::from(turns - cap) };
                    of.2 += u64::from(turns - cap);
                }
                of
            };
            for cap in &caps.0 {
                prop_assert_eq!((cap.killed, cap.net_steps, cap.steps_saved), net(cap.turns));
            }
            // No other cap is worth more at the same harm.
            for killed in 0..4 {
                let best = (1..15).map(net).filter(|cap| cap.0 <= killed).map(|cap| cap.1).max();
                prop_assert_eq!(caps.best(killed).map(|cap| cap.net_steps), best);
            }
        }
    }
}
