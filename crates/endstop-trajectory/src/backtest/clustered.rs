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
//! Graubard, 1998). If none or all were observed, the tasks show no variance, and each task counts as
//! one case.

use super::counts::{Share, interval};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The runs of each task.
#[derive(Clone, Debug, Default)]
pub(super) struct Clusters {
    /// Number of cases and number of runs of each task with several runs.
    tasks: Vec<(u32, u32)>,
    /// Number of tasks with a single run.
    singles: u64,
    /// Number of these that are a case.
    single_cases: u64,
}

impl Clusters {
    /// Adds a task with this number of cases among its runs.
    pub(super) fn add(&mut self, cases: u32, runs: u32) {
        match runs {
            0 => {}
            1 => self.add_singles(u64::from(cases), 1),
            _ => self.tasks.push((cases, runs)),
        }
    }

    /// Adds tasks with one run each.
    pub(super) fn add_singles(&mut self, cases: u64, runs: u64) {
        self.singles = self.singles.saturating_add(runs);
        self.single_cases = self.single_cases.saturating_add(cases.min(runs));
    }

    /// Returns the share of `cases` in `runs`, with the interval that these tasks give.
    pub(super) fn share(&self, cases: u64, runs: u64) -> Share {
        let tasks = self.tasks.len() as f64 + self.singles as f64;
        // With one run of each task the runs are independent, and the interval is exact.
        if runs == 0 || self.tasks.is_empty() {
            return interval(cases as f64, runs as f64);
        }
        let (cases, runs) = (cases.min(runs) as f64, runs as f64);
        let share = cases / runs;
        let effective = if share == 0.0 || share == 1.0 {
            tasks.min(runs)
        } else {
            self.effective(share, tasks).min(runs)
        };
        interval(share * effective, effective)
    }

    /// Returns the number of independent runs that would tell as much.
    fn effective(&self, share: f64, tasks: f64) -> f64 {
        if tasks < 2.0 {
            return 1.0;
        }
        let residual = |cases: f64, runs: f64| (cases - share * runs).powi(2);
        let several: f64 = self
            .tasks
            .iter()
            .map(|(cases, runs)| residual(f64::from(*cases), f64::from(*runs)))
            .sum();
        let single_cases = self.single_cases as f64;
        let singles = single_cases * residual(1.0, 1.0)
            + (self.singles as f64 - single_cases) * residual(0.0, 1.0);
        // The runs of the tasks that are here: of very many tasks these are a sample.
        let runs =
            self.tasks.iter().map(|(_, runs)| f64::from(*runs)).sum::<f64>() + self.singles as f64;
        let variance = tasks / (tasks - 1.0) * (several + singles) / (runs * runs);
        if variance <= 0.0 {
            return tasks;
        }
        let quantile = |freedom: f64| {
            StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(1.96, |t| t.inverse_cdf(0.975))
        };
        let few = quantile(runs - 1.0) / quantile(tasks - 1.0);
        (share * (1.0 - share) / variance * few * few).max(1.0)
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
        let none = clusters.share(0, 500);
        assert_eq!((none.low, none.high), (0.0, share(0, 50).high));
        assert_eq!(Clusters::default().share(0, 0).value, None);
        let mut one = Clusters::default();
        one.add(3, 9);
        assert!(one.share(3, 9).high > 0.95, "one task tells nothing about others");
    }
}
