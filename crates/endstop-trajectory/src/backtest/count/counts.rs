//! Counts of stopped runs, and confidence intervals of their shares.
//!
//! ```
//! use endstop_trajectory::backtest::share;
//! let none_of_20 = share(0, 20);
//! assert_eq!(none_of_20.value, Some(0.0));
//! assert!((none_of_20.high - 0.139).abs() < 0.001, "none of twenty may still be one in seven");
//! ```

use crate::availability::Coverage;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, ContinuousCDF};

/// The effect of a candidate on the runs of a dataset. Names and meaning are those of the reference
/// implementation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of runs in which it fired, including at the last step.
    pub fired: u64,
    /// Number of failed runs that it stopped before their end.
    pub fail_stopped: u64,
    /// Number of good runs that it stopped before their end.
    pub succ_stopped: u64,
    /// Number of these with at least four steps. Short good runs can hardly be cut, and would hide
    /// the effect on the others.
    pub succ4_stopped: u64,
    /// Number of steps after the stops.
    pub steps_saved: u64,
    /// Number of these in failed runs.
    pub steps_saved_fail: u64,
}

impl Counts {
    /// Adds other counts.
    pub fn add(&mut self, other: &Counts) {
        for (own, other) in [
            (&mut self.fired, other.fired),
            (&mut self.fail_stopped, other.fail_stopped),
            (&mut self.succ_stopped, other.succ_stopped),
            (&mut self.succ4_stopped, other.succ4_stopped),
            (&mut self.steps_saved, other.steps_saved),
            (&mut self.steps_saved_fail, other.steps_saved_fail),
        ] {
            *own = own.saturating_add(other);
        }
    }
}

/// Counts of runs that lack data which a candidate requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backtest) struct Lacking {
    /// Runs without any of the data: the candidate cannot fire.
    pub(in crate::backtest) all: u64,
    /// Runs with a part of the data: the remaining members of the candidate apply.
    pub(in crate::backtest) part: u64,
}

impl Lacking {
    pub(in crate::backtest) fn count(&mut self, sight: Coverage) {
        match sight {
            Coverage::None => self.all += 1,
            Coverage::Part => self.part += 1,
            Coverage::Whole => {}
        }
    }

    pub(in crate::backtest) fn add(&mut self, other: Lacking) {
        self.all = self.all.saturating_add(other.all);
        self.part = self.part.saturating_add(other.part);
    }
}

/// A share with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The observed share; `None` if there were no cases.
    pub value: Option<f64>,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// Maximum number of cases that an interval is computed with. The search for the bounds takes very long
/// for huge parameters, which only damaged counts have; with fewer cases the interval is wider.
const MOST_CASES: f64 = 1e6;

/// Returns the share of `part` in `of` with the exact interval of Clopper and Pearson. If none or
/// all cases were observed, the interval is one-sided.
pub fn share(part: u64, of: u64) -> Share {
    interval(part.min(of) as f64, of as f64)
}

/// As [`share`], for numbers that need not be whole: an effective number of independent cases.
pub(in crate::backtest) fn interval(k: f64, n: f64) -> Share {
    if n <= 0.0 {
        return Share { value: None, low: 0.0, high: 1.0 };
    }
    let value = Some(k / n);
    let scale = (MOST_CASES / n).min(1.0);
    let (k, n) = (k * scale, n * scale);
    // The whole 5 % is on one side if the other bound is 0 or 1 anyway.
    if k <= 0.0 {
        return Share { value, low: 0.0, high: 1.0 - 0.05_f64.powf(1.0 / n) };
    }
    if k >= n {
        return Share { value, low: 0.05_f64.powf(1.0 / n), high: 1.0 };
    }
    let bound =
        |a: f64, b: f64, at: f64| Beta::new(a, b).map_or(f64::NAN, |beta| beta.inverse_cdf(at));
    let (low, high) = (bound(k, n - k + 1.0, 0.025), bound(k + 1.0, n - k, 0.975));
    Share { value, low, high }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn intervals_match_published_values() {
        let near = |a: f64, b: f64| (a - b).abs() < 5e-4;
        // Exact binomial intervals, as R's binom.test prints them.
        let some = share(2, 50);
        assert!(near(some.low, 0.00488) && near(some.high, 0.13714), "{some:?}");
        let half = share(10, 20);
        assert!(near(half.low, 0.27196) && near(half.high, 0.72804), "{half:?}");
        let none = share(0, 51);
        assert!(near(none.high, 0.0570) && none.low == 0.0, "{none:?}");
        let all = share(20, 20);
        assert!(near(all.low, 0.8609) && all.high == 1.0, "{all:?}");
        assert_eq!(share(0, 0).value, None);
        for (part, of) in [(0, u64::MAX), (1, u64::MAX), (u64::MAX / 2, u64::MAX), (7, 1 << 40)] {
            let share = share(part, of);
            assert!(share.low <= share.high && share.high <= 1.0, "{part} of {of}: {share:?}");
        }
    }
}
