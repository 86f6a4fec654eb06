//! Compares good and failed runs of the same task: hard tasks lead to long runs, good or failed, and
//! within one task that effect cancels out.
//!
//! ```text
//! let paired = paired(&tally, candidate);
//! ```

use super::tally::Tally;
use super::task::Task;
use serde::Serialize;

/// A comparison of good and failed runs of the same task: how many more failed runs a candidate
/// stops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Number of tasks with both.
    pub tasks: u64,
    /// The share of failed runs stopped minus that of good runs, averaged over tasks.
    pub difference: f64,
    /// The lower bound of the 95 % confidence interval.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// Averages over mixed tasks the share of failed runs stopped minus the share of good runs killed.
pub(super) fn paired(tally: &Tally, at: usize) -> Option<Paired> {
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
    let n = differences.len() as f64;
    // A variance requires at least two tasks.
    if n < 2.0 {
        return None;
    }
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = student(n - 1.0) * (variance / n).sqrt();
    Some(Paired { tasks: n as u64, difference: mean, low: mean - half, high: mean + half })
}

/// Returns the number of standard errors on each side of a 95 % interval.
fn student(freedom: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    StudentsT::new(0.0, 1.0, freedom).map_or(1.96, |t| t.inverse_cdf(0.975))
}
