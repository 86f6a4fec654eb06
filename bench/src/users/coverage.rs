//! Counts the 95 % intervals of users that contain the value of the population.

use endstop_trajectory::backtest::{CandidateFigures, DatasetFigures, Figures, Share};
use std::collections::BTreeMap;

/// The share of intervals that should at least contain the value of the population.
const LEAST: f64 = 0.93;

/// Intervals, and those of them that contain the value of the population.
#[derive(Clone, Copy, Default)]
struct Held {
    held: u64,
    all: u64,
}

impl Held {
    /// Counts an interval.
    fn count(&mut self, own: &Share, value: f64) {
        // Without a case there is no interval.
        if own.value.is_some() {
            self.bounds(own.low, own.high, value);
        }
    }

    fn bounds(&mut self, low: f64, high: f64, value: f64) {
        // The tolerance is for rounding, because bounds and value are computed in different ways.
        self.held += u64::from(low - 1e-12 <= value && value <= high + 1e-12);
        self.all += 1;
    }

    fn add(&mut self, other: Held) {
        self.held += other.held;
        self.all += other.all;
    }

    /// Returns the percentage that contains the value.
    fn percent(&self) -> f64 {
        100.0 * self.held as f64 / self.all.max(1) as f64
    }

    /// Returns the probability that as few intervals, or fewer, contain the value if each of them does with
    /// the least probability.
    fn by_chance(&self) -> f64 {
        let all = self.all as f64;
        // The logarithm, because the probability of 0 of 1,000 is less than the smallest number.
        let mut term = all * (1.0 - LEAST).ln();
        let mut sum = term.exp();
        for k in 1..=self.held {
            term += ((all - k as f64 + 1.0) / k as f64).ln() + (LEAST / (1.0 - LEAST)).ln();
            sum += term.exp();
        }
        sum.min(1.0)
    }
}

/// The intervals of a report by kind of figure, and by candidate or group.
#[derive(Default)]
pub(crate) struct Coverage {
    held: BTreeMap<(usize, String), Held>,
}

/// Cells of the output, and those of them that are below the least share.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cells {
    pub(crate) all: u64,
    pub(crate) below: u64,
    /// The smallest probability of one of them by chance.
    pub(crate) least_likely: Option<f64>,
}

impl Cells {
    /// Adds the cells of another part of the output.
    pub(crate) fn add(&mut self, other: Cells) {
        self.all += other.all;
        self.below += other.below;
        let both = self.least_likely.into_iter().chain(other.least_likely);
        self.least_likely = both.min_by(f64::total_cmp);
    }
}

/// The figures in the order of their output.
const NAMES: [&str; 7] = [
    "failed runs stopped",
    "good runs killed",
    "good runs of 4 steps killed",
    "failed − good",
    "success of a group",
    "good runs stopped",
    "good runs of 4 steps stopped",
];

impl Coverage {
    /// Counts the intervals of a user's report: of the whole, and of each dataset.
    pub(crate) fn count(&mut self, user: &Figures, truth: &Figures) {
        for own in &user.datasets {
            let Some(real) = truth.datasets.iter().find(|real| real.name == own.name) else {
                continue;
            };
            for (candidate, real) in own.candidates.iter().zip(&real.candidates) {
                self.candidate(own, candidate, real);
            }
        }
        for group in &user.groups {
            let real = truth.groups.iter().find(|other| other.group == group.group);
            let Some(value) = real.and_then(|real| real.success.value) else { continue };
            // A share of 0 or 1 in the population cannot be missed.
            if value > 0.0 && value < 1.0 {
                self.of(4, group.group.to_string()).count(&group.success, value);
            }
        }
    }

    fn candidate(&mut self, of: &DatasetFigures, own: &CandidateFigures, real: &CandidateFigures) {
        let name = || format!("{} {}", of.name, own.name);
        let shares = [
            (0, &own.failed_stopped, &real.failed_stopped),
            (1, &own.good_killed, &real.good_killed),
            (2, &own.good4_killed, &real.good4_killed),
            (5, &own.good_stopped, &real.good_stopped),
            (6, &own.good4_stopped, &real.good4_stopped),
        ];
        for (at, own, real) in shares {
            // A share of 0 in the population is 0 for every user, so that no interval misses it.
            if let Some(value) = real.value.filter(|value| *value > 0.0) {
                self.of(at, name()).count(own, value);
            }
        }
        if let (Some(pairs), Some(real)) = (own.paired, real.paired)
            && real.difference != 0.0
        {
            self.of(3, name()).bounds(pairs.low, pairs.high, real.difference);
        }
    }

    fn of(&mut self, figure: usize, name: String) -> &mut Held {
        self.held.entry((figure, name)).or_default()
    }

    /// Adds the intervals of other users.
    pub(crate) fn add(&mut self, other: Coverage) {
        for (key, held) in other.held {
            self.held.entry(key).or_default().add(held);
        }
    }

    /// Returns a line for each figure: the mean over all candidates or groups, the lowest of those that a
    /// tenth of the users have, and the candidates and groups that are below the least share.
    pub(crate) fn lines(&self, runs: usize, users: u64) -> (Vec<String>, Cells) {
        let (mut lines, mut cells) = (Vec::new(), Cells::default());
        for (at, figure) in NAMES.iter().enumerate() {
            let of = || self.held.iter().filter(|((figure, _), _)| *figure == at);
            let mut all = Held::default();
            of().for_each(|(_, held)| all.add(*held));
            let often: Vec<_> = of().filter(|(_, held)| held.all * 10 >= users).collect();
            let lowest = often.iter().min_by(|a, b| a.1.percent().total_cmp(&b.1.percent()));
            let Some(((_, lowest), held)) = lowest else { continue };
            lines.push(format!(
                "  {runs:>5} runs  {} intervals of {figure} hold {:.1} %; lowest {:.1} % of {} ({lowest})",
                often.len(),
                all.percent(),
                held.percent(),
                held.all,
            ));
            cells.all += often.len() as u64;
            for ((_, name), held) in often {
                if held.percent() < 100.0 * LEAST {
                    cells.add(Cells { below: 1, least_likely: Some(held.by_chance()), all: 0 });
                    lines.push(format!(
                        "{:14}below {:.0} %: {:.1} % of {}, by chance {:.2e} ({name})",
                        "",
                        100.0 * LEAST,
                        held.percent(),
                        held.all,
                        held.by_chance()
                    ));
                }
            }
        }
        (lines, cells)
    }
}
