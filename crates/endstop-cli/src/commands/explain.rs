//! `endstop explain`: shows the timeline of a run, the limits at each turn, and the ending, as
//! text, as JSON, or as an HTML page with a chart.

use super::one_run;
use crate::args::ExplainArgs;
use crate::failure::Result;
use crate::new_file::NewFile;
use crate::output;
use crate::render::explain::{html, text};

pub(crate) fn run(args: &ExplainArgs, as_json: bool) -> Result {
    let page = args.html.as_deref();
    let page = page.map(|path| NewFile::of("--html", path, args.overwrite)).transpose()?;
    let timeline = one_run::timeline(&args.run, args.journal.as_deref())?;
    if let Some(file) = page {
        file.write(&html::page(&timeline))?;
        output::note(&format!("written: {}", file.path().display()));
        if !as_json {
            return Ok(0);
        }
    }
    if as_json {
        output::json(&timeline);
        return Ok(0);
    }
    text::tell(&timeline);
    Ok(0)
}
