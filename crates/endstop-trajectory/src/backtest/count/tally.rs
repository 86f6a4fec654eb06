//! The counts of one group of runs: how many runs, steps, tokens and dollars each candidate would have
//! stopped or saved.
//!
//! ```text
//! tally.judged(&JudgedRun { key, turns, success, .. }, &fired_of_families);
//! tally.add(other); // the counts of another thread
//! ```

use super::caps::Lengths;
use super::counts::{Counts, Lacking};
use super::room::Room;
use super::sample::Sample;
use super::scores::Scores;
use super::task::Task;
use crate::availability::Coverage;
use crate::backtest::judge::judged_run::JudgedRun;
use crate::backtest::judge::killed::{Killed, Stop};
use endstop_core::NanoUsd;
use serde::{Deserialize, Serialize};

/// The counts of one group of runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::backtest) struct Tally {
    pub(in crate::backtest) runs: u64,
    pub(in crate::backtest) failed: u64,
    pub(in crate::backtest) succeeded: u64,
    pub(in crate::backtest) succeeded_4: u64,
    pub(in crate::backtest) steps: u64,
    pub(in crate::backtest) steps_failed: u64,
    pub(in crate::backtest) skipped: Skipped,
    pub(in crate::backtest) counts: Vec<Counts>,
    /// The usage of runs in which every step has one.
    pub(in crate::backtest) used: Used,
    /// The part of that usage that each candidate would have saved.
    pub(in crate::backtest) saved: Vec<Used>,
    /// For each candidate, the good runs that it stops.
    pub(in crate::backtest) killed: Vec<Killed>,
    /// For each candidate, the judged runs that lack data it requires.
    pub(in crate::backtest) lacking: Vec<Lacking>,
    pub(in crate::backtest) lengths: Lengths,
    /// The tasks by the hash of their dataset and name.
    pub(in crate::backtest) tasks: Sample<Task>,
    /// Number of runs of all tasks, also of those that are not in `tasks`.
    pub(in crate::backtest) task_runs: u64,
    /// The runs without a task, each of which is a task of its own.
    pub(in crate::backtest) alone: Task,
    /// The number of unjudged runs and of their steps.
    pub(in crate::backtest) unjudged: (u64, u64),
    pub(in crate::backtest) unjudged_saved: Vec<(u64, u64)>,
    pub(in crate::backtest) unjudged_lacking: Vec<Lacking>,
    pub(in crate::backtest) scores: Vec<Scores>,
}

/// Tokens and dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::backtest) struct Used {
    /// Number of runs in which every step has a token count.
    pub(in crate::backtest) runs_with_tokens: u64,
    pub(in crate::backtest) tokens: u64,
    /// Number of runs in which every step has a cost, or a model with a price.
    pub(in crate::backtest) runs_with_usd: u64,
    /// An integer, because a sum of fractions would depend on the order of the runs.
    pub(in crate::backtest) usd: NanoUsd,
}

/// Numbers of runs that are not judged, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Runs without a recorded success or failure.
    pub without_outcome: u64,
    /// Runs without steps, only with totals.
    pub summary_only: u64,
    /// Runs that were configured for a single turn.
    pub single_turn: u64,
    /// Runs without a turn.
    pub empty: u64,
}

impl Tally {
    pub(in crate::backtest) fn new(candidates: usize, families: usize) -> Tally {
        Tally {
            counts: vec![Counts::default(); candidates],
            saved: vec![Used::default(); candidates],
            killed: vec![Killed::default(); candidates],
            lacking: vec![Lacking::default(); candidates],
            unjudged_saved: vec![(0, 0); candidates],
            unjudged_lacking: vec![Lacking::default(); candidates],
            scores: vec![Scores::default(); families],
            ..Tally::default()
        }
    }

    /// Counts the candidates that require data which a run lacks.
    pub(in crate::backtest) fn lacks(&mut self, is_judged: bool, coverage: &[Coverage]) {
        let lacking = if is_judged { &mut self.lacking } else { &mut self.unjudged_lacking };
        for (lacking, coverage) in lacking.iter_mut().zip(coverage) {
            lacking.count(*coverage);
        }
    }

    /// Counts a judged run; `families` holds for each calibrated family the turns at which its rules
    /// fire, or `None` if it cannot evaluate the run. At most `room` tasks are stored.
    pub(in crate::backtest) fn judged(
        &mut self,
        run: &JudgedRun<'_>,
        families: &[Option<&[Option<u32>]>],
        room: Room,
    ) {
        let JudgedRun { turns, success, full_from, stopped, spent, .. } = *run;
        let steps = u64::from(turns);
        self.runs += 1;
        self.succeeded += u64::from(success);
        self.succeeded_4 += u64::from(success && turns >= 4);
        self.failed += u64::from(!success);
        self.steps += steps;
        self.steps_failed += if success { 0 } else { steps };
        self.lengths.count(turns, success, full_from);
        if let Some(all) = spent.tokens.last() {
            self.used.runs_with_tokens += 1;
            self.used.tokens = self.used.tokens.saturating_add(*all);
        }
        if let Some(all) = spent.usd.last() {
            self.used.runs_with_usd += 1;
            self.used.usd += *all;
        }
        for (at, turn) in stopped.iter().enumerate() {
            let Some(turn) = *turn else { continue };
            let counts = &mut self.counts[at];
            counts.fired += 1;
            // A stop after the last turn saves nothing, but the candidate did fire.
            if turn >= turns {
                continue;
            }
            let saved = u64::from(turns - turn);
            counts.steps_saved += saved;
            if success {
                counts.succ_stopped += 1;
                counts.succ4_stopped += u64::from(turns >= 4);
                self.killed[at].stop(Stop { turn, turns, full_from }, spent);
            } else {
                counts.fail_stopped += 1;
                counts.steps_saved_fail += saved;
            }
            // A stop before the first turn saves everything.
            let before = |all: usize| all.checked_sub(1);
            let used = &mut self.saved[at];
            if let Some(all) = spent.tokens.last() {
                let until = before(turn as usize).and_then(|at| spent.tokens.get(at));
                let saved = all - until.copied().unwrap_or(0);
                // Saturating, because the counts come from files and may be arbitrarily large.
                used.tokens = used.tokens.saturating_add(saved);
            }
            if let Some(all) = spent.usd.last() {
                let until = before(turn as usize).and_then(|at| spent.usd.get(at));
                used.usd += all.saturating_sub(until.copied().unwrap_or(NanoUsd(0)));
            }
        }
        if run.has_task {
            self.task_runs += 1;
            if let Some(task) = self.tasks.entry(run.key, room.tasks) {
                task.count(run);
            }
        } else {
            self.alone.count(run);
        }
        for (scores, fired) in self.scores.iter_mut().zip(families) {
            scores.add(run, *fired, room.scores);
        }
    }

    pub(in crate::backtest) fn unjudged(&mut self, turns: u32, stopped: &[Option<u32>]) {
        self.skipped.without_outcome += 1;
        self.unjudged.0 += 1;
        self.unjudged.1 += u64::from(turns);
        for (saved, turn) in self.unjudged_saved.iter_mut().zip(stopped) {
            if let Some(turn) = turn.filter(|turn| *turn < turns) {
                saved.0 += 1;
                saved.1 += u64::from(turns - turn);
            }
        }
    }

    /// Adds the counts of other runs. All sums saturate, because counts may come from a file.
    pub(in crate::backtest) fn add(&mut self, other: Tally) {
        for (own, other) in [
            (&mut self.runs, other.runs),
            (&mut self.failed, other.failed),
            (&mut self.succeeded, other.succeeded),
            (&mut self.succeeded_4, other.succeeded_4),
            (&mut self.steps, other.steps),
            (&mut self.steps_failed, other.steps_failed),
            (&mut self.task_runs, other.task_runs),
        ] {
            *own = own.saturating_add(other);
        }
        self.skipped.add(other.skipped);
        for (own, other) in self.counts.iter_mut().zip(&other.counts) {
            own.add(other);
        }
        self.used.add(&other.used);
        for (own, other) in self.saved.iter_mut().zip(&other.saved) {
            own.add(other);
        }
        for (own, other) in self.lacking.iter_mut().zip(&other.lacking) {
            own.add(*other);
        }
        self.lengths.add(other.lengths);
        for (own, other) in self.killed.iter_mut().zip(&other.killed) {
            own.add(other);
        }
        self.alone.add(other.alone);
        self.tasks.merge(other.tasks, Task::add);
        add_pair(&mut self.unjudged, other.unjudged);
        for (own, other) in self.unjudged_saved.iter_mut().zip(other.unjudged_saved) {
            add_pair(own, other);
        }
        for (own, other) in self.unjudged_lacking.iter_mut().zip(&other.unjudged_lacking) {
            own.add(*other);
        }
        for (own, other) in self.scores.iter_mut().zip(other.scores) {
            own.merge(other);
        }
    }

    /// Returns the number of tasks that are stored.
    pub(in crate::backtest) fn stored(&self) -> Room {
        let scores = self.scores.iter().map(Scores::stored).sum();
        Room { tasks: self.tasks.len(), scores }
    }

    /// Drops tasks, so that at most this number is left: of the tasks, and of those of each family.
    pub(in crate::backtest) fn shrink(&mut self, room: Room) {
        self.tasks.shrink(room.tasks);
        self.scores.iter_mut().for_each(|scores| scores.shrink(room.scores));
    }

    /// Returns the number of runs whose tasks are beyond the maximum.
    pub(in crate::backtest) fn tasks_left_out(&self) -> u64 {
        self.task_runs.saturating_sub(self.tasks.values().map(Task::runs).sum())
    }

    /// Returns `true` if the lists have the lengths that this number of candidates and these numbers of
    /// levels of families require; counts that were read from a file may have others.
    pub(in crate::backtest) fn fits(&self, candidates: usize, levels: &[usize]) -> bool {
        let lengths = [
            self.counts.len(),
            self.saved.len(),
            self.killed.len(),
            self.lacking.len(),
            self.unjudged_saved.len(),
            self.unjudged_lacking.len(),
        ];
        lengths.iter().all(|len| *len == candidates)
            && self.scores.len() == levels.len()
            && self.scores.iter().zip(levels).all(|(scores, levels)| scores.fits(*levels))
            && self.tasks.values().chain([&self.alone]).all(|task| task.fits(candidates))
    }
}

impl Skipped {
    /// Adds other numbers.
    pub(in crate::backtest) fn add(&mut self, other: Skipped) {
        for (own, other) in [
            (&mut self.without_outcome, other.without_outcome),
            (&mut self.summary_only, other.summary_only),
            (&mut self.single_turn, other.single_turn),
            (&mut self.empty, other.empty),
        ] {
            *own = own.saturating_add(other);
        }
    }
}

fn add_pair(own: &mut (u64, u64), other: (u64, u64)) {
    own.0 = own.0.saturating_add(other.0);
    own.1 = own.1.saturating_add(other.1);
}

impl Used {
    fn add(&mut self, other: &Used) {
        self.runs_with_tokens = self.runs_with_tokens.saturating_add(other.runs_with_tokens);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.runs_with_usd = self.runs_with_usd.saturating_add(other.runs_with_usd);
        self.usd += other.usd;
    }
}
