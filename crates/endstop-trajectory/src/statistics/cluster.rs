//! The observations of each task, and the mean over tasks with its standard error.
//!
//! ```text
//! let mean = ratio(clusters.iter().copied());      // the sum of the sums over the sum of the weights
//! ```

/// The paired observations of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cluster {
    /// The number of observations.
    pub(crate) weight: f64,
    /// The sum of their differences.
    pub(crate) sum: f64,
}

/// An estimate with its standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) error: f64,
}

/// Estimates the ratio of the sums to the weights; `None` if there is no weight.
pub(crate) fn ratio(clusters: impl Iterator<Item = Cluster> + Clone) -> Option<Estimate> {
    weighted(clusters.map(|one| (one, 1.0)))
}

/// As [`ratio`], for clusters that each count as a number of clusters.
pub(crate) fn weighted(clusters: impl Iterator<Item = (Cluster, f64)> + Clone) -> Option<Estimate> {
    let (mut count, mut weight, mut sum) = (0.0, 0.0, 0.0);
    for (one, times) in clusters.clone() {
        count += times;
        weight += times * one.weight;
        sum += times * one.sum;
    }
    if weight <= 0.0 {
        return None;
    }
    let value = sum / weight;
    let squares: f64 =
        clusters.map(|(one, times)| times * (one.sum - value * one.weight).powi(2)).sum();
    let error = if count > 1.0 { (squares * count / (count - 1.0)).sqrt() / weight } else { 0.0 };
    Some(Estimate { value, error })
}
