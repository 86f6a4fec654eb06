//! `endstop backtest`: replays recorded runs under candidate limits and rules, and reports first
//! which good runs a stop would have cost, then what it would have saved.

mod calibrated;
mod candidates;
mod chart;
mod findings;
mod one;
mod page;
mod progress;
#[cfg(feature = "parquet")]
mod rows;
mod setting;
mod tables;
mod text;
mod words;

use crate::args::BacktestArgs;
use crate::new_file::NewFile;
use crate::{Failure, Result, journal_runs, output};
use endstop_trajectory::backtest::{
    Backtest, Candidate, CandidateFigures, DatasetFigures, Done, Engine, Family, Figures,
};
use endstop_trajectory::read::{Options, Outcomes, Problem, ReadStats, UnknownFormat, formats};
use progress::Progress;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The results of a backtest, with the arguments that shape the report.
struct Report {
    candidates: Vec<Candidate>,
    figures: Figures,
    stats: ReadStats,
    outcomes: Option<Outcomes>,
    /// Number of files in folders that are clearly not recordings.
    passed_over: u64,
    max_harm: f64,
    alpha: Option<f64>,
    sweep: bool,
}

pub(crate) fn run(args: &BacktestArgs, as_json: bool) -> Result {
    let candidates = candidates::of(args)?;
    let new = |flag, path: &Option<PathBuf>| {
        path.as_deref().map(|path| NewFile::of(flag, path, args.overwrite)).transpose()
    };
    let (page_file, setting_file) = (new("--report", &args.report)?, new("--write", &args.write)?);
    #[cfg(feature = "parquet")]
    let table_file = new("--parquet", &args.parquet)?;
    let input = Input::of(args)?;
    // The output files were checked above, so that a long backtest does not end in a refused file.
    if let Some(name) = &args.explain {
        return one::run(&input, &candidates, name, as_json);
    }
    #[cfg(feature = "parquet")]
    let rows = table_file.map(|file| rows::Rows::new(&file, &candidates)).transpose()?;
    let report = judge(
        args,
        input,
        candidates,
        #[cfg(feature = "parquet")]
        rows,
    )?;
    if report.stats.runs == 0 {
        let mut why = String::from("no runs could be read");
        for finding in report.stats.problems.values().flat_map(|finding| &finding.first) {
            why = format!("{why}\n  {finding}");
        }
        return Err(Failure::usage(why));
    }
    if args.strict {
        findings::refuse(&report)?;
    }
    if let Some(file) = &page_file {
        file.write(&page::page(&report))?;
        output::note(&format!("written: {}", file.path().display()));
    }
    // Written before the report is printed, because it may fail.
    if let Some(file) = &setting_file {
        setting::write(&report, file, args.mode.unwrap_or_default())?;
    }
    if as_json {
        let _ = output::json(&report.json());
    } else {
        for line in text::report(&report) {
            // The reader of standard output is gone, for example `head`.
            if output::raw_line(&line).is_err() {
                break;
            }
        }
    }
    Ok(0)
}

/// The input: files for the readers, and Endstop journals.
struct Input {
    files: Vec<PathBuf>,
    journals: Vec<PathBuf>,
    /// Number of journals that the user named. The others were found in folders, where the readers
    /// skip them.
    named: usize,
    options: Options,
    outcomes: Option<Outcomes>,
}

impl Input {
    fn of(args: &BacktestArgs) -> Result<Input> {
        let mut options = Options::default();
        if let Some(name) = &args.format {
            if formats().iter().all(|(known, _)| known != name) {
                let unknown = UnknownFormat(name.clone());
                return Err(Failure::usage(format!("--format: {unknown}")));
            }
            options.format = Some(name.clone());
        }
        let outcomes = match &args.outcomes {
            Some(file) => Some(
                Outcomes::read(file)
                    .map_err(|problem| Failure::usage(format!("--outcomes {problem}")))?,
            ),
            None => None,
        };
        let (mut journals, files): (Vec<_>, Vec<_>) =
            args.paths.iter().cloned().partition(|path| journal_runs::is_one(path));
        let named = journals.len();
        if args.format.is_none() {
            journals.extend(files.iter().flat_map(|path| journal_runs::in_folder(path)));
        }
        Ok(Input { files, journals, named, options, outcomes })
    }
}

/// Reads the runs and evaluates the candidates.
fn judge(
    args: &BacktestArgs,
    input: Input,
    candidates: Vec<Candidate>,
    #[cfg(feature = "parquet")] rows: Option<rows::Rows>,
) -> Result<Report> {
    let make = || {
        let test = Backtest::new(&candidates)?;
        Ok(match args.calibrate {
            Some(alpha) => test.calibrating(&Family::all(), alpha),
            None => test,
        })
    };
    let wrong = |error: endstop::PolicyError| Failure::usage(error.to_string());
    let each = |dataset: &str, run: &endstop_trajectory::Trajectory<'_>, fired: &[Option<u32>]| {
        #[cfg(feature = "parquet")]
        if let Some(rows) = &rows {
            rows.add(dataset, run, fired);
        }
        #[cfg(not(feature = "parquet"))]
        let _ = (dataset, run, fired);
    };
    let engine = Engine { options: input.options, outcomes: input.outcomes, ..Engine::default() };
    let progress = Progress::new();
    let mut done: Done =
        engine.run_each(&input.files, make, &|bytes| progress.add(bytes), &each).map_err(wrong)?;
    progress.done();
    for (path, nth) in input.journals.iter().zip(0..) {
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
            let dataset = journal_runs::dataset(path);
            if let Some(fired) = done.backtest.run_by(&dataset, &trajectory, &replay) {
                each(&dataset, &trajectory, fired);
            }
        };
        // A problem in a journal that the user named is an error; in a found one it is counted.
        if nth < input.named {
            journal_runs::each(path, &mut take)?;
        } else {
            journal_runs::each_found(path, &mut take);
        }
    }
    #[cfg(feature = "parquet")]
    if let Some(rows) = rows {
        rows.finish()?;
    }
    Ok(Report {
        figures: done.backtest.finish(),
        candidates,
        stats: done.stats,
        outcomes: done.outcomes,
        // The readers skipped the journals in folders, but these were read here.
        passed_over: done.skipped.saturating_sub((input.journals.len() - input.named) as u64),
        max_harm: args.max_harm,
        alpha: args.calibrate,
        sweep: args.sweep,
    })
}

impl Report {
    /// Returns the figures of all datasets together.
    fn whole(&self) -> Option<&DatasetFigures> {
        self.figures.whole()
    }

    /// Returns the recommended candidate.
    fn recommended(&self) -> Option<&CandidateFigures> {
        self.whole()?.best_within(self.max_harm)
    }

    fn json(&self) -> Value {
        let front = |dataset: &DatasetFigures| (dataset.name.clone(), json!(dataset.pareto()));
        let chosen = |dataset: &DatasetFigures| (dataset.name.clone(), json!(dataset.calibrated));
        let by = |of: &dyn Fn(&DatasetFigures) -> (String, Value)| -> Value {
            Value::Object(self.figures.datasets.iter().map(of).collect())
        };
        json!({
            "results": self.figures.reference_results(),
            "figures": self.figures,
            "census": findings::json(self),
            "pareto": by(&front),
            "calibrated": self.alpha.map(|_| by(&chosen)),
            "recommended": self.recommended(),
            "refused": self.recommended().is_none().then(|| words::refusal(self)),
            "max_harm": self.max_harm,
        })
    }
}
