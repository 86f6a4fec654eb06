//! The figures of a backtest: what a stop would have cost first, then what it would have saved.
//!
//! ```
//! use endstop_trajectory::backtest::{Backtest, Candidate};
//! let figures = Backtest::new(&Candidate::reference()?)?.finish();
//! assert!(figures.datasets.is_empty());
//! assert_eq!(figures.reference_results(), serde_json::json!({}));
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```

use super::calibrate::Calibrated;
use super::counts::{Counts, Share, share};
use super::tally::{Backtest, Skipped, Tally};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The name of all datasets together.
const ALL: &str = "ALL";

/// Fewer good runs say nothing about how many a candidate stops: with 20 of which none is stopped, one in
/// seven may still be.
const LEAST_GOOD: u64 = 20;

/// What a backtest found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Each dataset that has judged runs, by name; where there are several, all of them together last.
    pub datasets: Vec<DatasetFigures>,
    /// Datasets with runs that nobody judged: only what would have been saved is known of those.
    pub unjudged: Vec<Unjudged>,
    /// Runs that are in no figure, and why, over all datasets.
    pub skipped: Skipped,
    /// Fewer good runs than this, and nothing is recommended.
    pub least_good_runs: u64,
}

/// What was found in one dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetFigures {
    /// Its name.
    pub name: String,
    /// Judged runs.
    pub runs: u64,
    /// Failed ones.
    pub failed: u64,
    /// Good ones.
    pub succeeded: u64,
    /// Good ones of at least four steps.
    pub succeeded_4: u64,
    /// Steps of all runs.
    pub steps: u64,
    /// Steps of failed runs.
    pub steps_failed: u64,
    /// Runs that are not judged.
    pub skipped: Skipped,
    /// Runs whose every step says its tokens.
    pub runs_with_tokens: u64,
    /// Runs whose every step has a cost, or a model with a price.
    pub runs_with_usd: u64,
    /// Tokens of the runs whose every step says what it used.
    pub tokens: Option<u64>,
    /// US dollars of the runs whose every step has a cost, or a model with a price.
    pub usd: Option<f64>,
    /// Tasks that have good runs and failed ones.
    pub mixed_tasks: u64,
    /// Runs of tasks beyond those that are compared.
    pub tasks_left_out: u64,
    /// The baseline: a cap at the 75th percentile of turns.
    pub cap: Cap,
    /// The candidates, in their order.
    pub candidates: Vec<CandidateFigures>,
    /// Thresholds that were chosen.
    pub calibrated: Vec<Calibrated>,
}

/// What one candidate does to a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateFigures {
    /// Its name.
    pub name: String,
    /// The counts.
    #[serde(flatten)]
    pub counts: Counts,
    /// The share of good runs that it stops.
    pub good_stopped: Share,
    /// The share of good runs of at least four steps that it stops.
    pub good4_stopped: Share,
    /// The share of failed runs that it stops.
    pub failed_stopped: Share,
    /// The share of all steps that it saves.
    pub saved: f64,
    /// The tokens that it saves, where they are known.
    pub tokens_saved: Option<u64>,
    /// The US dollars that it saves, where they are known.
    pub usd_saved: Option<f64>,
    /// Runs that lack what it looks at: it cannot fire there.
    pub lacking: u64,
    /// Runs that lack a part of what it looks at: the rest of it judges them.
    pub lacking_in_part: u64,
    /// Within tasks that have good and failed runs.
    pub paired: Option<Paired>,
    /// Whether it can be recommended.
    pub verdict: Verdict,
}

/// The same task, a good run and a failed one: how many more of the failed does a candidate stop?
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Tasks with both.
    pub tasks: u64,
    /// The share of failed runs stopped, less that of good runs, on average over tasks.
    pub difference: f64,
    /// Not below this, with 95 % confidence.
    pub low: f64,
    /// Not above this.
    pub high: f64,
}

/// Whether a candidate can be recommended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are too few good runs to say.
    TooFewGoodRuns,
    /// It stops nothing.
    Idle,
    /// It saves less than a cap that stops no more good runs.
    WorseThanACap,
    /// It saves more than any cap that stops no more good runs.
    BetterThanACap,
}

/// A cap on turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cap {
    /// Turns.
    pub turns: u32,
    /// Failed runs that are longer.
    pub fail_stopped: u64,
    /// Good runs that are longer.
    pub succ_stopped: u64,
    /// Of those, runs of at least four steps.
    pub succ4_stopped: u64,
    /// The share of good runs that is longer.
    pub good_stopped: Share,
    /// The share of good runs of at least four steps that is longer.
    pub good4_stopped: Share,
    /// Steps behind it.
    pub steps_saved: u64,
    /// The share of all steps behind it.
    pub saved: f64,
}

/// A candidate that no other one beats in both: fewer good runs stopped, more steps saved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// Its name.
    pub name: String,
    /// The share of good runs that it stops: of all, or of those of at least four steps, whichever is
    /// more.
    pub harm: Share,
    /// The share of steps that it saves.
    pub saved: f64,
}

impl CandidateFigures {
    /// Whether more of the long good runs are stopped than of all: [`harm`](Self::harm) is theirs.
    pub fn harms_long_runs_more(&self) -> bool {
        let (all, long) = (&self.good_stopped, &self.good4_stopped);
        match (all.value, long.value) {
            (Some(a), Some(b)) => b > a || (b >= a && long.high > all.high),
            _ => false,
        }
    }

    /// The share of good runs that it stops: of all, or of those of at least four steps, whichever is
    /// more. Short good runs can hardly be cut, and must not hide what happens to long ones.
    pub fn harm(&self) -> Share {
        if self.harms_long_runs_more() { self.good4_stopped } else { self.good_stopped }
    }
}

/// The runs of a dataset that nobody judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unjudged {
    /// Its name.
    pub name: String,
    /// Runs.
    pub runs: u64,
    /// Their steps.
    pub steps: u64,
    /// Of each candidate: its name, runs stopped, steps saved.
    pub candidates: Vec<(String, u64, u64)>,
    /// Of each candidate: its name, runs that lack what it looks at, runs that lack a part of that.
    pub lacking: Vec<(String, u64, u64)>,
}

impl Figures {
    pub(super) fn of(test: &Backtest) -> Figures {
        let mut datasets = Vec::new();
        let mut unjudged = Vec::new();
        let mut skipped = Skipped::default();
        let mut pooled: Option<Tally> = None;
        for (name, tally) in &test.datasets {
            skipped.without_outcome += tally.skipped.without_outcome;
            skipped.summary_only += tally.skipped.summary_only;
            skipped.single_turn += tally.skipped.single_turn;
            skipped.empty += tally.skipped.empty;
            if tally.unjudged.0 > 0 {
                unjudged.push(Unjudged::of(name, tally, test));
            }
            if tally.runs == 0 {
                continue;
            }
            datasets.push(DatasetFigures::of(name, tally, test));
            match &mut pooled {
                Some(all) => all.add(scoped(tally, name)),
                None => pooled = Some(scoped(tally, name)),
            }
        }
        if let Some(all) = pooled.filter(|_| datasets.len() > 1) {
            datasets.push(DatasetFigures::of(ALL, &all, test));
        }
        Figures { datasets, unjudged, skipped, least_good_runs: LEAST_GOOD }
    }

    /// The figures of this dataset; `ALL` is all of them.
    pub fn dataset(&self, name: &str) -> Option<&DatasetFigures> {
        let one =
            (name == ALL && self.datasets.len() == 1).then(|| self.datasets.first()).flatten();
        one.or_else(|| self.datasets.iter().find(|dataset| dataset.name == name))
    }

    /// The last dataset: all together, or the only one.
    pub fn whole(&self) -> Option<&DatasetFigures> {
        self.datasets.last()
    }

    /// The counts in the shape of the reference implementation: by dataset, then by policy.
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
        let mut results: Map<String, Value> =
            self.datasets.iter().map(|dataset| (dataset.name.clone(), counts(dataset))).collect();
        if let [only] = &self.datasets[..] {
            results.insert(ALL.to_owned(), counts(only));
        }
        Value::Object(results)
    }
}

/// A dataset's counts as a part of all: its tasks are its own, whatever their names.
fn scoped(tally: &Tally, dataset: &str) -> Tally {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut scoped = tally.clone();
    scoped.tasks = tally
        .tasks
        .iter()
        .map(|(task, runs)| {
            let mut hasher = DefaultHasher::new();
            (dataset, task).hash(&mut hasher);
            (hasher.finish(), runs.clone())
        })
        .collect();
    scoped.scores = tally.scores.iter().map(|scores| scores.scoped(dataset)).collect();
    scoped
}

impl DatasetFigures {
    fn of(name: &str, tally: &Tally, test: &Backtest) -> DatasetFigures {
        let lengths = Lengths::of(tally);
        let cap = lengths.cap(lengths.percentile(0.75));
        let mut candidates = Vec::with_capacity(test.candidates.len());
        for (at, candidate) in test.candidates.iter().enumerate() {
            let counts = tally.counts[at];
            let good_stopped = share(counts.succ_stopped, tally.succeeded);
            candidates.push(CandidateFigures {
                name: candidate.name.clone(),
                counts,
                good_stopped,
                good4_stopped: share(counts.succ4_stopped, tally.succeeded_4),
                failed_stopped: share(counts.fail_stopped, tally.failed),
                saved: part(counts.steps_saved, tally.steps),
                tokens_saved: (tally.used.runs_with_tokens > 0).then(|| tally.saved[at].tokens),
                usd_saved: (tally.used.runs_with_usd > 0).then(|| tally.saved[at].usd),
                lacking: tally.lacking[at].all,
                lacking_in_part: tally.lacking[at].part,
                paired: paired(tally, at),
                verdict: lengths.verdict(&counts, tally),
            });
        }
        let families = test.families.iter().zip(&tally.scores);
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
            usd: (tally.used.runs_with_usd > 0).then_some(tally.used.usd),
            mixed_tasks: mixed.count() as u64,
            tasks_left_out: tally.tasks_left_out,
            cap,
            candidates,
            calibrated: families
                .map(|(family, scores)| Calibrated::of(family, scores, test.alpha))
                .collect(),
        }
    }

    /// One candidate's figures.
    pub fn candidate(&self, name: &str) -> Option<&CandidateFigures> {
        self.candidates.iter().find(|candidate| candidate.name == name)
    }

    /// Whether there are enough good runs to recommend anything.
    pub fn has_enough_good_runs(&self) -> bool {
        self.succeeded >= LEAST_GOOD
    }

    /// What saves most steps of those that stop at most this share of good runs, of all and of those of
    /// at least four steps; `None`: nothing does, or there are too few good runs.
    pub fn best_within(&self, harm: f64) -> Option<&CandidateFigures> {
        if !self.has_enough_good_runs() {
            return None;
        }
        let within = |share: &Share| share.value.is_none_or(|value| value <= harm);
        self.candidates
            .iter()
            .filter(|candidate| candidate.counts.steps_saved > 0)
            .filter(|one| within(&one.good_stopped) && within(&one.good4_stopped))
            .max_by(|a, b| {
                // Of equals the one that stops fewer good runs, then the one that comes first.
                let worth = |one: &CandidateFigures| {
                    (one.counts.steps_saved, std::cmp::Reverse(one.counts.succ_stopped))
                };
                worth(a).cmp(&worth(b)).then(std::cmp::Ordering::Greater)
            })
    }

    /// The candidates that no other one beats, from the most careful on.
    pub fn pareto(&self) -> Vec<ParetoPoint> {
        let mut points: Vec<&CandidateFigures> = self.candidates.iter().collect();
        let harm = |one: &CandidateFigures| one.harm().value.unwrap_or(0.0);
        points.sort_by(|a, b| harm(a).total_cmp(&harm(b)).then(b.saved.total_cmp(&a.saved)));
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
    fn of(name: &str, tally: &Tally, test: &Backtest) -> Unjudged {
        let candidates = test.candidates.iter().zip(&tally.unjudged_saved);
        let lacking = test.candidates.iter().zip(&tally.unjudged_lacking);
        Unjudged {
            name: name.to_owned(),
            runs: tally.unjudged.0,
            steps: tally.unjudged.1,
            candidates: candidates
                .map(|(candidate, (stopped, saved))| (candidate.name.clone(), *stopped, *saved))
                .collect(),
            lacking: lacking
                .map(|(candidate, lacking)| (candidate.name.clone(), lacking.all, lacking.part))
                .collect(),
        }
    }
}

fn part(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// Over tasks that have both, the failed share stopped less the good share stopped.
fn paired(tally: &Tally, at: usize) -> Option<Paired> {
    let differences: Vec<f64> = tally
        .tasks
        .values()
        .filter(|task| task.good > 0 && task.failed > 0)
        .map(|task| {
            let (good, failed) = task.stopped.get(at).copied().unwrap_or_default();
            f64::from(failed) / f64::from(task.failed) - f64::from(good) / f64::from(task.good)
        })
        .collect();
    let n = differences.len() as f64;
    if n < 2.0 {
        return None;
    }
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = student(n - 1.0) * (variance / n).sqrt();
    Some(Paired { tasks: n as u64, difference: mean, low: mean - half, high: mean + half })
}

/// How many standard errors a 95 % interval has on each side.
fn student(freedom: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    StudentsT::new(0.0, 1.0, freedom).map_or(1.96, |t| t.inverse_cdf(0.975))
}

/// How long runs are.
struct Lengths<'t> {
    tally: &'t Tally,
}

impl<'t> Lengths<'t> {
    fn of(tally: &'t Tally) -> Lengths<'t> {
        Lengths { tally }
    }

    /// The shortest length that so large a share of the runs does not exceed.
    fn percentile(&self, share: f64) -> u32 {
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

    /// Whether a candidate beats the best cap that stops no more good runs than it does.
    fn verdict(&self, counts: &Counts, tally: &Tally) -> Verdict {
        if tally.succeeded < LEAST_GOOD {
            return Verdict::TooFewGoodRuns;
        }
        if counts.steps_saved == 0 {
            return Verdict::Idle;
        }
        let mut longer_good = 0;
        let mut cap = 0;
        // From the longest down: the lowest cap under which no more good runs are longer.
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
