//! Compares good and failed runs of the same task: hard tasks lead to long runs, good or failed, and
//! within one task that effect cancels out.
//!
//! ```text
//! let paired = paired(&tally, candidate);
//! ```

use crate::backtest::count::tally::Tally;
use crate::backtest::count::task::Task;
use crate::statistics::{Cluster, Difference};
use serde::Serialize;

/// A comparison of good and failed runs of the same task: how many more failed runs a candidate
/// stops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Number of tasks with both.
    pub tasks: u64,
    /// The share of failed runs stopped minus that of good runs, averaged over tasks.
    pub difference: f64,
    /// The lower bound of the 95 % confidence interval: that of Agresti and Min for matched pairs, because
    /// Student's has no width if no task differs, and holds its coverage only if many do.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// Averages over mixed tasks the share of failed runs stopped minus the share of good runs killed.
pub(in crate::backtest) fn paired(tally: &Tally, at: usize) -> Option<Paired> {
    let mut differences: Vec<f64> = tally
        .tasks
        .values()
        .filter(|task| task.good > 0 && task.failed > 0)
        .map(|task: &Task| {
            let stopped = task.stopped(at);
            let (good, failed) = (stopped.good, stopped.failed);
            f64::from(failed) / f64::from(task.failed) - f64::from(good) / f64::from(task.good)
        })
        .collect();
    // Sorted, so that the rounding of the sum depends only on the values.
    differences.sort_by(f64::total_cmp);
    let clusters: Vec<Cluster> =
        differences.iter().map(|one| Cluster { weight: 1.0, sum: *one }).collect();
    let found = Difference::of_shares(&clusters)?;
    // A variance requires at least two tasks.
    let [low, high] = found.interval?;
    Some(Paired { tasks: found.tasks, difference: found.value, low, high })
}
