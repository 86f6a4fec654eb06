//! How often the 95 % intervals of users contain the value of the population.

use endstop_trajectory::backtest::{CandidateFigures, Figures, Share};
use std::collections::BTreeMap;

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
        self.held += u64::from(low - 1e-12 <= value && value <= high + 1e-12);
        self.all += 1;
    }

    /// Returns the percentage that contains the value.
    fn percent(&self) -> f64 {
        100.0 * self.held as f64 / self.all.max(1) as f64
    }
}

/// The intervals of a report by kind of figure, and by candidate or group.
#[derive(Default)]
pub(crate) struct Coverage {
    held: BTreeMap<(usize, String), Held>,
}

/// The figures in the order of their output.
const NAMES: [&str; 5] = [
    "failed runs stopped",
    "good runs killed",
    "good runs of 4 steps killed",
    "failed − good",
    "success of a group",
];

impl Coverage {
    /// Counts the intervals of a user's report.
    pub(crate) fn count(&mut self, user: &Figures, truth: &Figures) {
        let (Some(own), Some(real)) = (user.whole(), truth.whole()) else { return };
        for (own, real) in own.candidates.iter().zip(&real.candidates) {
            self.candidate(own, real);
        }
        for group in &user.groups {
            let real = truth.groups.iter().find(|other| other.group == group.group);
            let Some(value) = real.and_then(|real| real.success.value) else { continue };
            // A share of 0 or 1 in the population cannot be missed.
            if value > 0.0 && value < 1.0 {
                self.of(4, &group.group.to_string()).count(&group.success, value);
            }
        }
    }

    fn candidate(&mut self, own: &CandidateFigures, real: &CandidateFigures) {
        let shares = [
            (&own.failed_stopped, &real.failed_stopped),
            (&own.good_killed, &real.good_killed),
            (&own.good4_killed, &real.good4_killed),
        ];
        for (at, (own_share, real)) in shares.into_iter().enumerate() {
            if let Some(value) = real.value.filter(|value| *value > 0.0) {
                self.of(at, &own.name).count(own_share, value);
            }
        }
        if let (Some(pairs), Some(real)) = (own.paired, real.paired)
            && real.difference != 0.0
        {
            self.of(3, &own.name).bounds(pairs.low, pairs.high, real.difference);
        }
    }

    fn of(&mut self, figure: usize, name: &str) -> &mut Held {
        self.held.entry((figure, name.to_owned())).or_default()
    }

    /// Returns a line for each figure: the mean, and the lowest of all candidates or groups.
    pub(crate) fn lines(&self, runs: usize, users: u64) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, name) in NAMES.iter().enumerate() {
            let of = || self.held.iter().filter(|((figure, _), _)| *figure == at);
            let mut all = Held::default();
            for (_, held) in of() {
                (all.held, all.all) = (all.held + held.held, all.all + held.all);
            }
            let often = of().filter(|(_, held)| held.all * 10 >= users);
            let lowest = often.min_by(|a, b| a.1.percent().total_cmp(&b.1.percent()));
            let Some(((_, one), held)) = lowest else { continue };
            lines.push(format!(
                "  {runs:>5} runs  intervals of {name} hold {:.1} %; lowest {:.1} % ({one})",
                all.percent(),
                held.percent()
            ));
        }
        lines
    }
}
