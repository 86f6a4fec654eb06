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

pub(super) mod curve;
pub(super) mod judged_run;
pub(super) mod killed;

use super::calibrate::family::Family;
use super::candidate::{Candidate, Trial};
use super::count::hash::stable_hash;
use super::count::tallies::Tallies;
use super::count::tally::Skipped;
use super::group::GroupBy;
use super::settings::Settings;
use crate::availability::{AvailableData, Coverage, without_results};
use crate::model::{Step, Trajectory};
use crate::pricing::Prices;
use crate::read::is_success;
use crate::replay::{Setting, replay};
use curve::Curve;
use endstop_core::detector::{Rule, RuleSet};
use endstop_core::{NanoUsd, PolicyError, Registry, Termination};
use judged_run::JudgedRun;

/// Counts the effect of candidates on recorded runs.
#[derive(Clone, Debug)]
pub struct Backtest {
    candidates: Vec<Candidate>,
    rules: Rules,
    /// As `rules`, for runs without recorded tool results.
    rules_without_results: Rules,
    kernels: Vec<(usize, Setting)>,
    pub(super) families: Vec<Family>,
    family_rules: RuleSet,
    pub(super) tallies: Tallies,
    stopped: Vec<Option<u32>>,
    prices: Prices,
    /// `true` if a candidate looks at the cost of steps.
    needs_cost: bool,
    /// What the last run recorded, and what each candidate can evaluate of it.
    coverage: (Option<AvailableData>, Vec<Coverage>),
}

/// The candidates that are rules, with their index among all candidates.
#[derive(Clone, Debug)]
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
            family_rules: RuleSet::default(),
            tallies: Tallies::new(Settings::of(candidates)),
            stopped: Vec::new(),
            prices: Prices::new(),
            needs_cost: candidates.iter().any(looks_at_cost),
            coverage: (None, Vec::new()),
        })
    }

    /// Also calibrates a threshold for each of these families of rules, which stops at most this
    /// share (0 to 1) of good tasks.
    #[must_use]
    pub fn calibrating(mut self, families: &[Family], alpha: f64) -> Backtest {
        self.families = families.to_vec();
        self.tallies.settings.calibrate(families, alpha);
        self.family_rules = RuleSet::new(families.iter().flat_map(Family::rules));
        self
    }

    /// Sets the field of a run that names its kind of task, for the figures by group.
    #[must_use]
    pub fn grouping(mut self, by: GroupBy) -> Backtest {
        self.tallies.settings.group_by = by;
        self
    }

    /// Counts a run of a dataset. Returns for each candidate the turn, from 1, at which it fires;
    /// `None` if the run is not judged.
    pub fn run(&mut self, dataset: &str, run: &Trajectory<'_>) -> Option<&[Option<u32>]> {
        let priced = self.priced(run);
        let run = priced.as_ref().unwrap_or(run);
        self.run_by(dataset, run, &|setting| through_the_kernel(run, setting))
    }

    /// Returns a run with the cost of each step from the price list, if a candidate needs it, the
    /// recording has no cost at all, and each step can be priced. A part would fire too late.
    fn priced<'r>(&self, run: &Trajectory<'r>) -> Option<Trajectory<'r>> {
        if !self.needs_cost || run.turns().any(|step| step.cost_usd.is_some()) {
            return None;
        }
        let costs: Option<Vec<f64>> = run.turns().map(|step| self.prices.usd(step, run)).collect();
        let costs = costs.filter(|costs| !costs.is_empty())?;
        let mut priced = run.clone();
        let turns = priced.steps.iter_mut().filter(|step| step.is_turn());
        for (step, cost) in turns.zip(costs) {
            step.cost_usd = Some(cost);
        }
        Some(priced)
    }

    /// As [`run`](Self::run), for a run with a custom replay: `replay` returns the turn after which
    /// a setting ends the run, if it does.
    pub fn run_by(
        &mut self,
        dataset: &str,
        run: &Trajectory<'_>,
        replay: &dyn Fn(&Setting) -> Option<u32>,
    ) -> Option<&[Option<u32>]> {
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
        let kind = self.tallies.settings.group_by.kind(run);
        let (model, kind) = (run.model.as_deref(), kind.as_deref());
        if let Some(which) = not_judged {
            *which(&mut self.tallies.tally(dataset, model, kind).skipped) += 1;
            return None;
        }
        // The buffer is reused, because this function runs once for each recorded run.
        let mut stopped = std::mem::take(&mut self.stopped);
        self.judge_into(run, replay, &mut stopped);
        self.see(AvailableData::of(run));
        let is_judged = run.recorded.success.is_some();
        self.tallies.tally(dataset, model, kind).lacks(is_judged, &self.coverage.1);
        if let Some(success) = run.recorded.success {
            let task = run.task_id.as_ref().unwrap_or(&run.run_id);
            // Only judged runs have figures in tokens and dollars, so only their usage is computed.
            let spent = Curve::of(run, &self.prices);
            let judged = JudgedRun {
                key: stable_hash([dataset, task]),
                has_task: run.task_id.is_some(),
                turns,
                success,
                full_from: success.then(|| full_from(run)).flatten(),
                stopped: &stopped,
                spent: &spent,
            };
            let fired = levels(&self.families, &mut self.family_rules, run);
            self.tallies.judged((dataset, model, kind), &judged, &fired);
        } else {
            self.tallies.tally(dataset, model, kind).unjudged(turns, &stopped);
        }
        self.stopped = stopped;
        Some(&self.stopped)
    }

    /// Determines what each candidate can evaluate of a run with this data.
    fn see(&mut self, has: AvailableData) {
        // Most runs of a dataset record the same data.
        if self.coverage.0 == Some(has) {
            return;
        }
        let of = |candidate: &Candidate| match &candidate.trial {
            Trial::Rule(rule) => has.rule(rule),
            Trial::Kernel(setting) => has.setting(setting),
        };
        self.coverage = (Some(has), self.candidates.iter().map(of).collect());
    }

    /// Evaluates each candidate on one run.
    pub fn judge(&mut self, run: &Trajectory<'_>) -> Judged {
        let priced = self.priced(run);
        let run = priced.as_ref().unwrap_or(run);
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

    /// Adds the counts of another backtest of the same candidates.
    pub fn add(&mut self, other: Backtest) {
        self.tallies.add(other.tallies);
    }
}

/// Returns `true` if a candidate looks at the cost of steps, so that it judges less without one.
fn looks_at_cost(candidate: &Candidate) -> bool {
    let without = AvailableData::all_but_cost();
    let coverage = match &candidate.trial {
        Trial::Rule(rule) => without.rule(rule),
        Trial::Kernel(setting) => without.setting(setting),
    };
    coverage != Coverage::Whole
}

/// Returns for each family the turns at which its rules fire; `None` if the family cannot evaluate the
/// run.
fn levels<'r>(
    families: &[Family],
    rules: &'r mut RuleSet,
    run: &Trajectory<'_>,
) -> Vec<Option<&'r [Option<u32>]>> {
    if families.is_empty() {
        return Vec::new();
    }
    let blind = run.lacks_results();
    watch(rules, run);
    let mut fired = rules.fired();
    let each = families.iter().map(|family| {
        // The rule set holds the rules of all families in order, one per level.
        let (own, rest) = fired.split_at(family.levels());
        fired = rest;
        (!blind || !family.needs_results()).then_some(own)
    });
    each.collect()
}

/// Returns the first turn, from 1, after which the reward was full, if the recording has rewards.
pub(crate) fn full_from(run: &Trajectory<'_>) -> Option<u32> {
    let full = |step: &Step<'_>| step.reward.is_some_and(is_success);
    run.turns().position(full).map(|at| at as u32 + 1)
}

/// Returns the turn after which a setting ends a recorded run, if it does.
fn through_the_kernel(run: &Trajectory<'_>, setting: &Setting) -> Option<u32> {
    // Each policy was built once in `new`, so building it again cannot fail.
    let replayed = replay(run, setting).ok()?;
    // At its natural end the run ends by itself: the setting did not fire.
    replayed.ended.filter(|ended| *ended != Termination::Stop).map(|_| replayed.turns)
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
            // A negative cost counts as 0, as in the kernel: it must not pay for other steps.
            cost += step.cost_usd.unwrap_or_default().max(0.0);
            rule_set.cost(NanoUsd::from_usd(cost));
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
    for (nth, result) in step.results.iter().enumerate() {
        // A result without the id of its call is that of the call at the same place.
        let id = result.call_id.as_deref();
        let call = match id {
            Some(_) => step.calls.iter().find(|call| call.id.as_deref() == id),
            None => step.calls.get(nth),
        };
        let tool = call.map_or("", |call| &call.name);
        rule_set.result(tool, &result.content, result.is_error);
    }
}
