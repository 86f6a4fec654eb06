//! `endstop backtest`: replays recorded runs under candidate limits and rules, and reports first
//! which good runs a stop would have cost, then what it would have saved.

mod one;

use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::recorded::backtest::branches::{Branches, Chosen};
#[cfg(feature = "parquet")]
use crate::recorded::backtest::rows;
use crate::recorded::backtest::{Input, candidates, judge, setting_file};
use crate::recorded::nothing_read;
use crate::recorded_args::BacktestArgs;
use crate::render::branches;
use crate::render::html::escaper;
use crate::visible::visible;
use endstop_report::backtest::{Report, json, lines, page, problems};
use std::path::PathBuf;

pub(crate) fn run(args: &BacktestArgs, as_json: bool) -> Result {
    let (candidates, curves) = candidates::of(args)?;
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
    let stops = args.branch.map(|most| Branches::new(usize::from(most), candidates.len()));
    let report = judge(
        args,
        input,
        (candidates, curves),
        stops.as_ref(),
        #[cfg(feature = "parquet")]
        rows,
    )?;
    if report.census.runs() == 0 {
        let problems = report.census.problems().into_iter();
        return Err(nothing_read("no runs could be read", problems));
    }
    if let Some(problems) = problems(&report).filter(|_| args.strict) {
        return Err(Failure::usage(format!("--strict: {problems}")));
    }
    if let Some(file) = &page_file {
        file.write(&page(&report, &escaper()))?;
        output::note(&format!("written: {}", file.path().display()));
    }
    // Written before the report is printed, because it may fail.
    if let Some(file) = &setting_file {
        setting_file::write(&report, file, args.mode.unwrap_or_default())?;
    }
    let chosen = stops.as_ref().map(|stops| chosen(&report, stops));
    if as_json {
        let mut value = json(&report);
        if let (Some(chosen), Some(all)) = (&chosen, value.as_object_mut()) {
            all.insert("branches".to_owned(), chosen.as_ref().map(branches::json).into());
        }
        output::json(&value);
    } else {
        let more = match &chosen {
            Some(Some(chosen)) => branches::lines(chosen),
            Some(None) => vec![String::new(), NO_CANDIDATE.to_owned()],
            None => Vec::new(),
        };
        let more = more.iter().map(|line| visible(line));
        for line in
            lines(&report, output::shows_colours(&std::io::stdout())).into_iter().chain(more)
        {
            output::painted_line(&line);
        }
    }
    Ok(0)
}

/// The line instead of runs to continue, if no candidate is chosen.
const NO_CANDIDATE: &str =
    "--branch: none of the candidates is recommended; name one with --policy or --limit";

/// Returns the runs to continue: those of the only candidate, else of the recommended one.
fn chosen(report: &Report, stops: &Branches) -> Option<Chosen> {
    let nth = if report.candidates.len() == 1 {
        0
    } else {
        let name = &report.recommended()?.name;
        report.candidates.iter().position(|one| one.name == *name)?
    };
    Some(stops.chosen(nth, &report.candidates[nth].name))
}
