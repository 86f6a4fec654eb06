//! `endstop explain`: the timeline of a run, how near its limits were at each turn, and what ended it;
//! as text, JSON, or a page with a picture.

mod page;
mod picture;
mod story;
mod words;

use crate::args::ExplainArgs;
use crate::card::shorten;
use crate::input::Source;
use crate::kept::{self, Place};
use crate::new_file::NewFile;
use crate::{Failure, Result, output};
use endstop::core::RunEvent;
use endstop::core::bounded_json;
use endstop::core::decide::parse_json;
use endstop::journal::{JournalError, JournalErrorKind};
use serde::Deserialize as _;
use serde_json::Value;
use std::path::Path;
use story::Story;
use words::text;

/// The heaviest file of events, in bytes of parsed values.
const HEAVIEST: u64 = 384 << 20;

pub(crate) fn run(args: &ExplainArgs, as_json: bool) -> Result {
    let html = args.html.as_deref();
    let html = html.map(|path| NewFile::of("--html", path, args.overwrite)).transpose()?;
    // A file stands before a run of the same name: it can be seen.
    let story = if args.run.exists() || args.run == Path::new("-") {
        Story::of_events(read(&args.run)?)
    } else {
        recorded(args)?
    };
    if let Some(file) = html {
        file.write(&page::page(&story))?;
        output::note(&format!("written: {}", file.path().display()));
        if !as_json {
            return Ok(0);
        }
    }
    if as_json {
        let _ = output::json_without(&story, output::keys());
        return Ok(0);
    }
    tell(&story);
    Ok(0)
}

/// The story of a run of the journal.
fn recorded(args: &ExplainArgs) -> Result<Story> {
    let name = args.run.to_string_lossy();
    let journal = kept::to_read(&Place::of(args.journal.as_deref(), None)?).map_err(|error| {
        Failure::usage(format!("{name}: No such file, and no run either: {}", error.message))
    })?;
    let wrong = |error: JournalError| Failure::usage(error.to_string());
    let id = journal.find(&name).map_err(|error| match error.kind {
        JournalErrorKind::NotFound if name != "last" => Failure::usage(format!(
            "{name}: No such file, and {}: {}",
            error.journal, error.problem
        )),
        _ => wrong(error),
    })?;
    let running = journal.is_running(&id).map_err(wrong)?;
    Story::of_run(&journal.load(&id).map_err(wrong)?, running, args.journal.as_deref())
}

/// The events of a file that `endstop run --events` wrote.
fn read(path: &Path) -> Result<Vec<Value>> {
    let source = Source::of(Some(path));
    let mut events = Vec::new();
    // They are all held at once.
    let mut weight = 0;
    // A run that was killed may leave its last line half written: what came before is shown.
    let mut cut: Option<Failure> = None;
    source.each_line(|number, line| {
        if line.is_empty() {
            return Ok(());
        }
        let wrong = |problem: &str| {
            // It may quote the file.
            let problem = crate::card::visible(problem);
            Failure::usage(format!(
                "{}: line {number}: {problem}; give a file that `endstop run --events` wrote",
                source.name()
            ))
        };
        if let Some(before) = cut.take() {
            return Err(before);
        }
        weight += bounded_json::weight(line);
        if weight > HEAVIEST {
            return Err(wrong("the events up to here need too much memory"));
        }
        let event = match parse_json(line) {
            Ok(event) => event,
            Err(problem) => {
                cut = Some(wrong(&problem));
                return Ok(());
            }
        };
        match event.get("type").and_then(Value::as_str) {
            None => return Err(wrong("no field `type`: it is not an event")),
            Some("outcome")
                if event["termination"].is_string() && event["decided_by"].is_object() => {}
            Some("outcome") => {
                return Err(wrong("an outcome without its `termination` and `decided_by`"));
            }
            Some("delta" | "warning") => {}
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
            "endstop: {}: the last line is cut, so the run was killed while it was written",
            source.name()
        ));
    }
    if events.is_empty() {
        return Err(Failure::usage(format!(
            "{}: there are no events in it; give a file that `endstop run --events` wrote",
            source.name()
        )));
    }
    Ok(events)
}

/// Writes a line without secrets: an older journal may have some.
fn shown(line: &str) -> std::io::Result<()> {
    output::line(&output::hidden(line))
}

fn tell(story: &Story) {
    if let Some(run) = &story.run {
        let id = |text: &str| shorten(text, 120).replace(['\n', '\t'], " ");
        let model = id(run.model.as_deref().unwrap_or("?"));
        let date = words::date(run.started_ms);
        let _ = shown(&format!("run {} · {date} · {model}", id(&run.id)));
        if let Some(earlier) = &run.continues {
            let earlier = id(earlier);
            let _ = shown(&format!("goes on with run {earlier}, which had ended"));
        }
        let _ = shown(&format!("task: {}\n", shorten(&run.task, 300)));
    }
    for problem in &story.problems {
        output::note(&format!("⚠ {}", shorten(problem, 600)));
    }
    for line in timeline(story) {
        let _ = shown(&line);
    }
    for (nth, repeat) in story.repeats.iter().enumerate() {
        let calls: Vec<String> = repeat
            .calls
            .iter()
            .map(|call| format!("{}({})", call.name, shorten(&call.arguments, 80)))
            .collect();
        let what = calls.join(", ");
        let heading = if nth == 0 { "\n" } else { "" };
        let _ = shown(&format!("{heading}repeats: {what}: {}", words::repeated(repeat)));
    }
    let Some(outcome) = &story.outcome else {
        let _ = shown(&format!("\n{}", words::no_outcome(story.state)));
        if let Some(next) = &story.next {
            let _ = shown(&format!("next: {next}"));
        }
        return;
    };
    let by = &outcome["decided_by"];
    let _ = shown(&format!(
        "\nended as {} ({}), decided by {} `{}`: {}",
        text(&outcome["termination"]),
        text(&outcome["category"]),
        text(&by["layer"]),
        text(&by["name"]),
        text(&by["evidence"]),
    ));
    if let Some(also) = outcome["also"].as_array().filter(|also| !also.is_empty()) {
        let also: Vec<String> = also.iter().map(text).collect();
        let _ = shown(&format!("also true then: {}", also.join(", ")));
    }
    for fired in words::fired(outcome) {
        let _ = shown(&fired);
    }
    let _ = shown(&words::spent(outcome));
    if let Some(verified) = words::verified(story) {
        let _ = shown(&format!("verified {verified}"));
    }
    if let Some(diverged) = words::diverged(outcome) {
        let _ = shown(&format!("replay {diverged}"));
    }
    if let Some(end) = story.limits.last() {
        let _ = shown(&format!("limits at the end: {}", words::limits(end)));
    }
    if let Some(next) = &story.next {
        let _ = shown(&format!("next: {}", shorten(next, 600)));
    }
}

/// The cost after a turn. A file of an earlier version has 0 where no price was known.
fn so_far(story: &Story, event: &Value) -> String {
    let unknown = story.outcome.as_ref().is_some_and(|outcome| outcome["cost_unknown"] == true);
    match event["cost"].as_f64() {
        None => "no price".to_owned(),
        Some(nano) if nano == 0.0 && unknown => "no price".to_owned(),
        Some(nano) => format!("${:.4} so far", nano / 1e9),
    }
}

/// A line for each event that a reader wants to see.
fn timeline(story: &Story) -> Vec<String> {
    let mut lines = Vec::new();
    for event in &story.timeline {
        let what = match event["type"].as_str().unwrap_or_default() {
            "turn_started" => {
                let limits = story.limits.iter().find(|at| {
                    event["attempt"] == 1 && at.turn.is_some() && at.turn == event["turn"].as_u64()
                });
                let limits = limits.map(words::limits).filter(|limits| !limits.is_empty());
                let limits = limits.map_or_else(String::new, |limits| format!("   [{limits}]"));
                format!("turn {} attempt {}{limits}", event["turn"], event["attempt"])
            }
            "resumed" => "▶ gone on with: what was in flight is lost".to_owned(),
            "turn_ended" => format!(
                "  said {:?} ({} = {:?}, {} tokens, {})",
                shorten(&text(&event["text"]), 100),
                text(&event["signal"]["provider_specific"]["original_field"]),
                text(&event["signal"]["provider_specific"]["original_value"]),
                event["usage"]["output_tokens"]
                    .as_u64()
                    .map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string()),
                so_far(story, event),
            ),
            "attempt_failed" => format!(
                "  failed: {}: {}{}",
                text(&event["error"]["class"]),
                shorten(&text(&event["error"]["message"]), 160),
                event["retry_in_ms"]
                    .as_u64()
                    .map_or(String::new(), |ms| format!(" (again in {ms} ms)")),
            ),
            "tool_started" => {
                format!("  → {} {}", text(&event["name"]), shorten(&text(&event["arguments"]), 120))
            }
            "tool_ended" => format!(
                "  ← {} {} in {} ms: {}",
                text(&event["name"]),
                text(&event["status"]),
                event["duration_ms"],
                shorten(&text(&event["content"]).replace('\n', " ⏎ "), 120)
            ),
            "told" => format!(
                "  ! told the model ({}): {}",
                text(&event["why"]),
                shorten(&text(&event["text"]), 120)
            ),
            "warning" => format!("⚠ {}", shorten(&text(&event["message"]), 300)),
            "compacted" => format!(
                "  shortened {} → {} messages, {} → {} bytes ({})",
                event["before"],
                event["after"],
                event["bytes_before"],
                event["bytes_after"],
                text(&event["strategy"])
            ),
            "compaction_failed" => {
                format!(
                    "  the conversation could not be shortened: {}",
                    shorten(&text(&event["why"]), 160)
                )
            }
            "stopping" => format!("■ stopping: {}", text(&event["reason"])),
            _ => continue,
        };
        // An event is a line, whatever it quotes.
        let what = what.replace('\n', " ⏎ ");
        lines.push(format!("{:>10}  {what}", words::ms(event["at_ms"].as_f64().unwrap_or(0.0))));
    }
    lines
}
