//! The confidence interval of a share of runs, if runs of the same task are alike.
//!
//! ```text
//! let mut clusters = Clusters::default();
//! for task in tasks { clusters.add(task.stopped, task.failed); }
//! let share = clusters.share(stopped, failed);
//! ```
//!
//! Ten runs of one task tell less than ten runs of ten tasks. The interval is that of Clopper and
//! Pearson for an effective number of runs: the number of runs divided by the factor by which the
//! variance between tasks exceeds that of independent runs, and reduced again for few tasks (Korn and
//! Graubard, 1998).
//!
//! That variance is known only if enough tasks show it. If a single task in fifty has most of the
//! cases, a sample without that task looks as if runs were independent. Therefore the effective number
//! is at most the number of tasks if no task differs from the others, and it may grow with the number
//! of tasks that differ: up to [`ENOUGH`] of them it is at most `tasks · (1 + (differing / 10)²)`.
//!
//! Of very many tasks only a sample is counted. The variance is then an estimate from that sample; the
//! share itself is that of all runs.

use crate::backtest::count::counts::{Share, interval};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Number of tasks with a case, or without one if that is less, from which on the variance is known.
const ENOUGH: f64 = 20.0;

/// The runs of each task, summed up.
#[derive(Clone, Debug, Default)]
pub(in crate::backtest) struct Clusters {
    /// Number of tasks, and of their runs.
    tasks: u64,
    runs: u64,
    /// Number of tasks with several runs.
    several: u64,
    /// Number of tasks with a case, and with a run that is not a case.
    with_case: u64,
    with_other: u64,
    /// Sums over tasks: cases², cases · runs, runs². Integers, because sums of fractions depend on the order.
    squares: [u128; 3],
    /// Number of further tasks with a single run, all of which are here, and of the cases among them.
    singles: u64,
    single_cases: u64,
}

impl Clusters {
    /// Adds a task with this number of cases among its runs.
    pub(in crate::backtest) fn add(&mut self, cases: u32, runs: u32) {
        if runs == 0 {
            return;
        }
        let cases = cases.min(runs);
        self.tasks += 1;
        self.runs += u64::from(runs);
        self.several += u64::from(runs > 1);
        self.with_case += u64::from(cases > 0);
        self.with_other += u64::from(cases < runs);
        let (cases, runs) = (u128::from(cases), u128::from(runs));
        for (sum, term) in self.squares.iter_mut().zip([cases * cases, cases * runs, runs * runs]) {
            *sum = sum.saturating_add(term);
        }
    }

    /// Adds tasks with one run each.
    pub(in crate::backtest) fn add_singles(&mut self, cases: u64, runs: u64) {
        self.singles = self.singles.saturating_add(runs);
        self.single_cases = self.single_cases.saturating_add(cases.min(runs));
    }

    /// Returns the share of `cases` in `runs`, with the interval that these tasks give. The runs are
    /// those of all tasks, of which these may be a sample.
    pub(in crate::backtest) fn share(&self, cases: u64, runs: u64) -> Share {
        let (cases, runs) = (cases.min(runs) as f64, runs as f64);
        // With one run of each task the runs are independent, and the interval is exact.
        if runs <= 0.0 || self.several == 0 {
            return interval(cases, runs);
        }
        let effective = self.effective(cases / runs, runs).min(runs);
        interval(cases / runs * effective, effective)
    }

    /// As [`share`](Self::share), for cases whose tasks are not known: all runs of a task count as
    /// alike, so that the interval is rather too wide.
    pub(in crate::backtest) fn widest_share(&self, cases: u64, runs: u64) -> Share {
        let (cases, runs) = (cases.min(runs) as f64, runs as f64);
        if runs <= 0.0 || self.several == 0 {
            return interval(cases, runs);
        }
        let squares = self.squares[2] as f64 * self.scale(runs) + self.singles as f64;
        // The number of equally large tasks that would weigh as much.
        let effective = (runs * runs / squares).clamp(1.0, runs);
        interval(cases / runs * effective, effective)
    }

    /// Returns the number of tasks for each task that is here: 1, unless these are a sample.
    fn scale(&self, runs: f64) -> f64 {
        ((runs - self.singles as f64) / self.runs.max(1) as f64).max(1.0)
    }

    /// Returns the number of independent runs that would tell as much.
    fn effective(&self, share: f64, runs: f64) -> f64 {
        let scale = self.scale(runs);
        let (singles, single_cases) = (self.singles as f64, self.single_cases as f64);
        let tasks = self.tasks as f64 * scale + singles;
        if tasks < 2.0 {
            return 1.0;
        }
        let differing = f64::min(
            self.with_case as f64 * scale + single_cases,
            self.with_other as f64 * scale + singles - single_cases,
        );
        let most = if differing < ENOUGH {
            tasks * (1.0 + (2.0 * differing / ENOUGH).powi(2))
        } else {
            f64::INFINITY
        };
        let [cases2, cross, runs2] = self.squares.map(|sum| sum as f64);
        let residual = cases2 - 2.0 * share * cross + share * share * runs2;
        let of_singles =
            single_cases * (1.0 - share).powi(2) + (singles - single_cases) * share * share;
        // A difference of large sums: of equal tasks it is not exactly 0.
        let residual = if residual <= 1e-12 * cases2 { 0.0 } else { residual * scale } + of_singles;
        let variance = tasks / (tasks - 1.0) * residual / (runs * runs);
        if variance <= 0.0 {
            return tasks;
        }
        let quantile = |freedom: f64| {
            StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(1.96, |t| t.inverse_cdf(0.975))
        };
        let few = quantile(runs - 1.0) / quantile(tasks - 1.0);
        (share * (1.0 - share) / variance * few * few).min(most).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::share;

    #[test]
    fn single_runs_are_independent() {
        let mut clusters = Clusters::default();
        clusters.add_singles(300, 1000);
        assert_eq!(clusters.share(300, 1000), share(300, 1000));
        // One task with two runs hardly changes that.
        clusters.add(1, 2);
        let (own, exact) = (clusters.share(301, 1002), share(301, 1002));
        assert!((own.low - exact.low).abs() < 0.001 && (own.high - exact.high).abs() < 0.001);
    }

    #[test]
    fn alike_runs_count_as_one() {
        // Fifty tasks with ten runs each, of which all or none are cases.
        let mut clusters = Clusters::default();
        for task in 0..50 {
            clusters.add(if task < 20 { 10 } else { 0 }, 10);
        }
        let (own, tasks) = (clusters.share(200, 500), share(20, 50));
        assert!(
            (own.low - tasks.low).abs() < 0.02 && (own.high - tasks.high).abs() < 0.02,
            "{own:?}"
        );
        assert_eq!(clusters.widest_share(200, 500), share(20, 50));
        let mut none = Clusters::default();
        (0..50).for_each(|_| none.add(0, 10));
        let bounds = none.share(0, 500);
        assert_eq!((bounds.low, bounds.high), (0.0, share(0, 50).high));
        assert_eq!(Clusters::default().share(0, 0).value, None);
        let mut one = Clusters::default();
        one.add(3, 9);
        assert!(one.share(3, 9).high > 0.95, "one task tells nothing about others");
    }

    #[test]
    fn few_differing_tasks_keep_width() {
        // In each of these tasks one of twenty runs is a case: a rule that looks independent of the task.
        let bounds = |differing: u64| {
            let mut clusters = Clusters::default();
            (0..100).for_each(|task| clusters.add(u32::from(task < differing), 20));
            clusters.share(differing, 2000).high
        };
        let by_task = share(0, 100).high;
        let all: Vec<f64> = (0..40).map(bounds).collect();
        // A few cases in as many tasks do not show that runs are independent, and are no better news than none.
        assert!(all[1] > by_task && all[5] > by_task, "{all:?}");
        assert!((all[30] - share(30, 2000).high).abs() < 0.001, "{all:?}");
    }

    #[test]
    fn sample_estimates_variance_of_all() {
        // A hundred of a thousand equal blocks of tasks.
        let mut sample = Clusters::default();
        let mut whole = Clusters::default();
        for block in 0..1000 {
            for (cases, runs) in [(0, 4), (3, 4), (1, 2), (0, 1)] {
                whole.add(cases, runs);
                if block < 100 {
                    sample.add(cases, runs);
                }
            }
        }
        let (part, all) = (sample.share(4000, 11_000), whole.share(4000, 11_000));
        assert!((part.low - all.low).abs() < 1e-4 && (part.high - all.high).abs() < 1e-4);
        let (part, all) = (sample.widest_share(4000, 11_000), whole.widest_share(4000, 11_000));
        assert!((part.low - all.low).abs() < 1e-9 && (part.high - all.high).abs() < 1e-9);
    }
}
