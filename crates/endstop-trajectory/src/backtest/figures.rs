//! The figures of a backtest: the cost of stops first, then the savings.
//!
//! ```
//! use endstop_trajectory::backtest::{Backtest, Candidate};
//! let figures = Backtest::new(&Candidate::reference()?)?.finish();
//! assert!(figures.datasets.is_empty());
//! assert_eq!(figures.reference_results(), serde_json::json!({}));
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```

use super::calibrate::{Calibrated, Family};
use super::counts::{Counts, Share, share};
use super::judge::Backtest;
use super::tallies::Tallies;
use super::tally::{Skipped, Tally};
use super::task::Task;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The name of the pooled dataset.
const ALL: &str = "ALL";

/// Minimum number of good runs for a recommendation. With 20 good runs of which none is stopped,
/// the true share may still be one in seven.
const LEAST_GOOD: u64 = 20;

/// The results of a backtest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The datasets with judged runs, by name, followed by the pooled dataset if there are several.
    pub datasets: Vec<DatasetFigures>,
    /// The datasets with runs that have no recorded outcome: only the savings are known for those.
    pub unjudged: Vec<Unjudged>,
    /// Number of runs that are in no figure, by reason, over all datasets.
    pub skipped: Skipped,
    /// Minimum number of good runs for a recommendation.
    pub least_good_runs: u64,
}

/// The figures of one dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetFigures {
    /// The name of the dataset.
    pub name: String,
    /// Number of judged runs.
    pub runs: u64,
    /// Number of failed runs.
    pub failed: u64,
    /// Number of good runs.
    pub succeeded: u64,
    /// Number of good runs with at least four steps.
    pub succeeded_4: u64,
    /// Number of steps of all runs.
    pub steps: u64,
    /// Number of steps of failed runs.
    pub steps_failed: u64,
    /// Number of runs that are not judged, by reason.
    pub skipped: Skipped,
    /// Number of runs in which every step has a token count.
    pub runs_with_tokens: u64,
    /// Number of runs in which every step has a cost, or a model with a price.
    pub runs_with_usd: u64,
    /// Tokens of the runs in which every step has a token count.
    pub tokens: Option<u64>,
    /// US dollars of the runs in which every step has a cost, or a model with a price.
    pub usd: Option<f64>,
    /// Number of tasks with both good and failed runs.
    pub mixed_tasks: u64,
    /// Number of runs of tasks beyond the maximum that is compared.
    pub tasks_left_out: u64,
    /// The baseline: a cap at the 75th percentile of turns.
    pub cap: Cap,
    /// The candidates, in the order in which they were given.
    pub candidates: Vec<CandidateFigures>,
    /// The calibrated thresholds.
    pub calibrated: Vec<Calibrated>,
}

/// The figures of one candidate on a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateFigures {
    /// The name of the candidate.
    pub name: String,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share of good runs that it stops.
    pub good_stopped: Share,
    /// The share of good runs with at least four steps that it stops.
    pub good4_stopped: Share,
    /// The share of failed runs that it stops.
    pub failed_stopped: Share,
    /// The share of all steps that it saves.
    pub saved: f64,
    /// Number of tokens that it saves, if known.
    pub tokens_saved: Option<u64>,
    /// US dollars that it saves, if known.
    pub usd_saved: Option<f64>,
    /// Number of runs without any of the data that it requires, in which it cannot fire.
    pub lacking: u64,
    /// Number of runs with only a part of that data, in which its remaining members apply.
    pub lacking_in_part: u64,
    /// The comparison within tasks that have both good and failed runs.
    pub paired: Option<Paired>,
    /// The recommendation.
    pub verdict: Verdict,
}

/// A comparison of good and failed runs of the same task: how many more failed runs a candidate
/// stops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Number of tasks with both.
    pub tasks: u64,
    /// The share of failed runs stopped minus that of good runs, averaged over tasks.
    pub difference: f64,
    /// The lower bound of the 95 % confidence interval.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

/// The recommendation for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are too few good runs for a recommendation.
    TooFewGoodRuns,
    /// The candidate stops nothing.
    Idle,
    /// The candidate saves less than a cap that stops no more good runs.
    WorseThanACap,
    /// The candidate saves more than any cap that stops no more good runs.
    BetterThanACap,
}

/// A cap on turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cap {
    /// The maximum number of turns.
    pub turns: u32,
    /// Number of failed runs that are longer.
    pub fail_stopped: u64,
    /// Number of good runs that are longer.
    pub succ_stopped: u64,
    /// Number of these with at least four steps.
    pub succ4_stopped: u64,
    /// The share of good runs that are longer.
    pub good_stopped: Share,
    /// The share of good runs with at least four steps that are longer.
    pub good4_stopped: Share,
    /// Number of steps after the cap.
    pub steps_saved: u64,
    /// The share of all steps that are after the cap.
    pub saved: f64,
}

/// A candidate on the Pareto front: no other candidate both stops fewer good runs and saves more
/// steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// The name of the candidate.
    pub name: String,
    /// The share of good runs that it stops: of all, or of those with at least four steps,
    /// whichever is larger.
    pub harm: Share,
    /// The share of steps that it saves.
    pub saved: f64,
}

impl CandidateFigures {
    /// Returns `true` if the share of stopped runs is larger among long good runs than among all;
    /// [`harm`](Self::harm) is then that share.
    pub fn harms_long_runs_more(&self) -> bool {
        let (all, long) = (&self.good_stopped, &self.good4_stopped);
        match (all.value, long.value) {
            (Some(a), Some(b)) => b > a || (b >= a && long.high > all.high),
            _ => false,
        }
    }

    /// Returns the share of good runs that it stops: of all, or of those with at least four steps,
    /// whichever is larger. Short good runs can hardly be cut, and must not hide the effect on long
    /// ones.
    pub fn harm(&self) -> Share {
        if self.harms_long_runs_more() { self.good4_stopped } else { self.good_stopped }
    }
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
        Figures::of(&self.tallies, &self.families)
    }
}

impl Figures {
    /// Computes the figures of counts whose calibrated families are these.
    pub(super) fn of(tallies: &Tallies, families: &[Family]) -> Figures {
        let mut datasets = Vec::new();
        let mut unjudged = Vec::new();
        let mut skipped = Skipped::default();
        let mut pooled: Option<Tally> = None;
        for (name, tally) in &tallies.datasets {
            skipped.add(tally.skipped);
            if tally.unjudged.0 > 0 {
                unjudged.push(Unjudged::of(name, tally, tallies));
            }
            if tally.runs == 0 {
                continue;
            }
            datasets.push(DatasetFigures::of(name, tally, tallies, families));
            match &mut pooled {
                Some(all) => all.add(tally.clone()),
                None => pooled = Some(tally.clone()),
            }
        }
        // With a single dataset the pooled figures would only repeat it.
        if let Some(all) = pooled.filter(|_| datasets.len() > 1) {
            datasets.push(DatasetFigures::of(ALL, &all, tallies, families));
        }
        Figures { datasets, unjudged, skipped, least_good_runs: LEAST_GOOD }
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

impl DatasetFigures {
    fn of(name: &str, tally: &Tally, tallies: &Tallies, families: &[Family]) -> DatasetFigures {
        let lengths = Lengths::of(tally);
        let cap = lengths.cap(lengths.percentile(0.75));
        let settings = &tallies.settings;
        let mut candidates = Vec::with_capacity(settings.candidates.len());
        for (at, (candidate, _)) in settings.candidates.iter().enumerate() {
            let counts = tally.counts[at];
            let good_stopped = share(counts.succ_stopped, tally.succeeded);
            candidates.push(CandidateFigures {
                name: candidate.clone(),
                counts,
                good_stopped,
                good4_stopped: share(counts.succ4_stopped, tally.succeeded_4),
                failed_stopped: share(counts.fail_stopped, tally.failed),
                saved: part(counts.steps_saved, tally.steps),
                // `None`, not 0, if no run has counts: the savings are then unknown.
                tokens_saved: (tally.used.runs_with_tokens > 0).then(|| tally.saved[at].tokens),
                usd_saved: (tally.used.runs_with_usd > 0).then(|| tally.saved[at].usd.to_usd()),
                lacking: tally.lacking[at].all,
                lacking_in_part: tally.lacking[at].part,
                paired: paired(tally, at),
                verdict: lengths.verdict(&counts, tally),
            });
        }
        let families = families.iter().zip(&tally.scores);
        let mixed = tally.tasks.values().filter(|task| task.good > 0 && task.failed > 0);
        DatasetFigures {
            name: name.to_owned(),
            runs: tally.runs,
            failed: tally.failed,
            succeeded: tally.succeeded,
            succeeded_4: tally.succeeded_4,
            steps: tally.steps,
            steps_failed: tally.steps_failed,
            skipped: tally.skipped,
            runs_with_tokens: tally.used.runs_with_tokens,
            runs_with_usd: tally.used.runs_with_usd,
            tokens: (tally.used.runs_with_tokens > 0).then_some(tally.used.tokens),
            usd: (tally.used.runs_with_usd > 0).then(|| tally.used.usd.to_usd()),
            mixed_tasks: mixed.count() as u64,
            tasks_left_out: tally.tasks_left_out(),
            cap,
            candidates,
            calibrated: families
                .map(|(family, scores)| Calibrated::of(family, scores, settings.alpha))
                .collect(),
        }
    }

    /// Returns the figures of one candidate.
    pub fn candidate(&self, name: &str) -> Option<&CandidateFigures> {
        self.candidates.iter().find(|candidate| candidate.name == name)
    }

    /// Returns `true` if there are enough good runs for a recommendation.
    pub fn has_enough_good_runs(&self) -> bool {
        self.succeeded >= LEAST_GOOD
    }

    /// Returns the candidate that saves the most steps among those that stop at most this share of
    /// good runs, both of all and of those with at least four steps; `None` if there is no such
    /// candidate, or there are too few good runs.
    pub fn best_within(&self, harm: f64) -> Option<&CandidateFigures> {
        if !self.has_enough_good_runs() {
            return None;
        }
        // A share of no runs exceeds nothing.
        let within = |share: &Share| share.value.is_none_or(|value| value <= harm);
        self.candidates
            .iter()
            .filter(|candidate| candidate.counts.steps_saved > 0)
            .filter(|one| within(&one.good_stopped) && within(&one.good4_stopped))
            .max_by(|a, b| {
                // Among equal candidates, prefer the one that stops fewer good runs, then the first
                // one.
                let worth = |one: &CandidateFigures| {
                    (one.counts.steps_saved, std::cmp::Reverse(one.counts.succ_stopped))
                };
                // `max_by` returns the last of several maxima; `Greater` makes it the first one
                // instead.
                worth(a).cmp(&worth(b)).then(std::cmp::Ordering::Greater)
            })
    }

    /// Returns the candidates on the Pareto front, ordered by increasing harm.
    pub fn pareto(&self) -> Vec<ParetoPoint> {
        let mut points: Vec<&CandidateFigures> = self.candidates.iter().collect();
        let harm = |one: &CandidateFigures| one.harm().value.unwrap_or(0.0);
        points.sort_by(|a, b| harm(a).total_cmp(&harm(b)).then(b.saved.total_cmp(&a.saved)));
        // Sorted by harm, a candidate is on the front only if it saves more than all before it.
        let mut best = 0.0;
        let mut front = Vec::new();
        for one in points {
            if one.saved > best {
                best = one.saved;
                front.push(ParetoPoint {
                    name: one.name.clone(),
                    harm: one.harm(),
                    saved: one.saved,
                });
            }
        }
        front
    }
}

impl Unjudged {
    fn of(name: &str, tally: &Tally, tallies: &Tallies) -> Unjudged {
        let names = || tallies.settings.candidates.iter().map(|(name, _)| name.clone());
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

fn part(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Averages over mixed tasks the share of failed runs stopped minus the share of good runs stopped.
fn paired(tally: &Tally, at: usize) -> Option<Paired> {
    let mut differences: Vec<f64> = tally
        .tasks
        .values()
        .filter(|task| task.good > 0 && task.failed > 0)
        .map(|task: &Task| {
            let (good, failed) = task.stopped(at);
            f64::from(failed) / f64::from(task.failed) - f64::from(good) / f64::from(task.good)
        })
        .collect();
    // Sorted, so that the rounding of the sum depends only on the values.
    differences.sort_by(f64::total_cmp);
    let n = differences.len() as f64;
    // A variance requires at least two tasks.
    if n < 2.0 {
        return None;
    }
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = student(n - 1.0) * (variance / n).sqrt();
    Some(Paired { tasks: n as u64, difference: mean, low: mean - half, high: mean + half })
}

/// Returns the number of standard errors on each side of a 95 % interval.
fn student(freedom: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    StudentsT::new(0.0, 1.0, freedom).map_or(1.96, |t| t.inverse_cdf(0.975))
}

/// The lengths of a dataset's runs.
struct Lengths<'t> {
    tally: &'t Tally,
}

impl<'t> Lengths<'t> {
    fn of(tally: &'t Tally) -> Lengths<'t> {
        Lengths { tally }
    }

    /// Returns the shortest length that is not exceeded by this share of the runs.
    fn percentile(&self, share: f64) -> u32 {
        // Rounded up (nearest rank), so that at least this share of the runs is within the cap.
        let wanted = (self.tally.runs as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (length, (good, failed)) in &self.tally.lengths {
            seen += good + failed;
            if seen >= wanted {
                return *length;
            }
        }
        0
    }

    fn cap(&self, turns: u32) -> Cap {
        let (mut good, mut good_4, mut failed, mut saved) = (0, 0, 0, 0);
        // Runs of exactly this length are not cut.
        for (length, (goods, faileds)) in self.tally.lengths.range(turns + 1..) {
            good += goods;
            good_4 += if *length >= 4 { *goods } else { 0 };
            failed += faileds;
            saved += u64::from(length - turns) * (goods + faileds);
        }
        Cap {
            turns,
            fail_stopped: failed,
            succ_stopped: good,
            succ4_stopped: good_4,
            good_stopped: share(good, self.tally.succeeded),
            good4_stopped: share(good_4, self.tally.succeeded_4),
            steps_saved: saved,
            saved: part(saved, self.tally.steps),
        }
    }

    /// Compares a candidate with the best cap that stops no more good runs than it does.
    fn verdict(&self, counts: &Counts, tally: &Tally) -> Verdict {
        if tally.succeeded < LEAST_GOOD {
            return Verdict::TooFewGoodRuns;
        }
        if counts.steps_saved == 0 {
            return Verdict::Idle;
        }
        let mut longer_good = 0;
        let mut cap = 0;
        // From the longest run down: find the lowest cap that stops no more good runs.
        for (length, (good, _)) in tally.lengths.iter().rev() {
            longer_good += good;
            if longer_good > counts.succ_stopped {
                cap = *length;
                break;
            }
        }
        if counts.steps_saved > self.cap(cap).steps_saved {
            Verdict::BetterThanACap
        } else {
            Verdict::WorseThanACap
        }
    }
}
