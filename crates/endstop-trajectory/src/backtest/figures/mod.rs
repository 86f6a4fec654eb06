//! The figures of a backtest: the cost of stops first, then the savings.
//!
//! ```
//! use endstop_trajectory::backtest::{Backtest, Candidate};
//! let figures = Backtest::new(&Candidate::reference()?)?.finish();
//! assert!(figures.datasets.is_empty());
//! assert_eq!(figures.reference_results(), serde_json::json!({}));
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```

mod clustered;
pub(super) mod dataset;
pub(super) mod group;
pub(super) mod paired;

use super::calibrate::calibration::Calibration;
use super::calibrate::family::Family;
use super::count::tallies::Tallies;
use super::count::tally::{Skipped, Tally};
use super::judge::Backtest;
use super::settings::Settings;
use dataset::{DatasetFigures, LEAST_GOOD};
use group::GroupFigures;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The name of the pooled dataset.
const ALL: &str = "ALL";

/// The results of a backtest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The datasets with judged runs, by name, followed by the pooled dataset if there are several.
    pub datasets: Vec<DatasetFigures>,
    /// The judged runs by dataset, model and kind of task.
    pub groups: Vec<GroupFigures>,
    /// The rule for each model that keeps the promise of a calibration in each of its groups.
    pub calibrations: Vec<Calibration>,
    /// The datasets with runs that have no recorded outcome: only the savings are known for those.
    pub unjudged: Vec<Unjudged>,
    /// Number of runs that are in no figure, by reason, over all datasets.
    pub skipped: Skipped,
    /// Minimum number of good runs for a recommendation.
    pub least_good_runs: u64,
}

/// The runs of a dataset without a recorded outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unjudged {
    /// The name of the dataset.
    pub name: String,
    /// Number of runs.
    pub runs: u64,
    /// Number of their steps.
    pub steps: u64,
    /// For each candidate: its name, runs stopped, steps saved.
    pub candidates: Vec<(String, u64, u64)>,
    /// For each candidate: its name, runs without any of its data, runs with a part of its data.
    pub lacking: Vec<(String, u64, u64)>,
}

impl Backtest {
    /// Computes the figures.
    pub fn finish(self) -> Figures {
        Figures::of(self.tallies, &self.families)
    }
}

impl Figures {
    /// Computes the figures of counts whose calibrated families are these.
    pub(super) fn of(tallies: Tallies, families: &[Family]) -> Figures {
        let settings = &tallies.settings.clone();
        let (judged, other): (Vec<_>, Vec<_>) =
            tallies.into_groups().into_iter().partition(|(_, tally)| tally.runs > 0);
        let calibrations = Calibration::of_all(&judged, families, settings.alpha);
        let groups = GroupFigures::of_all(&judged, settings);
        // The groups are moved into their datasets, because copies would double the memory.
        let mut by_dataset: BTreeMap<String, Tally> = BTreeMap::new();
        for (group, tally) in judged.into_iter().chain(other) {
            match by_dataset.get_mut(&group.dataset) {
                Some(own) => own.add(tally),
                None => drop(by_dataset.insert(group.dataset, tally)),
            }
        }
        let mut datasets = Vec::new();
        let mut unjudged = Vec::new();
        let mut skipped = Skipped::default();
        let mut pooled: Option<Tally> = None;
        for (name, tally) in by_dataset {
            skipped.add(tally.skipped);
            if tally.unjudged.0 > 0 {
                unjudged.push(Unjudged::of(&name, &tally, settings));
            }
            if tally.runs == 0 {
                continue;
            }
            datasets.push(DatasetFigures::of(&name, &tally, settings, families));
            match &mut pooled {
                Some(all) => all.add(tally),
                None => pooled = Some(tally),
            }
        }
        // With a single dataset the pooled figures would only repeat it.
        if let Some(all) = pooled.filter(|_| datasets.len() > 1) {
            datasets.push(DatasetFigures::of(ALL, &all, settings, families));
        }
        Figures { datasets, groups, calibrations, unjudged, skipped, least_good_runs: LEAST_GOOD }
    }

    /// Returns the figures of a dataset; `ALL` is the pooled dataset.
    pub fn dataset(&self, name: &str) -> Option<&DatasetFigures> {
        // `ALL` is not stored if there is only one dataset, so that dataset stands for it.
        let one =
            (name == ALL && self.datasets.len() == 1).then(|| self.datasets.first()).flatten();
        // From the end, because a file may have the name of the pooled dataset.
        one.or_else(|| self.datasets.iter().rev().find(|dataset| dataset.name == name))
    }

    /// Returns the last dataset: the pooled one, or the only one.
    pub fn whole(&self) -> Option<&DatasetFigures> {
        self.datasets.last()
    }

    /// Returns the counts in the format of the reference implementation: by dataset, then by
    /// policy.
    pub fn reference_results(&self) -> Value {
        let counts = |dataset: &DatasetFigures| {
            let policies: Map<String, Value> = dataset
                .candidates
                .iter()
                .map(|candidate| (candidate.name.clone(), json!(candidate.counts)))
                .collect();
            json!({
                "runs": dataset.runs,
                "failed": dataset.failed,
                "succeeded": dataset.succeeded,
                "succeeded_T4": dataset.succeeded_4,
                "steps": dataset.steps,
                "steps_failed": dataset.steps_failed,
                "policies": policies,
            })
        };
        // The reference implementation always has an `ALL` entry.
        let mut results: Map<String, Value> =
            self.datasets.iter().map(|dataset| (dataset.name.clone(), counts(dataset))).collect();
        if let [only] = &self.datasets[..] {
            results.insert(ALL.to_owned(), counts(only));
        }
        Value::Object(results)
    }
}

impl Unjudged {
    fn of(name: &str, tally: &Tally, settings: &Settings) -> Unjudged {
        let names = || settings.candidates.iter().map(|(name, _)| name.clone());
        let candidates = names().zip(&tally.unjudged_saved);
        let lacking = names().zip(&tally.unjudged_lacking);
        Unjudged {
            name: name.to_owned(),
            runs: tally.unjudged.0,
            steps: tally.unjudged.1,
            candidates: candidates
                .map(|(name, (stopped, saved))| (name, *stopped, *saved))
                .collect(),
            lacking: lacking.map(|(name, lacking)| (name, lacking.all, lacking.part)).collect(),
        }
    }
}
