//! The counts of one dataset: how many runs, steps, tokens and dollars each candidate would have
//! stopped or saved.
//!
//! ```text
//! tally.judged(&run, turns, success, &stopped, &Curve::of(&run, &prices), &levels);
//! tally.add(other); // the counts of another thread
//! ```

use super::calibrate::Scores;
use super::candidate::{Candidate, Trial};
use super::counts::{Counts, Lacking};
use crate::availability::AvailableData;
use crate::model::Trajectory;
use crate::pricing::Prices;
use endstop_core::NanoUsd;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum number of tasks whose good and failed runs are compared; runs of further tasks are
/// counted as left out.
const MOST_TASKS: usize = 100_000;

/// The counts of one dataset.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) runs: u64,
    pub(super) failed: u64,
    pub(super) succeeded: u64,
    pub(super) succeeded_4: u64,
    pub(super) steps: u64,
    pub(super) steps_failed: u64,
    pub(super) skipped: Skipped,
    pub(super) counts: Vec<Counts>,
    /// The usage of runs in which every step has one.
    pub(super) used: Used,
    /// The part of that usage that each candidate would have saved.
    pub(super) saved: Vec<Used>,
    /// For each candidate, the judged runs that lack data it requires.
    pub(super) lacking: Vec<Lacking>,
    /// The numbers of good and failed runs by number of steps.
    pub(super) lengths: BTreeMap<u32, (u64, u64)>,
    pub(super) tasks: HashMap<u64, Task>,
    pub(super) tasks_left_out: u64,
    /// The number of unjudged runs and of their steps.
    pub(super) unjudged: (u64, u64),
    pub(super) unjudged_saved: Vec<(u64, u64)>,
    pub(super) unjudged_lacking: Vec<Lacking>,
    pub(super) scores: Vec<Scores>,
}

/// Tokens and dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// Number of runs in which every step has a token count.
    pub(super) runs_with_tokens: u64,
    pub(super) tokens: u64,
    /// Number of runs in which every step has a cost, or a model with a price.
    pub(super) runs_with_usd: u64,
    /// An integer, because a sum of fractions would depend on the order of the runs.
    pub(super) usd: NanoUsd,
}

/// The runs of one task.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) good: u32,
    pub(super) failed: u32,
    /// For each candidate: good runs stopped, failed runs stopped.
    pub(super) stopped: Vec<(u32, u32)>,
}

/// Numbers of runs that are not judged, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
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

/// Cumulative tokens and dollars after each turn; empty if the count of any turn is missing.
#[derive(Debug, Default)]
pub(super) struct Curve {
    tokens: Vec<u64>,
    usd: Vec<NanoUsd>,
}

impl Curve {
    /// Sums the usage of a run.
    pub(super) fn of(run: &Trajectory<'_>, prices: &Prices) -> Curve {
        let (mut tokens, mut usd) = (Vec::new(), Vec::new());
        let (mut all, mut cost) = (0u64, NanoUsd(0));
        let turns = run.turns().count();
        for step in run.turns() {
            if let Some(one) = step.tokens() {
                all = all.saturating_add(one);
                tokens.push(all);
            }
            if let Some(one) = prices.usd(step, run) {
                cost += NanoUsd::from_usd(one);
                usd.push(cost);
            }
        }
        // Partial sums would understate the savings, so they are discarded.
        if tokens.len() != turns {
            tokens.clear();
        }
        if usd.len() != turns {
            usd.clear();
        }
        Curve { tokens, usd }
    }
}

impl Tally {
    pub(super) fn new(candidates: usize, families: usize) -> Tally {
        Tally {
            counts: vec![Counts::default(); candidates],
            saved: vec![Used::default(); candidates],
            lacking: vec![Lacking::default(); candidates],
            unjudged_saved: vec![(0, 0); candidates],
            unjudged_lacking: vec![Lacking::default(); candidates],
            scores: vec![Scores::default(); families],
            ..Tally::default()
        }
    }

    /// Counts the candidates that require data which the run lacks.
    pub(super) fn lacks(&mut self, candidates: &[Candidate], run: &Trajectory<'_>) {
        let has = AvailableData::of(run);
        let is_judged = run.recorded.success.is_some();
        let lacking = if is_judged { &mut self.lacking } else { &mut self.unjudged_lacking };
        for (candidate, lacking) in candidates.iter().zip(lacking) {
            lacking.count(match &candidate.trial {
                Trial::Rule(rule) => has.rule(rule),
                Trial::Kernel(setting) => has.setting(setting),
            });
        }
    }

    pub(super) fn judged(
        &mut self,
        run: &Trajectory<'_>,
        turns: u32,
        success: bool,
        stopped: &[Option<u32>],
        spent: &Curve,
        levels: &[Option<u32>],
    ) {
        let steps = u64::from(turns);
        self.runs += 1;
        self.succeeded += u64::from(success);
        self.succeeded_4 += u64::from(success && turns >= 4);
        self.failed += u64::from(!success);
        self.steps += steps;
        self.steps_failed += if success { 0 } else { steps };
        let length = self.lengths.entry(turns).or_default();
        *(if success { &mut length.0 } else { &mut length.1 }) += 1;
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
        // A run without a task id is treated as a task with a single run, so there is nothing to
        // compare it with.
        if let Some(task) = &run.task_id {
            let key = hash_of(task);
            self.task(key, success, turns, stopped);
        }
        // Without a task id the run id decides the half, so that the split does not depend on the
        // order of the runs.
        let half = hash_of(run.task_id.as_ref().unwrap_or(&run.run_id));
        for (scores, level) in self.scores.iter_mut().zip(levels) {
            scores.add(half, success, *level);
        }
    }

    fn task(&mut self, key: u64, success: bool, turns: u32, stopped: &[Option<u32>]) {
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(&key) {
            self.tasks_left_out += 1;
            return;
        }
        let task = self.tasks.entry(key).or_default();
        if success {
            task.good += 1;
        } else {
            task.failed += 1;
        }
        task.stopped.resize(stopped.len(), (0, 0));
        for (counts, turn) in task.stopped.iter_mut().zip(stopped) {
            if turn.is_some_and(|turn| turn < turns) {
                *(if success { &mut counts.0 } else { &mut counts.1 }) += 1;
            }
        }
    }

    pub(super) fn unjudged(&mut self, turns: u32, stopped: &[Option<u32>]) {
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

    pub(super) fn add(&mut self, other: Tally) {
        self.runs += other.runs;
        self.failed += other.failed;
        self.succeeded += other.succeeded;
        self.succeeded_4 += other.succeeded_4;
        self.steps += other.steps;
        self.steps_failed += other.steps_failed;
        self.skipped.without_outcome += other.skipped.without_outcome;
        self.skipped.summary_only += other.skipped.summary_only;
        self.skipped.single_turn += other.skipped.single_turn;
        self.skipped.empty += other.skipped.empty;
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
        for (length, (good, failed)) in other.lengths {
            let own = self.lengths.entry(length).or_default();
            own.0 += good;
            own.1 += failed;
        }
        self.tasks_left_out += other.tasks_left_out;
        for (key, task) in other.tasks {
            // The maximum also applies to merged counts, so that memory stays bounded for any
            // number of threads.
            if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(&key) {
                self.tasks_left_out += u64::from(task.good + task.failed);
                continue;
            }
            let own = self.tasks.entry(key).or_default();
            own.good += task.good;
            own.failed += task.failed;
            own.stopped.resize(task.stopped.len().max(own.stopped.len()), (0, 0));
            for (own, other) in own.stopped.iter_mut().zip(task.stopped) {
                own.0 += other.0;
                own.1 += other.1;
            }
        }
        self.unjudged.0 += other.unjudged.0;
        self.unjudged.1 += other.unjudged.1;
        for (own, other) in self.unjudged_saved.iter_mut().zip(other.unjudged_saved) {
            own.0 += other.0;
            own.1 += other.1;
        }
        for (own, other) in self.unjudged_lacking.iter_mut().zip(&other.unjudged_lacking) {
            own.add(*other);
        }
        for (own, other) in self.scores.iter_mut().zip(other.scores) {
            own.merge(other);
        }
    }
}

impl Used {
    fn add(&mut self, other: &Used) {
        self.runs_with_tokens += other.runs_with_tokens;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.runs_with_usd += other.runs_with_usd;
        self.usd += other.usd;
    }
}

fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
