//! `endstop compare`: two policies on the same recorded runs, two sets of runs on the same tasks, or
//! single runs: the differences, as text, as JSON, or as an HTML page.

mod runs;

use crate::compare_args::{CommonArgs, CompareCommand};
use crate::failure::Result;
use crate::new_file::NewFile;
use crate::output;
use crate::recorded::compare::{Compared, policies, sets};
use crate::render::compare::{html, json, text};

pub(crate) fn run(command: &CompareCommand, as_json: bool) -> Result {
    match command {
        CompareCommand::Policies(args) => report(&args.common, || policies(args), as_json),
        CompareCommand::Sets(args) => report(&args.common, || sets(args), as_json),
        CompareCommand::Runs(args) => runs::run(args, as_json),
    }
}

/// Compares two sides, and prints or writes the report.
fn report(
    common: &CommonArgs,
    compare: impl FnOnce() -> Result<Compared>,
    as_json: bool,
) -> Result {
    // Checked first, so that a long comparison does not end in a refused file.
    let report = common.report.as_deref();
    let report = report.map(|path| NewFile::of("--report", path, common.overwrite)).transpose()?;
    let compared = compare()?;
    if let Some(file) = &report {
        file.write(&html::page(&compared))?;
        output::note(&format!("written: {}", file.path().display()));
    }
    if as_json {
        output::json(&json::json(&compared));
    } else {
        for line in text::report(&compared) {
            output::painted_line(&line);
        }
    }
    Ok(0)
}
