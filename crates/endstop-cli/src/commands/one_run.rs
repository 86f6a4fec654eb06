//! The one run that a command is about: a run of the journal, a file of events, or a journal file.

use crate::commands::explain::Meaning;
use crate::commands::runs::succeeded_by;
use crate::config::journal_path::{self, JournalPath};
use crate::failure::{Failure, Result};
use crate::input::Source;
use crate::output;
use crate::recorded::journal_runs;
use crate::render::explain::timeline::Timeline;
use endstop::Outcome;
use endstop::core::RunEvent;
use endstop::core::bounded_json;
use endstop::core::decide::parse_json;
use endstop::journal::{JournalError, JournalErrorKind};
use endstop_report::advice::quoted;
use endstop_trajectory::read::{Chunks, Opened, Options, Source as Session};
use serde::Deserialize as _;
use serde_json::Value;
use std::path::Path;

/// Maximum size of a file of events, in bytes of parsed values.
const HEAVIEST: u64 = 384 << 20;

/// Reads the run that an argument names: the id of a run, a prefix of it, `last`, a file that
/// `endstop run --events` wrote, `-` for standard input, or a journal, whose newest run is read.
pub(super) fn timeline(run: &Path, journal: Option<&Path>) -> Result<Timeline> {
    // A file has precedence over a run of the same name, because the user can see the file.
    if !run.exists() && run != Path::new("-") {
        return recorded(&run.to_string_lossy(), journal);
    }
    if journal_runs::is_one(run) {
        return recorded("last", Some(run));
    }
    Ok(Timeline::of_events(read(run)?))
}

/// Reads the run of the journal that has this id.
pub(super) fn stored(id: &str, place: Option<&Path>) -> Result<Timeline> {
    let journal = journal_path::to_read(&JournalPath::of(place, None)?)?;
    let run = journal.load(id).map_err(|error| Failure::usage(error.problem))?;
    Timeline::of_run(&run, false, place)
}

/// Reads a run of the journal.
fn recorded(name: &str, place: Option<&Path>) -> Result<Timeline> {
    let journal = journal_path::to_read(&JournalPath::of(place, None)?).map_err(|error| {
        if name == "last" {
            return error;
        }
        let near = Meaning::nearest(name);
        Failure::usage(format!("{name}: No such file, and no such run{near}: {}", error.message))
    })?;
    let wrong = |error: JournalError| Failure::usage(error.to_string());
    let id = journal.find(name).map_err(|error| match error.kind {
        JournalErrorKind::NotFound if name != "last" => Failure::usage(format!(
            "{name}: No such file, and {}: {}{}",
            error.journal,
            error.problem,
            Meaning::nearest(name)
        )),
        _ => wrong(error),
    })?;
    let running = journal.is_running(&id).map_err(wrong)?;
    let mut timeline = Timeline::of_run(&journal.load(&id).map_err(wrong)?, running, place)?;
    if let Some(about) = &mut timeline.run {
        about.branches = journal.branches(&id).map_err(wrong)?;
        let has_failed = timeline.ending.as_ref().is_none_or(|ending| !ending.is_success());
        if has_failed && !running {
            about.continued_by =
                succeeded_by(&id, &journal.runs(u32::MAX).map_err(wrong)?).map(str::to_owned);
        }
        if let Some(later) = &about.continued_by {
            timeline.next = Some(format!("nothing: run {later} continued it to a success"));
        }
    }
    Ok(timeline)
}

/// Returns the error for a file of another agent, which `endstop audit` reads.
fn session_of(path: &Path) -> Option<Failure> {
    let opened = Chunks::open(&Session::file(path), &Options::default());
    let Ok(Opened::Runs(chunks)) = opened else { return None };
    let name = path.display();
    Some(Failure::usage(format!(
        "{name}: in the format `{}`, and not a file of `endstop run --events`; read it with `endstop audit {}`",
        chunks.format(),
        quoted(&name.to_string()),
    )))
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
            None => {
                let other = || wrong("missing field `type`, so this is not an event");
                return Err(session_of(path).unwrap_or_else(other));
            }
            Some("recording") => {
                return Err(Failure::usage(format!(
                    "{}: a recording of a provider, which has no run; play it with `endstop run --replay FILE TASK` and \
                     the flags of the recorded run, and explain that run",
                    source.name()
                )));
            }
            Some("outcome") => {
                Outcome::deserialize(&event)
                    .map_err(|error| wrong(&format!("not an outcome: {error}")))?;
            }
            // These lines come from the agent loop, so they are not events of the kernel.
            Some(
                "delta" | "warning" | "thread_started" | "limit_told" | "refusal" | "run_parked",
            ) => {}
            Some(_) => {
                RunEvent::deserialize(&event).map_err(|error| {
                    session_of(path).unwrap_or_else(|| wrong(&format!("not an event: {error}")))
                })?;
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
