//! What the rules of one family do to the runs of a group, as far as a calibration needs it.
//!
//! ```text
//! scores.add(&run, Some(&fired));
//! let (killed, tasks) = (scores.killed(fold, level), scores.tasks(fold));
//! ```
//!
//! Tasks are divided into ten folds by their hash. What a rule does to the tasks of a fold is counted
//! apart, so that a choice can be made on nine folds and be counted on the tenth.

use super::sample::Sample;
use crate::backtest::judge::judged_run::JudgedRun;
use crate::backtest::judge::killed::{Stop, difference};
use serde::{Deserialize, Serialize};

/// Number of folds.
pub(in crate::backtest) const FOLDS: usize = 10;

/// Returns the fold of a task.
fn fold(key: u64) -> usize {
    (key % FOLDS as u64) as usize
}

/// The effect of the rules of one family.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::backtest) struct Scores {
    /// For each task with a good run, one more than the index of the strongest rule that kills one of
    /// its good runs; 0 if none does.
    tasks: Sample<u32>,
    /// The runs of each fold; empty before the first run.
    folds: Vec<Fold>,
    /// Number of runs that the family cannot evaluate.
    pub(in crate::backtest) left_out: u64,
}

/// The runs of a fold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Fold {
    good: u64,
    failed: u64,
    levels: Vec<Level>,
}

/// The effect of one rule on the runs of a fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backtest) struct Level {
    /// Number of good runs killed.
    pub(in crate::backtest) killed: u64,
    /// Number of failed runs stopped.
    pub(in crate::backtest) failed: u64,
    /// Number of steps after the stops.
    saved: u64,
    /// Number of all steps of the good runs killed.
    killed_steps: u64,
}

impl Scores {
    /// Adds a run; `fired` holds the turns at which the rules fire, the weakest first. At most `most` tasks
    /// are stored.
    pub(in crate::backtest) fn add(
        &mut self,
        run: &JudgedRun<'_>,
        fired: Option<&[Option<u32>]>,
        most: usize,
    ) {
        let Some(fired) = fired else {
            self.left_out += 1;
            return;
        };
        if self.folds.is_empty() {
            let empty = Fold { levels: vec![Level::default(); fired.len()], ..Fold::default() };
            self.folds = vec![empty; FOLDS];
        }
        let Some(fold) = self.folds.get_mut(fold(run.key)) else { return };
        *(if run.success { &mut fold.good } else { &mut fold.failed }) += 1;
        let mut score = 0;
        for (at, (turn, level)) in fired.iter().zip(&mut fold.levels).enumerate() {
            // A rule that fires at the last turn stops nothing.
            let Some(turn) = turn.filter(|turn| *turn < run.turns) else { continue };
            level.saved += u64::from(run.turns - turn);
            if !run.success {
                level.failed += 1;
            } else if (Stop { turn, turns: run.turns, full_from: run.full_from }).kills() {
                level.killed += 1;
                level.killed_steps += u64::from(run.turns);
                score = at as u32 + 1;
            }
        }
        if let Some(best) = run.success.then(|| self.tasks.entry(run.key, most)).flatten() {
            *best = (*best).max(score);
        }
    }

    /// Returns the number of tasks that are stored.
    pub(in crate::backtest) fn stored(&self) -> usize {
        self.tasks.len()
    }

    /// Drops tasks, so that at most this number is left. Those that are left are a random part.
    pub(in crate::backtest) fn shrink(&mut self, most: usize) {
        self.tasks.shrink(most);
    }

    /// Adds the effect on other runs.
    pub(in crate::backtest) fn merge(&mut self, other: Scores) {
        self.left_out = self.left_out.saturating_add(other.left_out);
        self.tasks.merge(other.tasks, |own, other| *own = (*own).max(other));
        if self.folds.is_empty() {
            self.folds = other.folds;
            return;
        }
        for (own, other) in self.folds.iter_mut().zip(other.folds) {
            own.good = own.good.saturating_add(other.good);
            own.failed = own.failed.saturating_add(other.failed);
            for (own, other) in own.levels.iter_mut().zip(&other.levels) {
                own.add(other);
            }
        }
    }

    /// Returns `true` if there are as many folds and levels as there must be.
    pub(in crate::backtest) fn fits(&self, levels: usize) -> bool {
        (self.folds.is_empty() || self.folds.len() == FOLDS)
            && self.folds.iter().all(|fold| fold.levels.len() == levels)
            && self.tasks.values().all(|score| *score as usize <= levels)
    }

    /// Counts for each fold the tasks with a good run, and for each rule those that it kills a good run
    /// of.
    pub(in crate::backtest) fn tasks(&self, levels: usize) -> Vec<(u64, Vec<u64>)> {
        let mut folds = vec![(0, vec![0; levels]); FOLDS];
        for (key, score) in self.tasks.iter() {
            let (tasks, killed) = &mut folds[fold(key)];
            *tasks += 1;
            if let Some(count) = (*score as usize).checked_sub(1).and_then(|at| killed.get_mut(at))
            {
                *count += 1;
            }
        }
        for (_, killed) in &mut folds {
            // A rule also stops what a stronger one stops.
            for at in (1..levels).rev() {
                killed[at - 1] += killed[at];
            }
        }
        folds
    }

    /// Returns the effect of a rule on the runs of a fold.
    pub(in crate::backtest) fn level(&self, fold: usize, at: usize) -> Level {
        self.folds.get(fold).and_then(|fold| fold.levels.get(at)).copied().unwrap_or_default()
    }

    /// Returns the numbers of good and of failed runs of a fold.
    pub(in crate::backtest) fn runs(&self, fold: usize) -> (u64, u64) {
        self.folds.get(fold).map_or((0, 0), |fold| (fold.good, fold.failed))
    }
}

impl Level {
    /// Adds the effect on other runs.
    pub(in crate::backtest) fn add(&mut self, other: &Level) {
        for (own, other) in [
            (&mut self.killed, other.killed),
            (&mut self.failed, other.failed),
            (&mut self.saved, other.saved),
            (&mut self.killed_steps, other.killed_steps),
        ] {
            *own = own.saturating_add(other);
        }
    }

    /// Returns the steps saved, less those of good runs that have to be run again.
    pub(in crate::backtest) fn net(&self) -> i64 {
        difference(self.saved, self.killed_steps)
    }
}
