//! Reads the runs that are compared.

use super::policy;
use crate::compare_args::{CommonArgs, PoliciesArgs, SetsArgs};
use crate::failure::{Failure, Result};
use crate::recorded::{journal_runs, nothing_read, opencode};
use endstop_trajectory::backtest::{Backtest, Candidate, Engine};
use endstop_trajectory::compare::{Comparison, Policies, Set, Sets};
use endstop_trajectory::read::{
    Options, Outcomes, Parallel, Problem, ReadStats, UnknownFormat, formats,
};
use endstop_trajectory::{Prices, Trajectory};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A comparison, and what was read for it.
pub(crate) struct Compared {
    pub(crate) comparison: Comparison,
    pub(crate) stats: ReadStats,
}

fn options(common: &CommonArgs) -> Result<Options> {
    let mut options = Options::default();
    if let Some(name) = &common.format {
        if formats().iter().all(|(known, _)| known != name) {
            return Err(Failure::usage(format!("--format: {}", UnknownFormat(name.clone()))));
        }
        options.format = Some(name.clone());
    }
    Ok(options)
}

fn outcomes(common: &CommonArgs) -> Result<Option<Outcomes>> {
    let Some(file) = &common.outcomes else { return Ok(None) };
    let read = Outcomes::read(file);
    read.map(Some).map_err(|problem| Failure::usage(format!("--outcomes {problem}")))
}

/// Returns an error if no run could be read, with the reasons.
fn something(stats: &ReadStats, runs: u64, what: &str) -> Result<()> {
    if runs > 0 {
        return Ok(());
    }
    let problems = stats.problems.values().flat_map(|finding| &finding.first).map(String::as_str);
    Err(nothing_read(&format!("{what}: no runs could be read"), problems))
}

/// Compares two policies on the same runs.
pub(crate) fn policies(args: &PoliciesArgs) -> Result<Compared> {
    let given = [policy::of(&args.a)?, policy::of(&args.b)?];
    let mut candidates: Vec<Candidate> = Vec::new();
    // The places of A and of B among the candidates; the same policy twice is one candidate.
    let places = given.map(|one| {
        let one = one?;
        let known = candidates.iter().position(|other| other.name == one.name);
        Some(known.unwrap_or_else(|| {
            candidates.push(one);
            candidates.len() - 1
        }))
    });
    let options = options(&args.common)?;
    let outcomes = outcomes(&args.common)?;
    let (databases, others): (Vec<_>, Vec<_>) =
        args.paths.iter().cloned().partition(|path| opencode::is_one(path));
    let (journals, files): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|path| journal_runs::is_one(path));
    let found = Mutex::new((Policies::default(), Prices::new()));
    let each = |dataset: &str, run: &Trajectory<'_>, fired: &[Option<u32>]| {
        let fired = places.map(|place| fired.get(place?).copied().flatten());
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        let (policies, prices) = &mut *found;
        policies.add(dataset, run, fired, prices);
    };
    let wrong = |error: endstop::policy::PolicyError| Failure::usage(error.to_string());
    let engine = Engine { options, outcomes, ..Engine::default() };
    let make = || Backtest::new(&candidates);
    let mut done = engine.run_each(&files, make, &|_| {}, &each).map_err(wrong)?;
    for path in &journals {
        journal_runs::each(path, &mut |run| {
            let run = match run {
                Ok(run) => run,
                Err(problem) => return done.stats.problem(&problem),
            };
            let mut trajectory = run.trajectory;
            apply(done.outcomes.as_mut(), &mut trajectory);
            done.stats.run(&trajectory);
            let replay = |setting: &_| journal_runs::ends_after(&run.recorded, setting);
            let dataset = journal_runs::dataset(path);
            if let Some(fired) = done.backtest.run_by(&dataset, &trajectory, &replay) {
                each(&dataset, &trajectory, fired);
            }
        })?;
    }
    for path in &databases {
        opencode::each(path, &mut |run| {
            let mut run = match run {
                Ok(run) => run,
                Err(problem) => return done.stats.problem(&problem),
            };
            apply(done.outcomes.as_mut(), &mut run);
            done.stats.run(&run);
            let dataset = journal_runs::dataset(path);
            if let Some(fired) = done.backtest.run(&dataset, &run) {
                each(&dataset, &run, fired);
            }
        });
    }
    let (found, _) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    something(&done.stats, found.runs(), "compare policies")?;
    let comparison = found.finish(&args.a, &args.b);
    Ok(Compared { comparison, stats: done.stats })
}

fn apply(outcomes: Option<&mut Outcomes>, run: &mut Trajectory<'_>) {
    if let Some(outcomes) = outcomes {
        outcomes.apply(run);
    }
}

/// Compares two sets of runs.
pub(crate) fn sets(args: &SetsArgs) -> Result<Compared> {
    let options = options(&args.common)?;
    let mut reading =
        Reading { options, outcomes: outcomes(&args.common)?, stats: ReadStats::new() };
    let a = reading.set(&args.a, 0)?;
    let b = reading.set(&args.b, 1 << 62)?;
    let (name_a, name_b) = (args.a.display().to_string(), args.b.display().to_string());
    something(&reading.stats, a.runs(), &name_a)?;
    something(&reading.stats, b.runs(), &name_b)?;
    let comparison = Sets { a, b }.finish(&name_a, &name_b);
    Ok(Compared { comparison, stats: reading.stats })
}

struct Reading {
    options: Options,
    outcomes: Option<Outcomes>,
    stats: ReadStats,
}

impl Reading {
    /// Reads a set; `base` is the position of its first run in the input.
    fn set(&mut self, path: &Path, base: u64) -> Result<Set> {
        if path != Path::new("-") {
            std::fs::metadata(path)
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        }
        let mut set = Set::default();
        self.stats.move_to((base, 0));
        if opencode::is_one(path) {
            let prices = Prices::new();
            opencode::each(path, &mut |run| self.one(&mut set, run, &prices));
            return Ok(set);
        }
        if journal_runs::is_one(path) {
            let prices = Prices::new();
            let take = &mut |run: std::result::Result<journal_runs::Run, Problem>| {
                self.one(&mut set, run.map(|run| run.trajectory), &prices);
            };
            journal_runs::each(path, take)?;
            return Ok(set);
        }
        let shared = Mutex::new((&mut set, &mut self.stats, self.outcomes.as_mut()));
        let parallel = Parallel { options: self.options.clone(), ..Parallel::default() };
        parallel.each(
            &[path.to_owned()],
            &Prices::new,
            &|prices, (chunk, nth), run| {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (set, stats, outcomes) = &mut *shared;
                let run = run.map(|mut run| {
                    apply(outcomes.as_deref_mut(), &mut run);
                    run
                });
                stats.run_at((base + chunk, nth), run.as_ref());
                if let Ok(run) = run {
                    set.add(&run, prices);
                }
            },
            &mut |()| {},
        );
        Ok(set)
    }

    fn one(
        &mut self,
        set: &mut Set,
        run: std::result::Result<Trajectory<'_>, Problem>,
        prices: &Prices,
    ) {
        match run {
            Ok(mut run) => {
                apply(self.outcomes.as_mut(), &mut run);
                self.stats.run(&run);
                set.add(&run, prices);
            }
            Err(problem) => self.stats.problem(&problem),
        }
    }
}
