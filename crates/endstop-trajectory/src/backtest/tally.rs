//! Counts the effect of each candidate on each dataset. Several instances may count in parallel and
//! are then added up.
//!
//! ```no_run
//! use endstop_trajectory::backtest::{Backtest, Candidate};
//! # fn runs() -> Vec<endstop_trajectory::Trajectory<'static>> { Vec::new() }
//! let candidates = Candidate::reference()?;
//! let (mut one, mut other) = (Backtest::new(&candidates)?, Backtest::new(&candidates)?);
//! for (nth, run) in runs().iter().enumerate() {
//!     if nth % 2 == 0 { one.run("runs", run) } else { other.run("runs", run) };
//! }
//! one.add(other);
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```

use super::calibrate::{Family, Scores};
use super::candidate::{Candidate, Trial};
use super::counts::{Counts, Lacking};
use crate::availability::{AvailableData, without_results};
use crate::model::{Step, Trajectory};
use crate::pricing::Prices;
use crate::replay::{Setting, replay};
use endstop_core::detector::{Rule, RuleSet};
use endstop_core::{NanoUsd, PolicyError, Registry};
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum number of tasks whose good and failed runs are compared; runs of further tasks are
/// counted as left out.
const MOST_TASKS: usize = 100_000;

/// Counts the effect of candidates on recorded runs.
#[derive(Debug)]
pub struct Backtest {
    pub(super) candidates: Vec<Candidate>,
    rules: Rules,
    /// As `rules`, for runs without recorded tool results.
    rules_without_results: Rules,
    kernels: Vec<(usize, Setting)>,
    pub(super) families: Vec<Family>,
    family_rules: RuleSet,
    pub(super) datasets: BTreeMap<String, Tally>,
    pub(super) alpha: f64,
    stopped: Vec<Option<u32>>,
    prices: Prices,
}

/// The candidates that are rules, with their index among all candidates.
#[derive(Debug)]
struct Rules {
    rule_set: RuleSet,
    places: Vec<usize>,
}

impl Rules {
    /// Collects the rules; `seeing` reduces each of them or drops it.
    fn of(candidates: &[Candidate], seeing: impl Fn(&Rule) -> Option<Rule>) -> Rules {
        let rules = candidates.iter().enumerate().filter_map(|(nth, candidate)| {
            let Trial::Rule(rule) = &candidate.trial else { return None };
            Some((nth, seeing(rule)?))
        });
        let (places, rules): (Vec<usize>, Vec<Rule>) = rules.unzip();
        Rules { rule_set: RuleSet::new(rules), places }
    }
}

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

/// The effect of each candidate on one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Number of turns of the run.
    pub turns: u32,
    /// For each candidate the turn, from 1, at which it fires.
    pub fired: Vec<Option<u32>>,
}

impl Backtest {
    /// Creates an empty backtest of these candidates.
    ///
    /// # Errors
    /// One of the policies cannot be built.
    pub fn new(candidates: &[Candidate]) -> Result<Backtest, PolicyError> {
        let mut kernels = Vec::new();
        for (nth, candidate) in candidates.iter().enumerate() {
            if let Trial::Kernel(setting) = &candidate.trial {
                if let Some(policy) = &setting.policy {
                    Registry::new().build(policy)?;
                }
                kernels.push((nth, (**setting).clone()));
            }
        }
        Ok(Backtest {
            candidates: candidates.to_vec(),
            rules: Rules::of(candidates, |rule| Some(rule.clone())),
            rules_without_results: Rules::of(candidates, without_results),
            kernels,
            families: Vec::new(),
            alpha: 1.0,
            family_rules: RuleSet::default(),
            datasets: BTreeMap::new(),
            stopped: Vec::new(),
            prices: Prices::new(),
        })
    }

    /// Also calibrates a threshold for each of these families of rules, which stops at most this
    /// share (0 to 1) of good tasks.
    #[must_use]
    pub fn calibrating(mut self, families: &[Family], alpha: f64) -> Backtest {
        self.families = families.to_vec();
        self.alpha = alpha;
        self.family_rules = RuleSet::new(families.iter().flat_map(Family::rules));
        self
    }

    /// Counts a run of a dataset. Returns for each candidate the turn, from 1, at which it fires;
    /// `None` if the run is not judged.
    pub fn run(&mut self, dataset: &str, run: &Trajectory<'_>) -> Option<&[Option<u32>]> {
        self.run_by(dataset, run, &|setting| through_the_kernel(run, setting))
    }

    /// As [`run`](Self::run), for a run with a custom replay: `replay` returns the turn after which
    /// a setting ends the run, if it does.
    pub fn run_by(
        &mut self,
        dataset: &str,
        run: &Trajectory<'_>,
        replay: &dyn Fn(&Setting) -> Option<u32>,
    ) -> Option<&[Option<u32>]> {
        let candidates = self.candidates.len();
        if !self.datasets.contains_key(dataset) {
            let tally = Tally::new(candidates, self.families.len());
            self.datasets.insert(dataset.to_owned(), tally);
        }
        let turns = run.turns().count() as u32;
        // The same runs are skipped as in the reference implementation, so that the counts can be
        // compared.
        let not_judged: Option<fn(&mut Skipped) -> &mut u64> = if run.is_tagged("summary_only") {
            Some(|skipped| &mut skipped.summary_only)
        } else if turns == 0 {
            Some(|skipped| &mut skipped.empty)
        } else if run.is_tagged("single_turn") {
            Some(|skipped| &mut skipped.single_turn)
        } else {
            None
        };
        if let (Some(which), Some(tally)) = (not_judged, self.datasets.get_mut(dataset)) {
            *which(&mut tally.skipped) += 1;
            return None;
        }
        // The buffer is reused, because this function runs once for each recorded run.
        let mut stopped = std::mem::take(&mut self.stopped);
        self.judge_into(run, replay, &mut stopped);
        let levels = self.levels(run, turns);
        // Only judged runs have figures in tokens and dollars, so only their usage is computed.
        let used = run.recorded.success.map(|_| spent(run, &self.prices));
        if let Some(tally) = self.datasets.get_mut(dataset) {
            tally.lacks(&self.candidates, run);
            match run.recorded.success {
                Some(success) => {
                    let used = used.unwrap_or_default();
                    tally.judged(run, turns, success, &stopped, &used, &levels);
                }
                None => tally.unjudged(turns, &stopped),
            }
        }
        self.stopped = stopped;
        Some(&self.stopped)
    }

    /// Evaluates each candidate on one run.
    pub fn judge(&mut self, run: &Trajectory<'_>) -> Judged {
        self.judge_by(run, &|setting| through_the_kernel(run, setting))
    }

    /// As [`judge`](Self::judge), for a run with a custom replay, as in [`run_by`](Self::run_by).
    pub fn judge_by(
        &mut self,
        run: &Trajectory<'_>,
        replay: &dyn Fn(&Setting) -> Option<u32>,
    ) -> Judged {
        let mut fired = Vec::new();
        self.judge_into(run, replay, &mut fired);
        Judged { turns: run.turns().count() as u32, fired }
    }

    fn judge_into(
        &mut self,
        run: &Trajectory<'_>,
        replay: &dyn Fn(&Setting) -> Option<u32>,
        fired: &mut Vec<Option<u32>>,
    ) {
        fired.clear();
        fired.resize(self.candidates.len(), None);
        let rules =
            if run.lacks_results() { &mut self.rules_without_results } else { &mut self.rules };
        if !rules.rule_set.is_empty() {
            watch(&mut rules.rule_set, run);
            for (at, turn) in rules.places.iter().zip(rules.rule_set.fired()) {
                fired[*at] = *turn;
            }
        }
        for (at, setting) in &self.kernels {
            fired[*at] = replay(setting);
        }
    }

    /// Returns for each family the highest level that would still have stopped the run; `None` if
    /// the family cannot evaluate the run.
    fn levels(&mut self, run: &Trajectory<'_>, turns: u32) -> Vec<Option<u32>> {
        if self.families.is_empty() {
            return Vec::new();
        }
        let blind = run.lacks_results();
        watch(&mut self.family_rules, run);
        let mut fired = self.family_rules.fired();
        let mut levels = Vec::with_capacity(self.families.len());
        for family in &self.families {
            // The rule set holds the rules of all families in order, one per level.
            let (own, rest) = fired.split_at(family.levels());
            fired = rest;
            let sees = !blind || !family.needs_results();
            // A rule that fires at the last turn stops nothing.
            let stops = |turn: &Option<u32>| turn.is_some_and(|turn| turn < turns);
            levels.push(sees.then(|| own.iter().rposition(stops).map_or(0, |at| family.level(at))));
        }
        levels
    }

    /// Adds the counts of another backtest of the same candidates.
    pub fn add(&mut self, other: Backtest) {
        for (name, tally) in other.datasets {
            match self.datasets.get_mut(&name) {
                Some(own) => own.add(tally),
                None => drop(self.datasets.insert(name, tally)),
            }
        }
    }
}

/// Returns the turn after which a setting ends a recorded run, if it does.
fn through_the_kernel(run: &Trajectory<'_>, setting: &Setting) -> Option<u32> {
    // Each policy was built once in `new`, so building it again cannot fail.
    let replayed = replay(run, setting).ok()?;
    replayed.ended.map(|_| replayed.turns)
}

/// Feeds a recorded run to a rule set.
fn watch(rule_set: &mut RuleSet, run: &Trajectory<'_>) {
    rule_set.reset();
    let mut cost = 0.0;
    let has_cost = run.turns().any(|step| step.cost_usd.is_some());
    for step in &run.steps {
        if !step.is_turn() {
            if step.role != crate::Role::System && !step.copied {
                rule_set.message_arrived();
            }
            continue;
        }
        show(rule_set, step);
        if let Some(reward) = step.reward {
            rule_set.reward(reward);
        }
        // Without any recorded cost, a cost rule must see no data instead of a cost of 0.
        if has_cost {
            cost += step.cost_usd.unwrap_or_default();
            rule_set.cost_usd(cost);
        }
        rule_set.end();
    }
}

/// Feeds the text, calls and results of a turn to a rule set, without ending the step.
pub(crate) fn show(rule_set: &mut RuleSet, step: &Step<'_>) {
    rule_set.text(&step.text);
    for call in &step.calls {
        rule_set.call(&call.name, &call.arguments);
    }
    for result in &step.results {
        rule_set.result(&result.content, result.is_error);
    }
}

/// Cumulative tokens and dollars after each turn; empty if the count of any turn is missing.
#[derive(Debug, Default)]
struct Curve {
    tokens: Vec<u64>,
    usd: Vec<NanoUsd>,
}

fn spent(run: &Trajectory<'_>, prices: &Prices) -> Curve {
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

impl Tally {
    fn new(candidates: usize, families: usize) -> Tally {
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
    fn lacks(&mut self, candidates: &[Candidate], run: &Trajectory<'_>) {
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

    fn judged(
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

    fn unjudged(&mut self, turns: u32, stopped: &[Option<u32>]) {
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
