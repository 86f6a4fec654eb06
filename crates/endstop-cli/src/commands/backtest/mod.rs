//! `endstop backtest`: replays recorded runs under candidate limits and rules, and reports first
//! which good runs a stop would have cost, then what it would have saved.

mod one;

use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
#[cfg(feature = "parquet")]
use crate::recorded::backtest::rows;
use crate::recorded::backtest::{Input, candidates, judge, setting_file};
use crate::recorded_args::BacktestArgs;
use crate::render::html::escaper;
use endstop_report::backtest::{json, lines, page, problems};
use std::io::IsTerminal as _;
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
    let report = judge(
        args,
        input,
        (candidates, curves),
        #[cfg(feature = "parquet")]
        rows,
    )?;
    if report.census.runs() == 0 {
        let mut why = String::from("no runs could be read");
        for finding in report.census.problems() {
            why = format!("{why}\n  {finding}");
        }
        return Err(Failure::usage(why));
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
    if as_json {
        let _ = output::json(&json(&report));
    } else {
        for line in lines(&report, has_colours()) {
            // The reader of standard output is gone, for example `head`.
            if output::raw_line(&line).is_err() {
                break;
            }
        }
    }
    Ok(0)
}

/// Returns `true` if standard output is a terminal that shows colours.
fn has_colours() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    std::io::stdout().is_terminal() && wanted && !dumb
}
