//! Compares two sets of runs, for example those of two versions of an agent, within each task that
//! both sets have.
//!
//! ```text
//! sets.a.add(&run, &prices);
//! let comparison = sets.finish("v1", "v2");
//! ```
//!
//! Each task counts the same, however many runs it has.

use super::endings::Endings;
use super::outcome::{Comparison, Differing, MOST_TASKS, Measure, Pairing, Unit, keep_first};
use super::usage::{Sum, Used};
use crate::backtest::count::hash::stable_hash;
use crate::backtest::count::sample::Sample;
use crate::model::Trajectory;
use crate::pricing::Prices;
use crate::statistics::{Cluster, Difference};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a task's name in the result, in characters.
const LONGEST: usize = 200;

/// The runs of two sets.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    /// The first set.
    pub a: Set,
    /// The second set.
    pub b: Set,
}

/// The runs of one set, summed by task.
#[derive(Clone, Debug, Default)]
pub struct Set {
    runs: u64,
    without_outcome: u64,
    tasks: Sample<Task>,
}

/// The runs of one task.
#[derive(Clone, Debug, Default)]
struct Task {
    name: String,
    runs: u32,
    good: Sum,
    steps: Sum,
    tokens: Sum,
    usd: Sum,
    endings: Endings,
}

impl Set {
    /// Adds a run. Runs with the same task, or without a task with the same id, belong together.
    pub fn add(&mut self, run: &Trajectory<'_>, prices: &Prices) {
        self.runs += 1;
        self.without_outcome += u64::from(run.recorded.success.is_none());
        let name = run.task_id.as_deref().unwrap_or(&run.run_id);
        let Some(task) = self.tasks.entry(stable_hash([name]), MOST_TASKS) else { return };
        if task.runs == 0 {
            task.name = name.chars().take(LONGEST).collect();
        }
        task.runs = task.runs.saturating_add(1);
        if let Some(success) = run.recorded.success {
            task.good.add(i128::from(success));
        }
        task.endings.add(run.ending.as_ref().map(|ending| &*ending.reason));
        // A summary has an outcome, but its turns are not recorded.
        if run.is_tagged("summary_only") {
            return;
        }
        if let [used] = Used::until(run, &[None], prices)[..] {
            task.steps.add(i128::from(used.steps));
            used.tokens.iter().for_each(|tokens| task.tokens.add(i128::from(*tokens)));
            used.usd.iter().for_each(|usd| task.usd.add(i128::from(usd.0)));
        }
    }

    /// Adds the runs of another part of the set.
    pub fn merge(&mut self, other: Set) {
        self.runs = self.runs.saturating_add(other.runs);
        self.without_outcome = self.without_outcome.saturating_add(other.without_outcome);
        self.tasks.merge(other.tasks, Task::merge);
        self.tasks.shrink(MOST_TASKS);
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> u64 {
        self.runs
    }
}

impl Task {
    fn merge(&mut self, other: Task) {
        if self.runs == 0 {
            self.name = other.name;
        }
        self.runs = self.runs.saturating_add(other.runs);
        for (own, other) in [
            (&mut self.good, other.good),
            (&mut self.steps, other.steps),
            (&mut self.tokens, other.tokens),
            (&mut self.usd, other.usd),
        ] {
            own.merge(other);
        }
        self.endings.merge(&other.endings);
    }

    /// Describes the runs of the task: `2 of 3 succeed`.
    fn successes(&self) -> String {
        match self.good.runs {
            0 => "no outcome".to_owned(),
            runs => format!("{} of {runs} succeed", self.good.total),
        }
    }
}

/// A value of the runs of a task.
type Of<'f> = &'f dyn Fn(&Task) -> Option<f64>;

impl Sets {
    /// Compares the two sets under these names.
    pub fn finish(&self, a: &str, b: &str) -> Comparison {
        let own: BTreeMap<u64, &Task> = self.a.tasks.iter().collect();
        let other: BTreeMap<u64, &Task> = self.b.tasks.iter().collect();
        let common: Vec<(&Task, &Task)> =
            own.iter().filter_map(|(key, task)| Some((*task, *other.get(key)?))).collect();
        let pairing = if common.is_empty() { Pairing::None } else { Pairing::Task };
        let compare = |name: &str, unit: Unit, of: Of<'_>| {
            if common.is_empty() {
                let side = |tasks: &BTreeMap<u64, &Task>| -> Vec<f64> {
                    tasks.values().filter_map(|task| of(task)).collect()
                };
                unpaired(name, unit, &side(&own), &side(&other))
            } else {
                let both = common.iter().filter_map(|(a, b)| Some((of(a)?, of(b)?)));
                paired(name, unit, &both.collect::<Vec<_>>())
            }
        };
        let measures = vec![
            compare("success", Unit::Share, &|task| task.good.mean()),
            compare("steps", Unit::Steps, &|task| task.steps.mean()),
            compare("tokens", Unit::Tokens, &|task| task.tokens.mean()),
            compare("dollars", Unit::Usd, &|task| task.usd.mean().map(|nanos| nanos / 1e9)),
        ];
        let share = |task: &Task, name: &str| {
            let count = task.endings.iter().find(|(known, _)| *known == name)?.1;
            Some(f64::from(count) / f64::from(task.runs.max(1)))
        };
        let names = Endings::default().iter().map(|(name, _)| name).collect::<Vec<_>>();
        let endings = names
            .into_iter()
            .map(|name| compare(name, Unit::Share, &|task| share(task, name)))
            .filter(|one| one.a.is_some_and(|a| a > 0.0) || one.b.is_some_and(|b| b > 0.0))
            .collect();
        let mut examples = BTreeSet::new();
        let mut differing = 0;
        for (a, b) in &common {
            if a.good.mean() != b.good.mean() {
                differing += 1;
                let (id, dataset) = (a.name.clone(), None);
                keep_first(
                    &mut examples,
                    Differing { dataset, id, a: a.successes(), b: b.successes() },
                );
            }
        }
        let kept: u64 =
            [&own, &other].iter().flat_map(|tasks| tasks.values()).map(|t| u64::from(t.runs)).sum();
        Comparison {
            a: a.to_owned(),
            b: b.to_owned(),
            pairing,
            runs: [self.a.runs, self.b.runs],
            tasks: [own.len() as u64, other.len() as u64],
            common_tasks: common.len() as u64,
            left_out: (self.a.runs + self.b.runs).saturating_sub(kept),
            without_outcome: [self.a.without_outcome, self.b.without_outcome],
            measures,
            endings,
            differing,
            examples: examples.into_iter().collect(),
        }
    }
}

/// Compares the values of each task.
fn paired(name: &str, unit: Unit, both: &[(f64, f64)]) -> Measure {
    let n = both.len() as f64;
    let mean = |sum: f64| (!both.is_empty()).then_some(sum / n);
    let clusters: Vec<Cluster> =
        both.iter().map(|(a, b)| Cluster { weight: 1.0, sum: b - a }).collect();
    let difference = if unit == Unit::Share {
        Difference::of_shares(&clusters)
    } else {
        Difference::of_amounts(&clusters)
    };
    Measure {
        name: name.to_owned(),
        unit,
        a: mean(both.iter().map(|(a, _)| a).sum()),
        b: mean(both.iter().map(|(_, b)| b).sum()),
        difference,
    }
}

/// Compares the means of sets without a common task.
fn unpaired(name: &str, unit: Unit, a: &[f64], b: &[f64]) -> Measure {
    let mean =
        |side: &[f64]| (!side.is_empty()).then(|| side.iter().sum::<f64>() / side.len() as f64);
    let difference = if unit == Unit::Share {
        Difference::of_unpaired_shares(a, b)
    } else {
        Difference::of_unpaired_amounts(a, b)
    };
    Measure { name: name.to_owned(), unit, a: mean(a), b: mean(b), difference }
}
