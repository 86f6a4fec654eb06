//! `endstop backtest`: replays recorded runs under candidate limits and rules, and reports first
//! which good runs a stop would have cost, then what it would have saved.

mod one;

use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
#[cfg(feature = "parquet")]
use crate::recorded::backtest::rows;
use crate::recorded::backtest::{Input, candidates, judge};
use crate::recorded_args::BacktestArgs;
use crate::render::backtest::{findings, html, json, setting, text};
use std::path::PathBuf;

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
        file.write(&html::page(&report))?;
        output::note(&format!("written: {}", file.path().display()));
    }
    // Written before the report is printed, because it may fail.
    if let Some(file) = &setting_file {
        setting::write(&report, file, args.mode.unwrap_or_default())?;
    }
    if as_json {
        let _ = output::json(&json::json(&report));
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
