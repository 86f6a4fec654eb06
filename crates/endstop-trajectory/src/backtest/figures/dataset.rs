//! The figures of one dataset: the effect of each candidate on its runs, and the baselines.
//!
//! ```text
//! let figures = DatasetFigures::of("sql", &tally, &settings, &families);
//! let best = figures.best_bounded(0.05);
//! ```

use super::clustered::Clusters;
use super::paired::{Paired, paired};
use crate::backtest::calibrate::family::Family;
use crate::backtest::calibrate::{Calibrated, Groups};
use crate::backtest::count::caps::{CapEffect, Caps};
use crate::backtest::count::counts::{Counts, Share};
use crate::backtest::count::tally::{Skipped, Tally};
use crate::backtest::count::task::{Stopped, Task};
use crate::backtest::judge::killed::difference;
use crate::backtest::settings::Settings;
use serde::Serialize;

/// Minimum number of good runs for a recommendation. With 20 good runs of which none is stopped,
/// the true share may still be one in seven.
pub(in crate::backtest) const LEAST_GOOD: u64 = 20;

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
    /// Number of tasks with a good run; of very many tasks, of those that are stored.
    pub good_tasks: u64,
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
    /// The share of good runs that it stops. The tasks of these runs are not counted, so that the interval
    /// takes all runs of a task as alike.
    pub good_stopped: Share,
    /// The share of good runs with at least four steps that it stops.
    pub good4_stopped: Share,
    /// Number of good runs that it stops after the reward was full: nothing is lost.
    pub done_stopped: u64,
    /// The share of good runs that it kills: stops before the reward was full. The interval takes into
    /// account that runs of a task are alike.
    pub good_killed: Share,
    /// The share of good runs with at least four steps that it kills.
    pub good4_killed: Share,
    /// The share of failed runs that it stops. The interval takes into account that runs of a task are
    /// alike.
    pub failed_stopped: Share,
    /// The share of all steps that it saves.
    pub saved: f64,
    /// What it is worth: steps saved, less all steps of the good runs that it kills, which have to be run
    /// again.
    pub net_steps: i64,
    /// The share of all steps that it is worth.
    pub net: f64,
    /// What it is worth in tokens, if known.
    pub net_tokens: Option<i64>,
    /// What it is worth in US dollars, if known.
    pub net_usd: Option<f64>,
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
    /// The cap on turns that is worth most among those that kill no more good runs.
    pub equal_cap: Option<Cap>,
    /// The comparison with that cap.
    pub verdict: Verdict,
}

/// The recommendation for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There are too few good runs for a recommendation.
    TooFewGoodRuns,
    /// The candidate is worth nothing: it stops nothing, or loses as much as it saves.
    Idle,
    /// The candidate is worth no more than a cap that kills no more good runs.
    WorseThanACap,
    /// The candidate is worth more than any cap that kills no more good runs.
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
    /// The share of good runs that are longer. As for the other shares of a cap, the interval takes all runs
    /// of a task as alike.
    pub good_stopped: Share,
    /// The share of good runs with at least four steps that are longer.
    pub good4_stopped: Share,
    /// Number of steps after the cap.
    pub steps_saved: u64,
    /// The share of all steps that are after the cap.
    pub saved: f64,
    /// The share of good runs that are longer and were not done before.
    pub good_killed: Share,
    /// The share of good runs with at least four steps that are longer and were not done before.
    pub good4_killed: Share,
    /// What it is worth: steps saved, less all steps of the good runs that it kills.
    pub net_steps: i64,
    /// The share of all steps that it is worth.
    pub net: f64,
}

/// A candidate on the Pareto front: no other candidate both kills fewer good runs and is worth more
/// steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParetoPoint {
    /// The name of the candidate.
    pub name: String,
    /// The share of good runs that it kills: of all, or of those with at least four steps,
    /// whichever is larger.
    pub harm: Share,
    /// The share of steps that it is worth.
    pub saved: f64,
}

impl CandidateFigures {
    /// Returns `true` if the share of killed runs is larger among long good runs than among all;
    /// [`harm`](Self::harm) is then that share.
    pub fn harms_long_runs_more(&self) -> bool {
        let (all, long) = (&self.good_killed, &self.good4_killed);
        match (all.value, long.value) {
            (Some(a), Some(b)) => b > a || (b >= a && long.high > all.high),
            _ => false,
        }
    }

    /// Returns the share of good runs that it kills: of all, or of those with at least four steps,
    /// whichever is larger. Short good runs can hardly be cut, and must not hide the effect on long
    /// ones.
    pub fn harm(&self) -> Share {
        if self.harms_long_runs_more() { self.good4_killed } else { self.good_killed }
    }

    /// Returns `true` if the upper bound of the harm is at most this share, so that the runs support the
    /// promise. Without a good run of four steps or more they do not: the harm to long runs is unknown.
    pub fn keeps(&self, harm: f64) -> bool {
        self.good4_killed.value.is_some() && self.harm().high <= harm
    }
}

impl DatasetFigures {
    pub(in crate::backtest) fn of(
        name: &str,
        tally: &Tally,
        settings: &Settings,
        families: &[Family],
    ) -> DatasetFigures {
        let caps = Caps::of(&tally.lengths);
        let tasks = GoodTasks::of(tally);
        let cap = Cap::of(caps.at(tally.lengths.percentile(0.75)), tally, &tasks);
        let mut candidates = Vec::with_capacity(settings.candidates.len());
        for (at, (candidate, _)) in settings.candidates.iter().enumerate() {
            let counts = tally.counts[at];
            let gone = tally.killed[at];
            let killed = counts.succ_stopped.saturating_sub(gone.done);
            let killed4 = counts.succ4_stopped.saturating_sub(gone.done4);
            let net_steps = difference(counts.steps_saved, gone.steps);
            let (tokens, usd) = (tally.saved[at].tokens, tally.saved[at].usd);
            let equal_cap = caps.best(killed).map(|cap| Cap::of(cap, tally, &tasks));
            candidates.push(CandidateFigures {
                name: candidate.clone(),
                counts,
                good_stopped: tasks.all.widest_share(counts.succ_stopped, tally.succeeded),
                good4_stopped: tasks.long.widest_share(counts.succ4_stopped, tally.succeeded_4),
                done_stopped: gone.done,
                good_killed: clusters(tally, at, |task| task.good, |stopped| stopped.good)
                    .share(killed, tally.succeeded),
                good4_killed: clusters(tally, at, |task| task.good4, |stopped| stopped.good4)
                    .share(killed4, tally.succeeded_4),
                failed_stopped: clusters(tally, at, |task| task.failed, |stopped| stopped.failed)
                    .share(counts.fail_stopped, tally.failed),
                saved: part(counts.steps_saved, tally.steps),
                net_steps,
                net: signed_part(net_steps, tally.steps),
                net_tokens: (tally.used.runs_with_tokens > 0)
                    .then(|| difference(tokens, gone.tokens)),
                net_usd: (tally.used.runs_with_usd > 0).then(|| usd.to_usd() - gone.usd.to_usd()),
                // `None`, not 0, if no run has counts: the savings are then unknown.
                tokens_saved: (tally.used.runs_with_tokens > 0).then_some(tokens),
                usd_saved: (tally.used.runs_with_usd > 0).then(|| usd.to_usd()),
                lacking: tally.lacking[at].all,
                lacking_in_part: tally.lacking[at].part,
                paired: paired(tally, at),
                verdict: verdict(net_steps, equal_cap.as_ref(), tally),
                equal_cap,
            });
        }
        let groups = Groups::new(families, [&tally.scores[..]]);
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
            good_tasks: tally.tasks.values().filter(|task| task.good > 0).count() as u64
                + u64::from(tally.alone.good),
            mixed_tasks: mixed.count() as u64,
            tasks_left_out: tally.tasks_left_out(),
            cap,
            candidates,
            calibrated: (0..families.len())
                .map(|family| groups.calibrated(family, settings.alpha))
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

    /// Returns the candidate that is worth most among those that kill at most this share of good runs,
    /// both of all and of those with at least four steps; `None` if there is no such candidate, or there
    /// are too few good runs.
    pub fn best_within(&self, harm: f64) -> Option<&CandidateFigures> {
        // A share of no runs exceeds nothing.
        let within = |share: &Share| share.value.is_none_or(|value| value <= harm);
        self.best(&|one| within(&one.good_killed) && within(&one.good4_killed))
    }

    /// Returns the candidate that is worth most among those whose upper bound of the harm is at most this
    /// share: what these runs can promise.
    pub fn best_bounded(&self, harm: f64) -> Option<&CandidateFigures> {
        self.best(&|one| one.keeps(harm))
    }

    fn best(&self, may: &dyn Fn(&CandidateFigures) -> bool) -> Option<&CandidateFigures> {
        if !self.has_enough_good_runs() {
            return None;
        }
        let worth = |one: &CandidateFigures| {
            // Among equal candidates, prefer the one that stops fewer good runs, then the first one.
            (one.net_steps, std::cmp::Reverse(one.counts.succ_stopped))
        };
        let allowed = self.candidates.iter().filter(|one| one.net_steps > 0 && may(one));
        // Reversed, because `max_by_key` returns the last of several maxima.
        allowed.rev().max_by_key(|one| worth(one))
    }

    /// Returns the candidates on the Pareto front, ordered by increasing harm.
    pub fn pareto(&self) -> Vec<ParetoPoint> {
        let mut points: Vec<&CandidateFigures> = self.candidates.iter().collect();
        let harm = |one: &CandidateFigures| one.harm().value.unwrap_or(0.0);
        points.sort_by(|a, b| harm(a).total_cmp(&harm(b)).then(b.net.total_cmp(&a.net)));
        // Sorted by harm, a candidate is on the front only if it saves more than all before it.
        let mut best = 0.0;
        let mut front = Vec::new();
        for one in points {
            if one.net > best {
                best = one.net;
                front.push(ParetoPoint {
                    name: one.name.clone(),
                    harm: one.harm(),
                    saved: one.net,
                });
            }
        }
        front
    }
}

impl Cap {
    fn of(cap: CapEffect, tally: &Tally, tasks: &GoodTasks) -> Cap {
        let all = |cases| tasks.all.widest_share(cases, tally.succeeded);
        let long = |cases| tasks.long.widest_share(cases, tally.succeeded_4);
        Cap {
            turns: cap.turns,
            fail_stopped: cap.failed,
            succ_stopped: cap.good,
            succ4_stopped: cap.good4,
            good_stopped: all(cap.good),
            good4_stopped: long(cap.good4),
            steps_saved: cap.steps_saved,
            saved: part(cap.steps_saved, tally.steps),
            good_killed: all(cap.killed),
            good4_killed: long(cap.killed4),
            net_steps: cap.net_steps,
            net: signed_part(cap.net_steps, tally.steps),
        }
    }
}

/// The good runs of each task, without what stops them: enough for the widest interval.
struct GoodTasks {
    all: Clusters,
    long: Clusters,
}

impl GoodTasks {
    fn of(tally: &Tally) -> GoodTasks {
        GoodTasks {
            all: clusters(tally, 0, |task| task.good, |_| 0),
            long: clusters(tally, 0, |task| task.good4, |_| 0),
        }
    }
}

/// Compares a candidate with the best cap that kills no more good runs than it does.
fn verdict(net_steps: i64, cap: Option<&Cap>, tally: &Tally) -> Verdict {
    if tally.succeeded < LEAST_GOOD {
        Verdict::TooFewGoodRuns
    } else if net_steps <= 0 {
        Verdict::Idle
    } else if cap.is_none_or(|cap| net_steps > cap.net_steps) {
        Verdict::BetterThanACap
    } else {
        Verdict::WorseThanACap
    }
}

/// Returns for each task its runs of a kind, and those of them that a candidate stops.
fn clusters(
    tally: &Tally,
    at: usize,
    runs: impl Fn(&Task) -> u32,
    stopped: impl Fn(&Stopped) -> u32,
) -> Clusters {
    let mut clusters = Clusters::default();
    for task in tally.tasks.values() {
        clusters.add(stopped(&task.stopped(at)), runs(task));
    }
    let alone = &tally.alone;
    clusters.add_singles(u64::from(stopped(&alone.stopped(at))), u64::from(runs(alone)));
    clusters
}

/// Returns a share; 0 of nothing.
pub(in crate::backtest) fn part(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

/// As [`part`], for a difference.
pub(in crate::backtest) fn signed_part(part: i64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}
