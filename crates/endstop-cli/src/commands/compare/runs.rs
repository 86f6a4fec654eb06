//! `endstop compare runs`: how single runs ended, what they cost, and where they diverge.

use crate::commands::one_run;
use crate::compare_args::RunsArgs;
use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::render::compare_runs::path::Path as RunPath;
use crate::render::compare_runs::{Comparison, html, json, text};
use std::path::Path;

/// Maximum number of runs that are compared at a time, because all are held in memory.
const MOST: usize = 26;

pub(crate) fn run(args: &RunsArgs, as_json: bool) -> Result {
    if args.runs.len() > MOST {
        return Err(Failure::usage(format!(
            "{} runs: at most {MOST} can be compared at a time; use `endstop compare sets` for more",
            args.runs.len()
        )));
    }
    let report = args.report.as_deref();
    let report = report.map(|path| NewFile::of("--report", path, args.overwrite)).transpose()?;
    let paths = args.runs.iter().map(|run| path(run, args.journal.as_deref()));
    let compared = Comparison::of(paths.collect::<Result<_>>()?);
    if let Some(file) = &report {
        file.write(&html::page(&compared))?;
        output::note(&format!("written: {}", file.path().display()));
    }
    if as_json {
        output::json(&json::json(&compared));
        return Ok(0);
    }
    for line in text::report(&compared) {
        output::painted_line(&line);
    }
    Ok(0)
}

/// Reads a run, and the runs that it branched from.
fn path(run: &Path, journal: Option<&Path>) -> Result<RunPath> {
    let timeline = one_run::timeline(run, journal)?;
    let id = timeline.run.as_ref().map(|about| about.id.clone());
    let name = id.unwrap_or_else(|| run.display().to_string());
    // A run of a journal file has the runs that it branched from in the same file.
    let named = run.is_file() && timeline.run.is_some();
    let place = if named { Some(run) } else { journal };
    let mut load =
        |id: &str| one_run::stored(id, place).map_err(|failure: Failure| failure.message);
    Ok(RunPath::of(name, timeline, &mut load))
}
