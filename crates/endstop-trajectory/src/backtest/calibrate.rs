//! Calibrates a rule: finds the mildest threshold that stops at most a given share of good runs, by
//! split conformal prediction over tasks.
//!
//! ```
//! use endstop_trajectory::backtest::Family;
//! let names: Vec<String> = Family::all().iter().map(|family| family.name().to_owned()).collect();
//! assert!(names.contains(&"no_new".to_owned()));
//! ```
//!
//! Tasks are split into two halves by a hash of their names. In the first half, each task with a
//! good run has one score: the strongest setting that would still have stopped one of its good runs
//! before the end. The threshold is the ⌈(n + 1)(1 − α)⌉-th smallest of the n scores, plus one. A
//! good run of a new task of the same kind is then stopped with a probability of at most α. With
//! fewer tasks than ⌈1/α⌉ − 1 there is no such threshold. The second half shows the effect on tasks
//! that were not used for calibration. Runs that a rule cannot evaluate, because their recording
//! does not contain tool results, are in neither half.

use super::sample::Sample;
use super::task::MOST_TASKS;
use endstop_core::detector::{Rule, Stuck};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A rule with increasing thresholds: a run that a high threshold stops is also stopped by every
/// lower one.
#[derive(Clone, Debug)]
pub struct Family {
    name: &'static str,
    make: fn(u32) -> Rule,
    first: u32,
    last: u32,
}

impl Family {
    /// Returns all families that can be calibrated.
    pub fn all() -> Vec<Family> {
        let family = |name, make: fn(u32) -> Rule, first, last| Family { name, make, first, last };
        vec![
            family("repeat_call", |times| Rule::RepeatCall { times }, 2, 20),
            family("repeat_call_res", |times| Rule::RepeatCallRes { times }, 2, 20),
            family("total_repeat", |times| Rule::TotalRepeat { times }, 2, 20),
            family("same_error", |times| Rule::SameError { times }, 2, 20),
            family("any_error", |times| Rule::AnyError { times }, 2, 20),
            family("no_new", |times| Rule::NoNew { times }, 1, 20),
            family("same_text", |times| Rule::SameText { times }, 2, 20),
            family("stuck", stuck, 1, 12),
            family("max_steps", |steps| Rule::MaxSteps { steps }, 1, 150),
        ]
    }

    /// Returns the rule's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the rule with a threshold.
    pub fn rule(&self, level: u32) -> Rule {
        (self.make)(level)
    }

    pub(super) fn rules(&self) -> Vec<Rule> {
        (self.first..=self.last).map(self.make).collect()
    }

    /// Returns `true` if the rules read tool results.
    pub(super) fn needs_results(&self) -> bool {
        (self.make)(self.first).needs_results()
    }

    pub(super) fn levels(&self) -> usize {
        (self.last - self.first) as usize + 1
    }

    pub(super) fn level(&self, at: usize) -> u32 {
        self.first + at as u32
    }
}

/// Creates `stuck` at a level; level 2 is the default.
fn stuck(level: u32) -> Rule {
    Rule::Stuck(Stuck {
        repeats: Some(level),
        same_errors: Some(level + 2),
        stale: Some(level + 1),
        failures: Some(level + 5),
    })
}

/// The scores of one family over the runs of one dataset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Scores {
    /// The first half: the highest score of each task's good runs.
    first: Sample<u32, MOST_TASKS>,
    /// The second half: the numbers of good and failed runs by score.
    second: BTreeMap<u32, (u64, u64)>,
    /// The second half: the highest score of each task's good runs.
    second_tasks: Sample<u32, MOST_TASKS>,
    /// Number of runs that the family cannot evaluate.
    left_out: u64,
}

impl Scores {
    /// Adds a run of a task with its score; `None` if the family cannot evaluate the run.
    pub(super) fn add(&mut self, task: u64, success: bool, level: Option<u32>) {
        let Some(level) = level else {
            self.left_out += 1;
            return;
        };
        // Any bit of the hash would do; the lowest is the cheapest to test.
        if task & 1 == 0 {
            if let Some(score) = success.then(|| self.first.entry(task)).flatten() {
                *score = (*score).max(level);
            }
            return;
        }
        let counts = self.second.entry(level).or_default();
        if success {
            counts.0 += 1;
            if let Some(score) = self.second_tasks.entry(task) {
                *score = (*score).max(level);
            }
        } else {
            counts.1 += 1;
        }
    }

    pub(super) fn merge(&mut self, other: Scores) {
        self.left_out = self.left_out.saturating_add(other.left_out);
        let highest = |own: &mut u32, other: u32| *own = (*own).max(other);
        self.first.merge(other.first, highest);
        self.second_tasks.merge(other.second_tasks, highest);
        for (level, (good, failed)) in other.second {
            let counts = self.second.entry(level).or_default();
            counts.0 = counts.0.saturating_add(good);
            counts.1 = counts.1.saturating_add(failed);
        }
    }
}

/// A calibrated threshold, and its effect on the tasks that were not used for calibration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The family of the rule.
    pub family: String,
    /// The rule with its threshold; `None` if there are too few good tasks, or no threshold is mild
    /// enough.
    pub rule: Option<String>,
    /// The rule as configuration spells it.
    pub spec: Option<serde_json::Value>,
    /// The reason why there is no threshold.
    pub refused: Option<String>,
    /// The share of good tasks that may be stopped.
    pub alpha: f64,
    /// Number of tasks with a good run that were used for calibration.
    pub calibration_tasks: u64,
    /// Number of tasks with a good run in the second half.
    pub test_tasks: u64,
    /// Number of these with a good run that was stopped.
    pub test_tasks_stopped: u64,
    /// Number of good runs in the second half.
    pub test_good: u64,
    /// Number of these that were stopped.
    pub test_good_stopped: u64,
    /// Number of failed runs in the second half.
    pub test_failed: u64,
    /// Number of these that were stopped.
    pub test_failed_stopped: u64,
    /// Number of runs that are in none of these figures, because the family reads tool results and
    /// their recording does not contain any.
    pub left_out: u64,
}

impl Calibrated {
    pub(super) fn of(family: &Family, scores: &Scores, alpha: f64) -> Calibrated {
        let n = scores.first.len() as u64;
        let mut calibrated = Calibrated {
            family: family.name.to_owned(),
            rule: None,
            spec: None,
            refused: None,
            alpha,
            calibration_tasks: n,
            test_tasks: scores.second_tasks.len() as u64,
            test_tasks_stopped: 0,
            test_good: scores.second.values().map(|(good, _)| good).sum(),
            test_good_stopped: 0,
            test_failed: scores.second.values().map(|(_, failed)| failed).sum(),
            test_failed_stopped: 0,
            left_out: scores.left_out,
        };
        // The epsilon is needed because 20 · 0.95 may be 19.000…1 in floating point.
        let rank = ((n + 1) as f64 * (1.0 - alpha) - 1e-9).ceil().max(1.0) as u64;
        if rank > n {
            let least = (1.0 / alpha - 1e-9).ceil() as u64 - 1;
            calibrated.refused = Some(format!(
                "{n} good tasks to calibrate on: alpha = {alpha} requires at least {least}"
            ));
            return calibrated;
        }
        let mut sorted: Vec<u32> = scores.first.values().copied().collect();
        sorted.sort_unstable();
        let threshold = sorted[rank as usize - 1];
        // One more than the quantile, because a rule fires at its threshold, not above it.
        let level = (threshold + 1).max(family.first);
        if level > family.last {
            calibrated.refused = Some(format!(
                "even {} stops a larger share of good runs",
                family.rule(family.last)
            ));
            return calibrated;
        }
        let rule = family.rule(level);
        calibrated.spec = Some(rule.spec());
        calibrated.rule = Some(rule.to_string());
        let stopped = |score: &u32| *score >= level;
        calibrated.test_tasks_stopped =
            scores.second_tasks.values().filter(|score| stopped(score)).count() as u64;
        for (score, (good, failed)) in &scores.second {
            if stopped(score) {
                calibrated.test_good_stopped += good;
                calibrated.test_failed_stopped += failed;
            }
        }
        calibrated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> Family {
        Family::all().into_iter().find(|family| family.name == "no_new").unwrap()
    }

    #[test]
    fn threshold_is_conformal_quantile() {
        let mut scores = Scores::default();
        // 19 tasks of the first half: scores 0 to 18.
        for task in 0..19u64 {
            scores.add(task * 2, true, Some(task as u32));
            scores.add(task * 2, false, Some(20));
        }
        let chosen = |alpha| Calibrated::of(&family(), &scores, alpha);
        // ⌈20 · 0.95⌉ = 19: the highest; ⌈20 · 0.9⌉ = 18: the one below it.
        assert_eq!(chosen(0.05).rule.as_deref(), Some("no_new(19)"));
        assert_eq!(chosen(0.1).rule.as_deref(), Some("no_new(18)"));
        assert!(chosen(0.04).refused.unwrap().contains("requires at least 24"));
        assert_eq!(Calibrated::of(&family(), &Scores::default(), 0.5).calibration_tasks, 0);
    }

    #[test]
    fn effect_is_counted_on_second_half() {
        let mut scores = Scores::default();
        for task in 0..40u64 {
            scores.add(task * 2, true, Some(2));
        }
        for task in 0..10u64 {
            scores.add(task * 2 + 1, true, Some(if task == 0 { 7 } else { 1 }));
            scores.add(task * 2 + 1, false, Some(5));
        }
        let chosen = Calibrated::of(&family(), &scores, 0.05);
        assert_eq!(chosen.rule.as_deref(), Some("no_new(3)"));
        assert_eq!((chosen.test_tasks, chosen.test_tasks_stopped), (10, 1));
        assert_eq!((chosen.test_good, chosen.test_good_stopped), (10, 1));
        assert_eq!((chosen.test_failed, chosen.test_failed_stopped), (10, 10));
    }
}
