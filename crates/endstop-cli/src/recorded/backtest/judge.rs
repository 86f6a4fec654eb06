//! Reads the runs of a backtest and evaluates the candidates on them.

use super::branches::Branches;
use super::input::Input;
use super::progress::Progress;
#[cfg(feature = "parquet")]
use super::rows;
use crate::failure::{Failure, Result};
use crate::recorded::{journal_runs, opencode};
use crate::recorded_args::BacktestArgs;
use endstop_report::backtest::{Census, Curve, Report};
use endstop_trajectory::Trajectory;
use endstop_trajectory::backtest::{Backtest, Candidate, Done, Engine, Family, GroupBy};
use endstop_trajectory::read::Problem;
use std::path::Path;

/// Reads the runs and evaluates the candidates.
pub(crate) fn judge(
    args: &BacktestArgs,
    input: Input,
    (candidates, curves): (Vec<Candidate>, Vec<Curve>),
    branches: Option<&Branches>,
    #[cfg(feature = "parquet")] rows: Option<rows::Rows>,
) -> Result<Report> {
    let make = || {
        let by = args.group_by.as_deref().map_or(GroupBy::default(), GroupBy::parse);
        let test = Backtest::new(&candidates)?.grouping(by);
        Ok(match args.calibrate {
            Some(alpha) => test.calibrating(&Family::all(), alpha),
            None => test,
        })
    };
    let found = input.found();
    let wrong = |error: endstop::policy::PolicyError| Failure::usage(error.to_string());
    let each = |dataset: &str, run: &Trajectory<'_>, fired: &[Option<u32>]| {
        #[cfg(feature = "parquet")]
        if let Some(rows) = &rows {
            rows.add(dataset, run, fired);
        }
        #[cfg(not(feature = "parquet"))]
        let _ = (dataset, run, fired);
    };
    let each_other = |dataset: &str, run: &Trajectory<'_>, fired: &[Option<u32>]| {
        if let Some(branches) = branches {
            branches.saw_other(turns(run), fired);
        }
        each(dataset, run, fired);
    };
    let engine = Engine { options: input.options, outcomes: input.outcomes, ..Engine::default() };
    let progress = Progress::new();
    let mut done: Done = engine
        .run_each(&input.files, make, &|bytes| progress.add(bytes), &each_other)
        .map_err(wrong)?;
    progress.done();
    for (path, nth) in input.journals.iter().zip(0..) {
        judge_journal(path, nth < input.named, &mut done, branches, &each)?;
    }
    for path in &input.databases {
        judge_database(path, &mut done, &each_other);
    }
    #[cfg(feature = "parquet")]
    if let Some(rows) = rows {
        rows.finish()?;
    }
    Ok(Report {
        figures: done.backtest.finish(),
        candidates,
        census: Census::Files {
            stats: Box::new(done.stats),
            outcomes: done.outcomes,
            // The readers skipped the journals in folders, but these were read here.
            passed_over: done.skipped.saturating_sub(found as u64),
        },
        max_harm: args.max_harm,
        alpha: args.calibrate,
        // The values of a curve are many candidates too.
        sweep: args.sweep || !curves.is_empty(),
        curves,
        model: args.model.clone(),
    })
}

/// Gets the dataset of a run, the run, and the turn at which each candidate fires.
type Each<'f> = dyn Fn(&str, &Trajectory<'_>, &[Option<u32>]) + 'f;

/// Evaluates the runs of a journal. A problem in a journal that the user named is an error; in a found
/// one it is counted.
fn judge_journal(
    path: &Path,
    is_named: bool,
    done: &mut Done,
    branches: Option<&Branches>,
    each: &Each<'_>,
) -> Result<()> {
    let dataset = journal_runs::dataset(path);
    let mut take = |run: std::result::Result<journal_runs::Run, Problem>| {
        let run = match run {
            Ok(run) => run,
            Err(problem) => return done.stats.problem(&problem),
        };
        let mut trajectory = run.trajectory;
        if let Some(outcomes) = &mut done.outcomes {
            outcomes.apply(&mut trajectory);
        }
        done.stats.run(&trajectory);
        let replay = |setting: &_| journal_runs::ends_after(&run.recorded, setting);
        if let Some(fired) = done.backtest.run_by(&dataset, &trajectory, &replay) {
            if let Some(branches) = branches {
                let facts = (turns(&trajectory), trajectory.recorded.success);
                branches.saw(path, &run.recorded, facts, fired);
            }
            each(&dataset, &trajectory, fired);
        }
    };
    if is_named {
        return journal_runs::each(path, &mut take);
    }
    journal_runs::each_found(path, &mut take);
    Ok(())
}

/// Returns the number of turns of a run.
fn turns(run: &Trajectory<'_>) -> u32 {
    u32::try_from(run.turns().count()).unwrap_or(u32::MAX)
}

/// Reads the sessions of a database of opencode, and evaluates the candidates on them.
fn judge_database(
    path: &Path,
    done: &mut Done,
    each: &impl Fn(&str, &Trajectory<'_>, &[Option<u32>]),
) {
    let dataset = journal_runs::dataset(path);
    opencode::each(path, &mut |run| {
        let mut run = match run {
            Ok(run) => run,
            Err(problem) => return done.stats.problem(&problem),
        };
        if let Some(outcomes) = &mut done.outcomes {
            outcomes.apply(&mut run);
        }
        done.stats.run(&run);
        if let Some(fired) = done.backtest.run(&dataset, &run) {
            each(&dataset, &run, fired);
        }
    });
}
