//! Differences with 95 % confidence intervals, from clusters of paired observations.
//!
//! ```text
//! let success = Difference::of_shares(&clusters);
//! let steps = Difference::of_amounts(&clusters);
//! ```
//!
//! Shares: the interval of Agresti and Min (2005) for matched pairs, by task. Four observations are
//! added, of which one half is +1, one half is −1 and two are 0 (each counts one half); then the width
//! is positive even if no task differs. The quantile is that of Student's t.
//!
//! Amounts: the wider of Student's t and the studentised bootstrap by task. The first holds if differences
//! are long-tailed on both sides, the second if they are skewed. Both need tasks that differ: with fewer than
//! [`LEAST`](Difference::LEAST) no method holds its coverage, and no interval is given.

use super::bootstrap;
use super::cluster::{Cluster, Estimate, ratio, weighted};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The reason why a difference has no interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoInterval {
    /// One task, or one on a side: it shows nothing about the others.
    OneTask,
    /// Fewer than [`Difference::LEAST`] tasks differ.
    FewDiffer,
    /// Without a common task: a side has fewer than [`Difference::LEAST`] tasks.
    FewTasks,
    /// Each task differs by the same amount, so that nothing shows how much the next would.
    NoSpread,
}

/// A difference between two means, B minus A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The observed difference.
    pub value: f64,
    /// The bounds of its 95 % confidence interval; `None` if the runs give none that holds.
    pub interval: Option<[f64; 2]>,
    /// The reason why there is no interval; `None` if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_interval: Option<NoInterval>,
    /// The true difference that four of five such comparisons would show; `None` without an interval.
    pub detectable: Option<f64>,
    /// Number of tasks that are compared; in an unpaired comparison those of both sides.
    pub tasks: u64,
    /// Number of tasks in which the two differ.
    pub differing: u64,
}

impl Difference {
    /// The smallest number of differing tasks for an interval of amounts.
    pub const LEAST: u64 = 10;

    /// Returns `true` if the whole interval is below zero: B is lower.
    pub fn is_below_zero(&self) -> bool {
        self.interval.is_some_and(|[_, high]| high < 0.0)
    }

    /// Returns `true` if the whole interval is above zero: B is higher.
    pub fn is_above_zero(&self) -> bool {
        self.interval.is_some_and(|[low, _]| low > 0.0)
    }

    /// Returns `true` if the runs show that the two differ.
    pub fn is_shown(&self) -> bool {
        self.is_below_zero() || self.is_above_zero()
    }

    /// Computes the difference of two shares from clusters whose single differences are between −1 and
    /// 1.
    pub(crate) fn of_shares(clusters: &[Cluster]) -> Option<Difference> {
        let plain = ratio(clusters.iter().copied())?;
        let mean = clusters.iter().map(|one| one.weight).sum::<f64>() / clusters.len() as f64;
        // A half of +1, a half of −1, and a whole 0, each with the weight of a task.
        let half = |sum: f64| Cluster { weight: mean, sum: sum * mean };
        let added = [(half(1.0), 0.5), (half(-1.0), 0.5), (half(0.0), 1.0)];
        let own = clusters.iter().map(|one| (*one, 1.0));
        let spread = weighted(own.chain(added))?;
        let freedom = clusters.len() as f64 - 1.0;
        Some(Difference::between(plain.value, spread, clusters, freedom, [-1.0, 1.0]))
    }

    /// Computes the difference of two means of amounts.
    pub(crate) fn of_amounts(clusters: &[Cluster]) -> Option<Difference> {
        let found = ratio(clusters.iter().copied())?;
        let differing = clusters.iter().filter(|one| one.sum != 0.0).count() as u64;
        let mut difference = Difference {
            value: found.value,
            interval: None,
            no_interval: Some(NoInterval::NoSpread),
            detectable: None,
            tasks: clusters.len() as u64,
            differing,
        };
        if clusters.len() < 2 {
            difference.no_interval = Some(NoInterval::OneTask);
            return Some(difference);
        }
        if differing < Difference::LEAST {
            difference.no_interval = Some(NoInterval::FewDiffer);
            return Some(difference);
        }
        if found.error <= 0.0 {
            return Some(difference);
        }
        let freedom = clusters.len() as f64 - 1.0;
        let half = student(freedom, 0.975);
        let quantiles = if clusters.len() > bootstrap::MOST {
            Some([-half, half])
        } else {
            bootstrap::quantiles(clusters).map(|[low, high]| [low.min(-half), high.max(half)])
        };
        if let Some([low, high]) = quantiles {
            let bounds = [found.value - high * found.error, found.value - low * found.error];
            difference.interval = Some(bounds);
            difference.no_interval = None;
            let reach = half + student(freedom, 0.8);
            difference.detectable = Some(reach * found.error);
        }
        Some(difference)
    }

    fn between(
        value: f64,
        spread: Estimate,
        clusters: &[Cluster],
        freedom: f64,
        range: [f64; 2],
    ) -> Difference {
        let differing = clusters.iter().filter(|one| one.sum != 0.0).count() as u64;
        // One task tells nothing about the others.
        let known = freedom >= 1.0;
        let half = student(freedom.max(1.0), 0.975) * spread.error;
        let bounds =
            [spread.value - half, spread.value + half].map(|b| b.clamp(range[0], range[1]));
        // The estimate is shrunk towards 0, and the interval has to contain the observed difference.
        let bounds = [bounds[0].min(value), bounds[1].max(value)];
        let reach = student(freedom.max(1.0), 0.975) + student(freedom.max(1.0), 0.8);
        Difference {
            value,
            interval: known.then_some(bounds),
            no_interval: (!known).then_some(NoInterval::OneTask),
            detectable: known.then_some((reach * spread.error).min(range[1])),
            tasks: clusters.len() as u64,
            differing,
        }
    }

    /// Computes the difference of two shares of sets without a common task, from the mean of each task:
    /// the interval of Agresti and Caffo (2000), which adds a success and a failure to each side.
    pub(crate) fn of_unpaired_shares(a: &[f64], b: &[f64]) -> Option<Difference> {
        let padded = |side: &[f64]| side.iter().copied().chain([0.0, 1.0]).collect::<Vec<f64>>();
        let spread = welch(&padded(a), &padded(b))?;
        let plain = mean(b)? - mean(a)?;
        Some(unpaired(plain, Ok(spread), a, b, Some([-1.0, 1.0])))
    }

    /// Computes the difference of two means of amounts of sets without a common task (Welch).
    pub(crate) fn of_unpaired_amounts(a: &[f64], b: &[f64]) -> Option<Difference> {
        let plain = mean(b)? - mean(a)?;
        let least = a.len().min(b.len()) as u64;
        let spread = match welch(a, b) {
            _ if least < 2 => Err(NoInterval::OneTask),
            _ if least < Difference::LEAST => Err(NoInterval::FewTasks),
            Some(spread) if spread.error > 0.0 => Ok(spread),
            _ => Err(NoInterval::NoSpread),
        };
        Some(unpaired(plain, spread, a, b, None))
    }
}

/// An estimate from two sides, with its degrees of freedom.
struct Sides {
    value: f64,
    error: f64,
    freedom: f64,
}

fn mean(side: &[f64]) -> Option<f64> {
    (!side.is_empty()).then(|| side.iter().sum::<f64>() / side.len() as f64)
}

fn welch(a: &[f64], b: &[f64]) -> Option<Sides> {
    let part = |side: &[f64]| -> Option<(f64, f64, f64)> {
        let (n, mean) = (side.len() as f64, mean(side)?);
        let variance = side.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (n >= 2.0).then_some((mean, variance / n, n - 1.0))
    };
    let ((mean_a, own_a, free_a), (mean_b, own_b, free_b)) = (part(a)?, part(b)?);
    let all = own_a + own_b;
    let freedom = all.powi(2) / (own_a.powi(2) / free_a + own_b.powi(2) / free_b);
    let freedom = if freedom.is_finite() { freedom } else { free_a.min(free_b) };
    Some(Sides { value: mean_b - mean_a, error: all.sqrt(), freedom })
}

fn unpaired(
    value: f64,
    spread: Result<Sides, NoInterval>,
    a: &[f64],
    b: &[f64],
    range: Option<[f64; 2]>,
) -> Difference {
    let no_interval = spread.as_ref().err().copied();
    let bounds = spread.ok().map(|spread| {
        let half = student(spread.freedom, 0.975) * spread.error;
        let reach = (student(spread.freedom, 0.975) + student(spread.freedom, 0.8)) * spread.error;
        let clamp = |bound: f64| range.map_or(bound, |[low, high]| bound.clamp(low, high));
        let low = clamp(spread.value - half).min(value);
        let high = clamp(spread.value + half).max(value);
        ([low, high], clamp(reach))
    });
    let tasks = (a.len() + b.len()) as u64;
    Difference {
        value,
        interval: bounds.map(|(interval, _)| interval),
        no_interval,
        detectable: bounds.map(|(_, reach)| reach),
        tasks,
        differing: tasks,
    }
}

/// Returns a quantile of Student's distribution.
fn student(freedom: f64, at: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).map_or(1.96, |t| t.inverse_cdf(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn pairs(differences: &[f64]) -> Vec<Cluster> {
        differences.iter().map(|sum| Cluster { weight: 1.0, sum: *sum }).collect()
    }

    #[test]
    fn interval_matches_published_value() {
        // 100 pairs, of which 15 are better with B and 5 with A; computed by hand.
        let mut all = vec![1.0; 15];
        all.extend(vec![-1.0; 5]);
        all.extend(vec![0.0; 80]);
        let found = Difference::of_shares(&pairs(&all)).unwrap();
        let [low, high] = found.interval.unwrap();
        // (15.5 − 5.5) / 102 ± 1.984 · sqrt(21 − 100 / 102) / 102, with the factor 102 / 101.
        let half = 1.984_217 * ((21.0 - 100.0 / 102.0) * 102.0 / 101.0_f64).sqrt() / 102.0;
        assert!((low - (10.0 / 102.0 - half)).abs() < 1e-4, "{low}");
        assert!((high - (10.0 / 102.0 + half)).abs() < 1e-4, "{high}");
        assert_eq!((found.value, found.differing), (0.1, 20));
        assert!(found.is_above_zero() && !found.is_below_zero());
    }

    #[test]
    fn missing_interval_has_reason() {
        let amounts = |all: &[f64]| Difference::of_amounts(&pairs(all)).unwrap().no_interval;
        assert_eq!(amounts(&[4.0]), Some(NoInterval::OneTask));
        assert_eq!(amounts(&[0.0; 50]), Some(NoInterval::FewDiffer));
        assert_eq!(amounts(&[2.0; 50]), Some(NoInterval::NoSpread));
        let spread: Vec<f64> = (0..50).map(f64::from).collect();
        assert_eq!(amounts(&spread), None);
        let apart =
            |a: &[f64], b: &[f64]| Difference::of_unpaired_amounts(a, b).unwrap().no_interval;
        assert_eq!(apart(&spread, &[1.0]), Some(NoInterval::OneTask));
        assert_eq!(apart(&spread, &spread[..9]), Some(NoInterval::FewTasks));
        assert_eq!(apart(&[3.0; 20], &[5.0; 20]), Some(NoInterval::NoSpread));
        assert_eq!(apart(&spread, &spread[..10]), None);
        let shares = |all: &[f64]| Difference::of_shares(&pairs(all)).unwrap().no_interval;
        assert_eq!((shares(&[1.0]), shares(&[1.0, 0.0])), (Some(NoInterval::OneTask), None));
    }

    #[test]
    fn alike_tasks_still_have_width() {
        let none = Difference::of_shares(&pairs(&[0.0; 40])).unwrap();
        let [low, high] = none.interval.unwrap();
        assert!(low < -0.02 && high > 0.02 && !none.is_shown());
        assert_eq!(Difference::of_shares(&pairs(&[1.0])).unwrap().interval, None);
        assert_eq!(Difference::of_shares(&[]), None);
        let few = Difference::of_amounts(&pairs(&[0.0, 5.0, 5.0, 5.0])).unwrap();
        assert_eq!((few.interval, few.differing, few.value), (None, 3, 3.75));
        assert_eq!(few.no_interval, Some(NoInterval::FewDiffer));
        let all = Difference::of_shares(&pairs(&[1.0; 50])).unwrap();
        assert_eq!(all.interval.unwrap()[1], 1.0);
    }

    #[test]
    fn retries_of_task_count_once() {
        // Ten tasks with a hundred equal runs each are ten observations.
        let tasks: Vec<Cluster> = (0..10)
            .map(|nth| Cluster { weight: 100.0, sum: if nth < 3 { 100.0 } else { 0.0 } })
            .collect();
        let mut single = vec![0.0; 7];
        single.extend([1.0; 3]);
        let (many, few) = (
            Difference::of_shares(&tasks).unwrap(),
            Difference::of_shares(&pairs(&single)).unwrap(),
        );
        assert!((many.interval.unwrap()[0] - few.interval.unwrap()[0]).abs() < 1e-12);
    }

    #[test]
    fn bootstrap_has_fixed_seed() {
        let values: Vec<f64> = (0..60).map(|n| f64::from(n * n % 17) - 6.0).collect();
        let one = Difference::of_amounts(&pairs(&values)).unwrap();
        assert_eq!(one, Difference::of_amounts(&pairs(&values)).unwrap());
        let [low, high] = one.interval.unwrap();
        assert!(low < one.value && one.value < high, "{one:?}");
    }

    #[test]
    fn unpaired_sides_need_spread() {
        let (a, b) = ([1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0, 0.0]);
        let shares = Difference::of_unpaired_shares(&a, &b).unwrap();
        assert!((shares.value + 0.55).abs() < 1e-12 && !shares.is_shown());
        assert_eq!(Difference::of_unpaired_amounts(&a, &b).unwrap().interval, None);
        let many: Vec<f64> = (0..30).map(f64::from).collect();
        let more: Vec<f64> = many.iter().map(|one| one + 20.0).collect();
        assert!(Difference::of_unpaired_amounts(&many, &more).unwrap().is_above_zero());
        assert_eq!(Difference::of_unpaired_shares(&[], &b), None);
    }

    /// Asserts that two differences are each other's opposite.
    fn opposite(one: Option<Difference>, other: Option<Difference>) -> Result<(), TestCaseError> {
        let (Some(one), Some(other)) = (one, other) else {
            prop_assert!(one.is_none() && other.is_none());
            return Ok(());
        };
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3);
        prop_assert!(close(one.value, -other.value), "{one:?} {other:?}");
        prop_assert_eq!(one.no_interval, other.no_interval);
        prop_assert_eq!(one.interval.is_some(), one.no_interval.is_none());
        prop_assert_eq!((one.tasks, one.differing), (other.tasks, other.differing));
        if let (Some([low, high]), Some([other_low, other_high])) = (one.interval, other.interval) {
            prop_assert!(close(low, -other_high) && close(high, -other_low), "{one:?} {other:?}");
            prop_assert!(low <= one.value && one.value <= high, "{one:?}");
            let reach = one.detectable.zip(other.detectable);
            prop_assert!(reach.is_some_and(|(a, b)| a > 0.0 && close(a, b)), "{one:?} {other:?}");
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn swapped_sides_give_the_opposite(
            tasks in vec((1.0..9.0_f64, -1.0..1.0_f64), 0..40), at in 0_usize..40, scale in 0_i32..60,
        ) {
            let cluster = |sign: f64| -> Vec<Cluster> {
                // Differences of tokens reach 2⁶⁴, and those of dollars are fractions.
                let of = |(weight, mean): &(f64, f64)| {
                    Cluster { weight: *weight, sum: sign * weight * mean }
                };
                tasks.iter().map(of).collect()
            };
            let large = |sign: f64| -> Vec<Cluster> {
                let scaled = |one: Cluster| Cluster { sum: one.sum * 2_f64.powi(scale), ..one };
                cluster(sign).into_iter().map(scaled).collect()
            };
            opposite(Difference::of_shares(&cluster(1.0)), Difference::of_shares(&cluster(-1.0)))?;
            opposite(Difference::of_amounts(&large(1.0)), Difference::of_amounts(&large(-1.0)))?;
            let values: Vec<f64> = tasks.iter().map(|(_, mean)| mean.abs()).collect();
            let (a, b) = values.split_at(at.min(values.len()));
            opposite(Difference::of_unpaired_shares(a, b), Difference::of_unpaired_shares(b, a))?;
            opposite(Difference::of_unpaired_amounts(a, b), Difference::of_unpaired_amounts(b, a))?;
        }

        #[test]
        fn unit_of_amounts_changes_only_scale(
            means in vec(-1000_i32..1000, 12..30), power in -40_i32..60,
        ) {
            // A power of two scales each number exactly, so that the results have to be equal.
            let of = |scale: f64| {
                let all: Vec<f64> = means.iter().map(|mean| f64::from(*mean) * scale).collect();
                Difference::of_amounts(&pairs(&all)).unwrap()
            };
            let (plain, scale) = (of(1.0), 2_f64.powi(power));
            let scaled = of(scale);
            prop_assert_eq!(scaled.value, plain.value * scale);
            prop_assert_eq!(scaled.interval, plain.interval.map(|all| all.map(|one| one * scale)));
            prop_assert_eq!(scaled.detectable, plain.detectable.map(|one| one * scale));
        }

        #[test]
        fn share_interval_stays_within_bounds(
            tasks in vec((1_u32..1000, 0.0..=1.0_f64, any::<bool>()), 2..30),
        ) {
            let all: Vec<Cluster> = tasks
                .iter()
                .map(|(runs, share, better)| {
                    let sum = (f64::from(*runs) * share).floor();
                    Cluster { weight: f64::from(*runs), sum: if *better { sum } else { -sum } }
                })
                .collect();
            let found = Difference::of_shares(&all).unwrap();
            let [low, high] = found.interval.unwrap();
            prop_assert!(-1.0 <= low && low <= found.value && found.value <= high && high <= 1.0);
            // Even if no task differs, the runs do not exclude a difference.
            prop_assert!(low < high && found.detectable.unwrap() <= 1.0, "{found:?}");
        }
    }
}
