//! Calibration: the mildest threshold of a rule under which at most a stated share of good runs is
//! stopped, by split conformal prediction over tasks.
//!
//! ```
//! use endstop_trajectory::backtest::Family;
//! let names: Vec<String> = Family::all().iter().map(|family| family.name().to_owned()).collect();
//! assert!(names.contains(&"no_new".to_owned()));
//! ```
//!
//! Tasks are split in two halves by a hash of their names. In the first half each task with a good run
//! has one score: the strongest setting that would still have stopped one of its good runs before the
//! end. The threshold is the ⌈(n + 1)(1 − α)⌉-th of the n scores, and one more: a new task of the same
//! kind has a good run stopped with a probability of at most α. With fewer tasks than ⌈1/α⌉ − 1 there is no
//! such threshold. The second half shows what it does on tasks that it was not chosen on. A run that a rule
//! cannot judge, as its recording does not say what tools gave, is in neither half.

use endstop_core::detector::{Rule, Stuck};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A rule at growing strength: what the strongest setting stops, every weaker one stops too.
#[derive(Clone, Debug)]
pub struct Family {
    name: &'static str,
    make: fn(u32) -> Rule,
    first: u32,
    last: u32,
}

impl Family {
    /// All that can be calibrated.
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

    /// The rule's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The rule at a setting.
    pub fn rule(&self, level: u32) -> Rule {
        (self.make)(level)
    }

    pub(super) fn rules(&self) -> Vec<Rule> {
        (self.first..=self.last).map(self.make).collect()
    }

    /// Whether its rules read what tools gave.
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

/// `stuck` at a strength: 2 is its default.
fn stuck(level: u32) -> Rule {
    Rule::Stuck(Stuck {
        repeats: Some(level),
        same_errors: Some(level + 2),
        stale: Some(level + 1),
        failures: Some(level + 5),
    })
}

/// The scores of one family over the runs of one dataset.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores {
    /// By task, for those of the first half that have a good run: the highest score of these.
    first: HashMap<u64, u32>,
    /// Of the second half, by level: good runs and failed runs with that score.
    second: BTreeMap<u32, (u64, u64)>,
    /// Tasks of the second half that have a good run, with the highest score of these.
    second_tasks: HashMap<u64, u32>,
    /// Runs that the family cannot judge.
    left_out: u64,
}

impl Scores {
    /// Adds a run of a task with its score; `None`: the family cannot judge it.
    pub(super) fn add(&mut self, task: u64, success: bool, level: Option<u32>) {
        let Some(level) = level else {
            self.left_out += 1;
            return;
        };
        // The lowest bit is as good as any of a hash.
        if task & 1 == 0 {
            if success {
                let score = self.first.entry(task).or_default();
                *score = (*score).max(level);
            }
            return;
        }
        let counts = self.second.entry(level).or_default();
        if success {
            counts.0 += 1;
            let score = self.second_tasks.entry(task).or_default();
            *score = (*score).max(level);
        } else {
            counts.1 += 1;
        }
    }

    /// The same as a part of all datasets: each task is its own, in the half in which it was.
    pub(super) fn scoped(&self, dataset: &str) -> Scores {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let scoped = |(task, level): (&u64, &u32)| {
            let mut hasher = DefaultHasher::new();
            (dataset, task).hash(&mut hasher);
            (hasher.finish() & !1 | task & 1, *level)
        };
        Scores {
            first: self.first.iter().map(scoped).collect(),
            second: self.second.clone(),
            second_tasks: self.second_tasks.iter().map(scoped).collect(),
            left_out: self.left_out,
        }
    }

    pub(super) fn merge(&mut self, other: Scores) {
        self.left_out += other.left_out;
        for (task, level) in other.first {
            let score = self.first.entry(task).or_default();
            *score = (*score).max(level);
        }
        for (task, level) in other.second_tasks {
            let score = self.second_tasks.entry(task).or_default();
            *score = (*score).max(level);
        }
        for (level, (good, failed)) in other.second {
            let counts = self.second.entry(level).or_default();
            counts.0 += good;
            counts.1 += failed;
        }
    }
}

/// A threshold that was chosen, and what it does on the tasks that it was not chosen on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The family of the rule.
    pub family: String,
    /// The rule with its threshold, in short; `None`: there are too few good tasks, or no setting is
    /// mild enough.
    pub rule: Option<String>,
    /// The rule as configuration spells it.
    pub spec: Option<serde_json::Value>,
    /// Why there is none.
    pub refused: Option<String>,
    /// The share of good tasks that may be stopped.
    pub alpha: f64,
    /// Tasks with a good run that it was chosen on.
    pub calibration_tasks: u64,
    /// Tasks with a good run that it was looked at on.
    pub test_tasks: u64,
    /// Of those, how many had a good run stopped.
    pub test_tasks_stopped: u64,
    /// Good runs of these tasks, and how many were stopped.
    pub test_good: u64,
    /// Good runs that were stopped.
    pub test_good_stopped: u64,
    /// Failed runs of the second half.
    pub test_failed: u64,
    /// Failed runs that were stopped.
    pub test_failed_stopped: u64,
    /// Runs that are in none of these figures: the family reads what tools gave, and their recording does
    /// not say it.
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
        // A sum such as 20 · 0.95 must not be 19.000…1.
        let rank = ((n + 1) as f64 * (1.0 - alpha) - 1e-9).ceil().max(1.0) as u64;
        if rank > n {
            let least = (1.0 / alpha - 1e-9).ceil() as u64 - 1;
            calibrated.refused = Some(format!(
                "{n} good tasks to choose on: alpha = {alpha} wants at least {least}"
            ));
            return calibrated;
        }
        let mut sorted: Vec<u32> = scores.first.values().copied().collect();
        sorted.sort_unstable();
        let threshold = sorted[rank as usize - 1];
        let level = (threshold + 1).max(family.first);
        if level > family.last {
            calibrated.refused =
                Some(format!("even {} stops more good runs than that", family.rule(family.last)));
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
    fn the_threshold_is_the_quantile_that_the_theory_says() {
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
        assert!(chosen(0.04).refused.unwrap().contains("wants at least 24"));
        assert_eq!(Calibrated::of(&family(), &Scores::default(), 0.5).calibration_tasks, 0);
    }

    #[test]
    fn what_it_does_is_counted_on_the_other_half() {
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
