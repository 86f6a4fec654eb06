//! The figures of groups of runs: a total over several models and kinds of task describes none of them.
//!
//! ```text
//! for group in &figures.groups {
//!     println!("{}: {} of {} good", group.group, group.succeeded, group.runs);
//! }
//! ```

use super::clustered::Clusters;
use super::dataset::part;
use crate::backtest::count::counts::Share;
use crate::backtest::count::tally::Tally;
use crate::backtest::group::Group;
use crate::backtest::judge::killed::difference;
use crate::backtest::settings::Settings;
use serde::Serialize;

/// The upper bound of success below which a group counts as hopeless, and the least share of all steps
/// that it takes.
pub const HOPELESS: (f64, f64) = (0.25, 0.05);

/// The figures of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupFigures {
    /// The dataset, the model and the kind of task.
    #[serde(flatten)]
    pub group: Group,
    /// Number of judged runs.
    pub runs: u64,
    /// Number of good runs.
    pub succeeded: u64,
    /// Number of good runs with at least four steps.
    pub succeeded_4: u64,
    /// Number of failed runs.
    pub failed: u64,
    /// The share of good runs. The interval takes into account that runs of a task are alike.
    pub success: Share,
    /// Number of steps.
    pub steps: u64,
    /// Number of steps of failed runs.
    pub steps_failed: u64,
    /// The share of the steps of all groups.
    pub share_of_steps: f64,
    /// Tokens of the runs in which every step has a token count.
    pub tokens: Option<u64>,
    /// US dollars of the runs in which every step has a cost, or a model with a price.
    pub usd: Option<f64>,
    /// Number of these runs.
    pub runs_with_usd: u64,
    /// `true` if hardly any run succeeds, and the group takes a considerable share of all steps.
    pub hopeless: bool,
    /// The effect of each candidate.
    pub candidates: Vec<GroupEffect>,
}

/// The effect of a candidate on a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupEffect {
    /// The name of the candidate.
    pub name: String,
    /// Number of good runs that it kills: stops before the reward was full.
    pub killed: u64,
    /// Number of these with at least four steps.
    pub killed4: u64,
    /// The share of good runs that it kills: of all, or of those with at least four steps, whichever is
    /// larger. Without an interval, which would take long for many groups and candidates.
    pub harm: Option<f64>,
    /// Number of failed runs that it stops.
    pub fail_stopped: u64,
    /// Steps saved, less all steps of the good runs that it kills.
    pub net_steps: i64,
}

impl GroupFigures {
    /// Computes the figures of all groups.
    pub(in crate::backtest) fn of_all(
        groups: &[(Group, Tally)],
        settings: &Settings,
    ) -> Vec<GroupFigures> {
        let all = groups.iter().fold(0_u64, |all, (_, tally)| all.saturating_add(tally.steps));
        groups.iter().map(|(group, tally)| GroupFigures::of(group, tally, settings, all)).collect()
    }

    fn of(group: &Group, tally: &Tally, settings: &Settings, all_steps: u64) -> GroupFigures {
        let names = settings.candidates.iter().map(|(name, _)| name);
        let candidates = names.enumerate().map(|(at, name)| {
            let (counts, gone) = (&tally.counts[at], &tally.killed[at]);
            let killed = counts.succ_stopped.saturating_sub(gone.done);
            let killed4 = counts.succ4_stopped.saturating_sub(gone.done4);
            let share = |killed, of| (of > 0).then(|| part(killed, of));
            let (all, long) = (share(killed, tally.succeeded), share(killed4, tally.succeeded_4));
            GroupEffect {
                name: name.clone(),
                killed,
                killed4,
                harm: if long > all { long } else { all },
                fail_stopped: counts.fail_stopped,
                net_steps: difference(counts.steps_saved, gone.steps),
            }
        });
        let success = success(tally);
        let share_of_steps = part(tally.steps, all_steps);
        GroupFigures {
            group: group.clone(),
            runs: tally.runs,
            succeeded: tally.succeeded,
            succeeded_4: tally.succeeded_4,
            failed: tally.failed,
            success,
            steps: tally.steps,
            steps_failed: tally.steps_failed,
            share_of_steps,
            tokens: (tally.used.runs_with_tokens > 0).then_some(tally.used.tokens),
            usd: (tally.used.runs_with_usd > 0).then(|| tally.used.usd.to_usd()),
            runs_with_usd: tally.used.runs_with_usd,
            hopeless: success.high < HOPELESS.0 && share_of_steps >= HOPELESS.1,
            candidates: candidates.collect(),
        }
    }

    /// Returns the effect of a candidate.
    pub fn candidate(&self, name: &str) -> Option<&GroupEffect> {
        self.candidates.iter().find(|one| one.name == name)
    }
}

/// Returns the share of good runs, with an interval by task.
fn success(tally: &Tally) -> Share {
    let mut clusters = Clusters::default();
    for task in tally.tasks.values() {
        clusters.add(task.good, task.good.saturating_add(task.failed));
    }
    clusters.add_singles(u64::from(tally.alone.good), tally.alone.runs());
    clusters.share(tally.succeeded, tally.runs)
}
