//! Calibrates rules: finds a rule that kills good runs of at most a given share of tasks.
//!
//! ```
//! use endstop_trajectory::backtest::tasks_needed;
//! assert_eq!(tasks_needed(0.05), 19);
//! ```
//!
//! A task is good if it has a good run. Of *n* good tasks a rule kills a good run in *k*. If (k + 1) /
//! (n + 1) is at most alpha, then a good run of a new task of the same kind is killed with a probability
//! of at most alpha on average over users (conformal risk control); it is not a bound for one user. The
//! condition has to hold within each group of runs: over a mixture, a rule may spend the whole allowance
//! on one kind of task. Of the rules that keep it, the one is chosen that is worth most steps: those after
//! its stops, less those of the good runs that it kills.
//!
//! All tasks are used for the choice. Its effect on tasks that were not used is counted by folds: each
//! tenth of the tasks is judged by the rule that the others choose.

pub(super) mod calibration;
pub(super) mod family;

use super::count::scores::{FOLDS, Level, Scores};
use family::Family;
use serde::Serialize;
use serde_json::Value;

/// Returns the number of good tasks that a promise requires: with fewer, not even a rule that killed no
/// run keeps it.
pub fn tasks_needed(alpha: f64) -> u64 {
    // No number of tasks is enough for a share that is not positive, or not a number.
    if alpha.is_nan() || alpha <= 0.0 {
        return u64::MAX;
    }
    ((1.0 / alpha - 1e-9).ceil() as u64).saturating_sub(1)
}

/// A calibrated threshold of one family, and its effect on tasks that were not used to choose it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The family of the rule.
    pub family: String,
    /// The rule with its threshold; `None` if there are too few good tasks, or no threshold is mild
    /// enough.
    pub rule: Option<String>,
    /// The rule as configuration spells it.
    pub spec: Option<Value>,
    /// The reason why there is no threshold.
    pub refused: Option<String>,
    /// The share of good tasks that may be stopped.
    pub alpha: f64,
    /// Number of tasks with a good run, all of which were used for calibration.
    pub calibration_tasks: u64,
    /// Number of these in which the rule kills a good run.
    pub calibration_tasks_stopped: u64,
    /// Steps after the stops of the rule, less all steps of good runs that it kills.
    pub net_steps: i64,
    /// The effect on tasks that were not used to choose the rule.
    #[serde(flatten)]
    pub test: HeldBack,
    /// Number of runs that are in none of these figures, because the family reads tool results and
    /// their recording does not contain any.
    pub left_out: u64,
}

/// The effect on tasks that were not used for the choice: each fold is judged by the rule that the other
/// folds choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// Number of tasks with a good run.
    pub test_tasks: u64,
    /// Number of these with a good run that was killed.
    pub test_tasks_stopped: u64,
    /// Number of good runs.
    pub test_good: u64,
    /// Number of these that were killed.
    pub test_good_stopped: u64,
    /// Number of failed runs.
    pub test_failed: u64,
    /// Number of these that were stopped.
    pub test_failed_stopped: u64,
    /// Steps after the stops, less all steps of good runs that were killed.
    pub test_net_steps: i64,
}

/// A rule of one of the families: the index of the family, and of the rule in it.
pub(super) type Choice = (usize, usize);

/// The runs of several groups, in each of which a promise has to hold.
#[derive(Debug)]
pub(super) struct Groups<'g> {
    families: &'g [Family],
    groups: Vec<Group<'g>>,
}

/// The scores of a group, and by family and fold its tasks.
#[derive(Debug)]
struct Group<'g> {
    scores: &'g [Scores],
    tasks: Vec<Vec<(u64, Vec<u64>)>>,
}

impl Group<'_> {
    /// Returns the number of good tasks, and of those that a rule kills a run of, without one fold.
    fn tasks(&self, (family, level): Choice, without: Option<usize>) -> (u64, u64) {
        let folds = self.tasks[family].iter().enumerate();
        let used = folds.filter(|(fold, _)| Some(*fold) != without);
        used.fold((0, 0), |(n, k), (_, (tasks, killed))| (n + tasks, k + killed[level]))
    }

    /// Returns the steps that a rule is worth, without one fold.
    fn net(&self, (family, level): Choice, without: Option<usize>) -> i64 {
        let mut sum = Level::default();
        for fold in (0..FOLDS).filter(|fold| Some(*fold) != without) {
            sum.add(&self.scores[family].level(fold, level));
        }
        sum.net()
    }
}

impl<'g> Groups<'g> {
    /// Collects groups, each with its scores by family.
    pub(super) fn new(
        families: &'g [Family],
        scores: impl IntoIterator<Item = &'g [Scores]>,
    ) -> Groups<'g> {
        let group = |scores: &'g [Scores]| Group {
            scores,
            tasks: families.iter().zip(scores).map(|(own, of)| of.tasks(own.levels())).collect(),
        };
        Groups { families, groups: scores.into_iter().map(group).collect() }
    }

    /// Returns the number of good tasks of a group, and of those that a rule kills a run of.
    pub(super) fn tasks(&self, group: usize, choice: Choice) -> (u64, u64) {
        self.groups[group].tasks(choice, None)
    }

    /// Returns the largest number of good tasks of a group that a family can evaluate.
    pub(super) fn good_tasks(&self, group: usize) -> u64 {
        let of = |family| self.groups[group].tasks((family, 0), None).0;
        (0..self.families.len()).map(of).max().unwrap_or(0)
    }

    /// Returns the steps that a rule is worth.
    pub(super) fn net(&self, choice: Choice) -> i64 {
        self.groups.iter().map(|group| group.net(choice, None)).fold(0, i64::saturating_add)
    }

    /// Chooses the rule that is worth most among those that keep the promise in each group with enough
    /// good tasks; `only` restricts the choice to one family, `without` leaves out a fold.
    pub(super) fn choose(
        &self,
        alpha: f64,
        only: Option<usize>,
        without: Option<usize>,
    ) -> Option<Choice> {
        let mut best: Option<(i64, Choice)> = None;
        for (family, own) in self.families.iter().enumerate() {
            if only.is_some_and(|only| only != family) {
                continue;
            }
            for level in 0..own.levels() {
                let choice = (family, level);
                let Some(net) = self.worth(alpha, choice, without) else { continue };
                // Of equals the first, so that the choice depends on the counts alone.
                if best.is_none_or(|(most, _)| net > most) {
                    best = Some((net, choice));
                }
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Returns what a rule is worth in the groups with enough good tasks; `None` if it breaks the promise
    /// in one of them, or there is none.
    fn worth(&self, alpha: f64, choice: Choice, without: Option<usize>) -> Option<i64> {
        let mut worth = None;
        for group in &self.groups {
            let (n, k) = group.tasks(choice, without);
            // The epsilon is needed because 20 · 0.05 may be 0.999…9 in floating point.
            let most = (n + 1) as f64 * alpha + 1e-9;
            // NaN is less than nothing, and must not keep each promise.
            if most.is_nan() || most < 1.0 {
                continue;
            }
            if (k + 1) as f64 > most {
                return None;
            }
            let net = group.net(choice, without);
            worth = Some(worth.unwrap_or(0_i64).saturating_add(net));
        }
        worth
    }

    /// Counts the effect of the choices on the folds that were left out.
    pub(super) fn held_back(
        &self,
        choose: impl Fn(usize) -> Option<Choice>,
        of: usize,
    ) -> HeldBack {
        let mut held = HeldBack::default();
        for fold in 0..FOLDS {
            let choice = choose(fold);
            for group in &self.groups {
                // Without a choice nothing is stopped, but the runs were there.
                let family = choice.map_or(of, |choice| choice.0);
                let (tasks, killed) = &group.tasks[family][fold];
                let (good, failed) = group.scores[family].runs(fold);
                held.test_tasks += tasks;
                held.test_good = held.test_good.saturating_add(good);
                held.test_failed = held.test_failed.saturating_add(failed);
                let Some((family, level)) = choice else { continue };
                let effect = group.scores[family].level(fold, level);
                held.test_tasks_stopped += killed[level];
                held.test_good_stopped = held.test_good_stopped.saturating_add(effect.killed);
                held.test_failed_stopped = held.test_failed_stopped.saturating_add(effect.failed);
                held.test_net_steps = held.test_net_steps.saturating_add(effect.net());
            }
        }
        held
    }

    /// Returns the name and the specification of a rule.
    pub(super) fn rule(&self, (family, level): Choice) -> endstop_core::detector::Rule {
        let family = &self.families[family];
        family.rule(family.level(level))
    }

    /// Calibrates one family.
    pub(super) fn calibrated(&self, family: usize, alpha: f64) -> Calibrated {
        let chosen = self.choose(alpha, Some(family), None);
        let name = self.families[family].name();
        let (mut n, mut k, mut net) = (0, 0, 0);
        for at in 0..self.groups.len() {
            n += self.tasks(at, (family, 0)).0;
        }
        if let Some(choice) = chosen {
            k = (0..self.groups.len()).map(|at| self.tasks(at, choice).1).sum();
            net = self.net(choice);
        }
        let refused = chosen.is_none().then(|| {
            if n < tasks_needed(alpha) {
                let needed = tasks_needed(alpha);
                let tasks = if n == 1 { "task" } else { "tasks" };
                format!(
                    "{n} good {tasks} to calibrate on: alpha = {alpha} requires at least {needed}"
                )
            } else {
                let last = self.rule((family, self.families[family].levels() - 1));
                format!("even {last} stops a larger share of good runs")
            }
        });
        let rule = chosen.map(|choice| self.rule(choice));
        Calibrated {
            family: name.to_owned(),
            spec: rule.as_ref().map(endstop_core::detector::Rule::spec),
            rule: rule.map(|rule| rule.to_string()),
            refused,
            alpha,
            calibration_tasks: n,
            calibration_tasks_stopped: k,
            net_steps: net,
            test: match chosen {
                Some(_) => {
                    self.held_back(|fold| self.choose(alpha, Some(family), Some(fold)), family)
                }
                None => self.held_back(|_| None, family),
            },
            left_out: self.groups.iter().map(|group| group.scores[family].left_out).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tasks_needed;
    use proptest::prelude::*;

    #[test]
    fn impossible_shares_need_endless_tasks() {
        for alpha in [0.0, -0.0, -1.0, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(tasks_needed(alpha), u64::MAX, "{alpha}");
        }
        for alpha in [1.0, 1.5, f64::MAX, f64::INFINITY] {
            assert_eq!(tasks_needed(alpha), 0, "{alpha}");
        }
        assert!(tasks_needed(f64::MIN_POSITIVE) > 1 << 60);
    }

    proptest! {
        #[test]
        fn needed_tasks_are_the_fewest(alpha in 0.0001..1.0_f64, nth in 1_u64..2000) {
            // Also shares such as 1/20, of which the multiples are not exact.
            for alpha in [alpha, 1.0 / nth as f64] {
                let needed = tasks_needed(alpha);
                prop_assert!((needed + 1) as f64 * alpha >= 1.0 - 1e-8, "{needed} of {alpha}");
                prop_assert!(needed as f64 * alpha < 1.0, "{needed} of {alpha}");
            }
            prop_assert_eq!(tasks_needed(1.0 / nth as f64), nth - 1);
        }
    }
}
