//! Compares two policies on the same recorded runs, within each run.
//!
//! ```text
//! policies.add(dataset, &run, [fired_a, fired_b], &prices);
//! let comparison = policies.finish("stuck(2,4,3,7)", "same_error(3)");
//! ```
//!
//! Each run counts the same. The interval is by task, because runs of a task are alike.

use super::endings::{Endings, STOPPED};
use super::outcome::{Comparison, Differing, MOST_TASKS, Measure, Pairing, Unit, keep_first};
use super::usage::Used;
use crate::backtest::count::hash::stable_hash;
use crate::backtest::count::sample::Sample;
use crate::backtest::full_from;
use crate::model::Trajectory;
use crate::pricing::Prices;
use crate::statistics::{Cluster, Difference};
use std::collections::BTreeSet;

/// The effect of two policies on runs.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    runs: u64,
    without_outcome: u64,
    tasks: Sample<Task>,
    differing: u64,
    examples: BTreeSet<Differing>,
}

/// The sums of A and of B over runs.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    runs: u32,
    a: i128,
    b: i128,
}

impl Pair {
    fn add(&mut self, a: i128, b: i128) {
        self.merge(Pair { runs: 1, a, b });
    }

    fn merge(&mut self, other: Pair) {
        self.runs = self.runs.saturating_add(other.runs);
        self.a = self.a.saturating_add(other.a);
        self.b = self.b.saturating_add(other.b);
    }
}

/// The runs of one task.
#[derive(Clone, Debug, Default)]
struct Task {
    runs: u32,
    good: Pair,
    steps: Pair,
    tokens: Pair,
    usd: Pair,
    endings: [Endings; 2],
}

impl Policies {
    /// Adds a run and the turns, from 1, at which the policies fire.
    pub fn add(
        &mut self,
        dataset: &str,
        run: &Trajectory<'_>,
        fired: [Option<u32>; 2],
        prices: &Prices,
    ) {
        let turns = run.turns().count() as u32;
        // A policy that fires at the last step changes nothing.
        let stops = fired.map(|turn| turn.filter(|turn| *turn < turns));
        self.runs += 1;
        self.without_outcome += u64::from(run.recorded.success.is_none());
        if stops[0] != stops[1] {
            self.differing += 1;
            let said = |stop| said(run, stop, turns);
            let (id, dataset) = (run.run_id.chars().take(200).collect(), Some(dataset.to_owned()));
            let one = Differing { dataset, id, a: said(stops[0]), b: said(stops[1]) };
            keep_first(&mut self.examples, one);
        }
        let name = run.task_id.as_deref().unwrap_or(&run.run_id);
        let Some(task) = self.tasks.entry(stable_hash([dataset, name]), MOST_TASKS) else { return };
        task.runs = task.runs.saturating_add(1);
        if let Some(success) = run.recorded.success {
            let kept = stops.map(|stop| i128::from(success && !kills(run, stop)));
            task.good.add(kept[0], kept[1]);
        }
        let ending = run.ending.as_ref().map(|ending| &*ending.reason);
        for (endings, stop) in task.endings.iter_mut().zip(stops) {
            endings.add(if stop.is_some() { Some(STOPPED) } else { ending });
        }
        let [a, b] = Used::until(run, &stops, prices)[..] else { return };
        task.steps.add(i128::from(a.steps), i128::from(b.steps));
        if let Some((a, b)) = a.tokens.zip(b.tokens) {
            task.tokens.add(i128::from(a), i128::from(b));
        }
        if let Some((a, b)) = a.usd.zip(b.usd) {
            task.usd.add(i128::from(a.0), i128::from(b.0));
        }
    }

    /// Adds the runs of another part.
    pub fn merge(&mut self, other: Policies) {
        self.runs = self.runs.saturating_add(other.runs);
        self.without_outcome = self.without_outcome.saturating_add(other.without_outcome);
        self.differing = self.differing.saturating_add(other.differing);
        other.examples.into_iter().for_each(|one| keep_first(&mut self.examples, one));
        self.tasks.merge(other.tasks, |own, other| {
            own.runs = own.runs.saturating_add(other.runs);
            for (own, other) in [
                (&mut own.good, other.good),
                (&mut own.steps, other.steps),
                (&mut own.tokens, other.tokens),
                (&mut own.usd, other.usd),
            ] {
                own.merge(other);
            }
            for (own, other) in own.endings.iter_mut().zip(&other.endings) {
                own.merge(other);
            }
        });
        self.tasks.shrink(MOST_TASKS);
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Compares the policies under these names.
    pub fn finish(self, a: &str, b: &str) -> Comparison {
        let tasks: Vec<&Task> = self.tasks.values().collect();
        let compare = |name: &str, unit: Unit, scale: f64, of: &dyn Fn(&Task) -> Pair| {
            measure(name, unit, scale, &tasks.iter().map(|task| of(task)).collect::<Vec<_>>())
        };
        let measures = vec![
            compare("success", Unit::Share, 1.0, &|task| task.good),
            compare("steps", Unit::Steps, 1.0, &|task| task.steps),
            compare("tokens", Unit::Tokens, 1.0, &|task| task.tokens),
            compare("dollars", Unit::Usd, 1e9, &|task| task.usd),
        ];
        let names: Vec<&str> = Endings::default().iter().map(|(name, _)| name).collect();
        let of = |task: &Task, name: &str| {
            let count = |endings: &Endings| {
                endings.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count)
            };
            let [a, b] = [0, 1].map(|side| i128::from(count(&task.endings[side])));
            Pair { runs: task.runs, a, b }
        };
        let endings = names
            .into_iter()
            .map(|name| compare(name, Unit::Share, 1.0, &|task| of(task, name)))
            .filter(|one| one.a.is_some_and(|a| a > 0.0) || one.b.is_some_and(|b| b > 0.0))
            .collect();
        let kept: u64 = tasks.iter().map(|task| u64::from(task.runs)).sum();
        Comparison {
            a: a.to_owned(),
            b: b.to_owned(),
            pairing: Pairing::Run,
            runs: [self.runs; 2],
            tasks: [tasks.len() as u64; 2],
            common_tasks: tasks.len() as u64,
            left_out: self.runs.saturating_sub(kept),
            without_outcome: [self.without_outcome; 2],
            measures,
            endings,
            differing: self.differing,
            examples: self.examples.into_iter().collect(),
        }
    }
}

/// Returns `true` if a stop kills a good run: if it comes before the reward was full.
fn kills(run: &Trajectory<'_>, stop: Option<u32>) -> bool {
    stop.is_some_and(|turn| full_from(run).is_none_or(|full| turn < full))
}

/// Describes what happens to a run.
fn said(run: &Trajectory<'_>, stop: Option<u32>, turns: u32) -> String {
    let Some(turn) = stop else {
        let outcome = match run.recorded.success {
            Some(true) => "succeeds",
            Some(false) => "fails",
            None => "ends",
        };
        return format!("{outcome} after {turns} steps");
    };
    let loses = run.recorded.success == Some(true) && kills(run, stop);
    format!("stopped after step {turn} of {turns}{}", if loses { ", a good run" } else { "" })
}

fn measure(name: &str, unit: Unit, scale: f64, pairs: &[Pair]) -> Measure {
    let mut all = Pair::default();
    for pair in pairs {
        all.merge(*pair);
    }
    let mean = |total: i128| {
        let runs: f64 = pairs.iter().map(|pair| f64::from(pair.runs)).sum();
        (runs > 0.0).then(|| total as f64 / scale / runs)
    };
    let clusters: Vec<Cluster> = pairs
        .iter()
        .filter(|pair| pair.runs > 0)
        .map(|pair| Cluster {
            weight: f64::from(pair.runs),
            sum: pair.b.saturating_sub(pair.a) as f64 / scale,
        })
        .collect();
    let difference = if unit == Unit::Share {
        Difference::of_shares(&clusters)
    } else {
        Difference::of_amounts(&clusters)
    };
    Measure { name: name.to_owned(), unit, a: mean(all.a), b: mean(all.b), difference }
}
