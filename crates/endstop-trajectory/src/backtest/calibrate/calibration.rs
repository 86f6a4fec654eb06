//! The calibrated rule of each model: one rule that keeps its promise in each kind of task.
//!
//! ```text
//! let chosen = figures.calibrations.iter().find(|one| one.model.as_deref() == Some("gpt-4"));
//! ```
//!
//! The choice of the best of several families looks better on the tasks that it was made on than it is.
//! Therefore it is repeated on nine tenths of the tasks and counted on the last tenth; if the promise does
//! not hold there, a milder rule is chosen.

use super::family::Family;
use super::{Choice, Groups, HeldBack, tasks_needed};
use crate::backtest::count::tally::Tally;
use crate::backtest::group::Group;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The factor by which the allowance is reduced until the promise holds on held-back tasks.
const MILDER: f64 = 0.8;

/// The calibrated rule of one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The model; `None` for runs that do not name theirs.
    pub model: Option<String>,
    /// The promise: the share of good tasks, in each promised group, that may be stopped.
    pub alpha: f64,
    /// The rule; `None` if no rule keeps the promise and is worth a step.
    pub rule: Option<String>,
    /// The rule as configuration spells it.
    pub spec: Option<Value>,
    /// The reason why there is no rule.
    pub refused: Option<String>,
    /// The groups of the model.
    pub groups: Vec<CalibratedGroup>,
    /// Number of steps of the model's runs.
    pub steps: u64,
    /// Steps after the stops of the rule, less all steps of the good runs that it kills.
    pub net_steps: i64,
    /// The effect on tasks that were not used to choose the rule.
    #[serde(flatten)]
    pub test: HeldBack,
}

/// A group of a calibration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CalibratedGroup {
    /// The dataset.
    pub dataset: String,
    /// The kind of task.
    pub kind: Option<String>,
    /// Number of tasks with a good run.
    pub good_tasks: u64,
    /// Number of these in which the rule kills a good run.
    pub tasks_stopped: u64,
    /// `true` if the promise holds in this group.
    pub promised: bool,
    /// The number of good tasks that a promise requires, if there are too few.
    pub needed: Option<u64>,
}

impl Calibration {
    /// Calibrates a rule for each model.
    pub(in crate::backtest) fn of_all(
        groups: &[(Group, Tally)],
        families: &[Family],
        alpha: f64,
    ) -> Vec<Calibration> {
        if families.is_empty() {
            return Vec::new();
        }
        let mut models: BTreeMap<Option<&str>, Vec<&(Group, Tally)>> = BTreeMap::new();
        for one in groups {
            models.entry(one.0.model.as_deref()).or_default().push(one);
        }
        let of = |(model, own): (Option<&str>, Vec<&(Group, Tally)>)| {
            Calibration::of(model, &own, families, alpha)
        };
        models.into_iter().map(of).collect()
    }

    fn of(
        model: Option<&str>,
        own: &[&(Group, Tally)],
        families: &[Family],
        alpha: f64,
    ) -> Calibration {
        let groups = Groups::new(families, own.iter().map(|(_, tally)| &tally.scores[..]));
        let chosen = guarded(&groups, alpha);
        let needed = tasks_needed(alpha);
        let enough = (0..own.len()).any(|at| groups.good_tasks(at) >= needed);
        let refused = match chosen {
            Some(_) => None,
            None if !enough => {
                let most = (0..own.len()).map(|at| groups.good_tasks(at)).max().unwrap_or(0);
                let tasks = if most == 1 { "task" } else { "tasks" };
                Some(format!(
                    "{most} good {tasks} in its largest group; a promise of {alpha} requires {needed}"
                ))
            }
            None => Some("no rule keeps the promise and is worth a step".to_owned()),
        };
        let group = |(at, (group, _)): (usize, &&(Group, Tally))| {
            let (good_tasks, tasks_stopped) = match chosen {
                Some((choice, _)) => groups.tasks(at, choice),
                None => (groups.good_tasks(at), 0),
            };
            CalibratedGroup {
                dataset: group.dataset.clone(),
                kind: group.kind.clone(),
                good_tasks,
                tasks_stopped,
                promised: chosen.is_some() && good_tasks >= needed,
                needed: (good_tasks < needed).then_some(needed),
            }
        };
        let rule = chosen.map(|(choice, _)| groups.rule(choice));
        Calibration {
            model: model.map(str::to_owned),
            alpha,
            spec: rule.as_ref().map(endstop_core::detector::Rule::spec),
            rule: rule.map(|rule| rule.to_string()),
            refused,
            groups: own.iter().enumerate().map(group).collect(),
            steps: own.iter().fold(0, |all, (_, tally)| all.saturating_add(tally.steps)),
            net_steps: chosen.map_or(0, |(choice, _)| groups.net(choice)),
            test: match chosen {
                Some((_, inner)) => groups.held_back(|fold| worth(&groups, inner, Some(fold)), 0),
                None => groups.held_back(|_| None, 0),
            },
        }
    }
}

/// Chooses a rule that is worth a step.
fn worth(groups: &Groups<'_>, alpha: f64, without: Option<usize>) -> Option<Choice> {
    let choice = groups.choose(alpha, None, without)?;
    (groups.net(choice) > 0).then_some(choice)
}

/// Chooses a rule whose promise also holds on held-back tasks, and the allowance that it was chosen with.
fn guarded(groups: &Groups<'_>, alpha: f64) -> Option<(Choice, f64)> {
    let mut inner = alpha;
    loop {
        let choice = worth(groups, inner, None)?;
        let held = groups.held_back(|fold| worth(groups, inner, Some(fold)), choice.0);
        if held.test_tasks_stopped as f64 <= alpha * held.test_tasks as f64 + 1e-9 {
            return Some((choice, inner));
        }
        inner *= MILDER;
    }
}
