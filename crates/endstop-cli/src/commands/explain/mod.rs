//! `endstop explain`: shows the timeline of a run, the limits at each turn, and the ending, as
//! text, as JSON, or as an HTML page with a chart; or the meaning of a name.

mod meaning;

use super::one_run;
use crate::args::ExplainArgs;
use crate::failure::Result;
use crate::new_file::NewFile;
use crate::output;
use crate::render::explain::{html, text};
pub(super) use meaning::Meaning;

pub(crate) fn run(args: &ExplainArgs, as_json: bool) -> Result {
    let page = args.html.as_deref();
    let page = page.map(|path| NewFile::of("--html", path, args.overwrite)).transpose()?;
    let is_run = page.is_some() || args.journal.is_some() || args.run.exists();
    if let Some(name) = args.run.to_str().filter(|_| !is_run) {
        if let Some(meaning) = Meaning::of(name) {
            return Ok(meaning.show(as_json));
        }
        if let Some(problem) = Meaning::problem_of(name) {
            return Err(problem);
        }
    }
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
