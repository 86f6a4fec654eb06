//! `endstop explain`: shows the timeline of a run, the limits at each turn, and the ending, as
//! text, as JSON, or as an HTML page with a chart.

use crate::args::ExplainArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::failure::{Failure, Result};
use crate::input::Source;
use crate::new_file::NewFile;
use crate::output;
use crate::render::explain::timeline::Timeline;
use crate::render::explain::{html, text};
use endstop::Outcome;
use endstop::core::RunEvent;
use endstop::core::bounded_json;
use endstop::core::decide::parse_json;
use endstop::journal::{JournalError, JournalErrorKind};
use serde::Deserialize as _;
use serde_json::Value;
use std::path::Path;

/// Maximum size of a file of events, in bytes of parsed values.
const HEAVIEST: u64 = 384 << 20;

pub(crate) fn run(args: &ExplainArgs, as_json: bool) -> Result {
    let page = args.html.as_deref();
    let page = page.map(|path| NewFile::of("--html", path, args.overwrite)).transpose()?;
    // A file has precedence over a run of the same name, because the user can see the file.
    let timeline = if args.run.exists() || args.run == Path::new("-") {
        Timeline::of_events(read(&args.run)?)
    } else {
        recorded(args)?
    };
    if let Some(file) = page {
        file.write(&html::page(&timeline))?;
        output::note(&format!("written: {}", file.path().display()));
        if !as_json {
            return Ok(0);
        }
    }
    if as_json {
        let _ = output::json_without(&timeline, output::keys());
        return Ok(0);
    }
    text::tell(&timeline);
    Ok(0)
}

/// Reads a run of the journal.
fn recorded(args: &ExplainArgs) -> Result<Timeline> {
    let name = args.run.to_string_lossy();
    let journal = journal_path::to_read(&JournalPath::of(args.journal.as_deref(), None)?).map_err(
        |error| Failure::usage(format!("{name}: No such file, and no such run: {}", error.message)),
    )?;
    let wrong = |error: JournalError| Failure::usage(error.to_string());
    let id = journal.find(&name).map_err(|error| match error.kind {
        JournalErrorKind::NotFound if name != "last" => Failure::usage(format!(
            "{name}: No such file, and {}: {}",
            error.journal, error.problem
        )),
        _ => wrong(error),
    })?;
    let running = journal.is_running(&id).map_err(wrong)?;
    Timeline::of_run(&journal.load(&id).map_err(wrong)?, running, args.journal.as_deref())
}

/// Reads a file that `endstop run --events` wrote.
fn read(path: &Path) -> Result<Vec<Value>> {
    let source = Source::of(Some(path));
    let mut events = Vec::new();
    // All events are held in memory at the same time, so their sum needs a bound, too.
    let mut weight = 0;
    // A run that was killed may leave a partial last line. It is skipped, and the events before it
    // are shown.
    let mut cut: Option<Failure> = None;
    source.each_line(|number, line| {
        if line.is_empty() {
            return Ok(());
        }
        let wrong = |problem: &str| {
            // The problem may quote the file, which may contain control characters.
            let problem = crate::visible::visible(problem);
            Failure::usage(format!(
                "{}: line {number}: {problem}; pass a file written by `endstop run --events`",
                source.name()
            ))
        };
        // An invalid line is tolerated only as the last one.
        if let Some(before) = cut.take() {
            return Err(before);
        }
        weight += bounded_json::weight(line);
        if weight > HEAVIEST {
            return Err(wrong("the events up to this line exceed the memory bound"));
        }
        let event = match parse_json(line) {
            Ok(event) => event,
            Err(problem) => {
                cut = Some(wrong(&problem.to_string()));
                return Ok(());
            }
        };
        match event.get("type").and_then(Value::as_str) {
            None => return Err(wrong("missing field `type`, so this is not an event")),
            Some("outcome") => {
                Outcome::deserialize(&event)
                    .map_err(|error| wrong(&format!("not an outcome: {error}")))?;
            }
            // These lines come from the agent loop, so they are not events of the kernel.
            Some("delta" | "warning" | "thread_started" | "limit_told" | "refusal") => {}
            Some(_) => {
                RunEvent::deserialize(&event)
                    .map_err(|error| wrong(&format!("not an event: {error}")))?;
            }
        }
        events.push(event);
        Ok(())
    })?;
    if let Some(problem) = cut {
        if events.is_empty() {
            return Err(problem);
        }
        output::note(&format!(
            "endstop: {}: the last line is incomplete: the run was killed while it wrote the line",
            source.name()
        ));
    }
    if events.is_empty() {
        return Err(Failure::usage(format!(
            "{}: no events found; pass a file written by `endstop run --events`",
            source.name()
        )));
    }
    Ok(events)
}
