//! `endstop explain`: shows the timeline of a run, the limits at each turn, and the ending, as
//! text, as JSON, or as an HTML page with a chart.

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

/// Maximum size of a file of events, in bytes of parsed values.
const HEAVIEST: u64 = 384 << 20;

pub(crate) fn run(args: &ExplainArgs, as_json: bool) -> Result {
    let html = args.html.as_deref();
    let html = html.map(|path| NewFile::of("--html", path, args.overwrite)).transpose()?;
    // A file has precedence over a run of the same name, because the user can see the file.
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

/// Reads a run of the journal.
fn recorded(args: &ExplainArgs) -> Result<Story> {
    let name = args.run.to_string_lossy();
    let journal = kept::to_read(&Place::of(args.journal.as_deref(), None)?).map_err(|error| {
        Failure::usage(format!("{name}: No such file, and no such run: {}", error.message))
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
            let problem = crate::card::visible(problem);
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
                cut = Some(wrong(&problem));
                return Ok(());
            }
        };
        match event.get("type").and_then(Value::as_str) {
            None => return Err(wrong("missing field `type`, so this is not an event")),
            Some("outcome")
                if event["termination"].is_string() && event["decided_by"].is_object() => {}
            Some("outcome") => {
                return Err(wrong("outcome without `termination` or `decided_by`"));
            }
            // These lines come from the agent loop, so they are not events of the kernel.
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

/// Writes a line with secrets redacted, because a journal of an older version may contain some.
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
            let _ = shown(&format!("continues run {earlier}, which had ended"));
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
        let _ = shown(&format!("also true at the end: {}", also.join(", ")));
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

/// Formats the cost after a turn. Files of earlier versions contain 0 if no price was known.
fn so_far(story: &Story, event: &Value) -> String {
    let unknown = story.outcome.as_ref().is_some_and(|outcome| outcome["cost_unknown"] == true);
    match event["cost"].as_f64() {
        None => "no price".to_owned(),
        Some(nano) if nano == 0.0 && unknown => "no price".to_owned(),
        Some(nano) => format!("${:.4} so far", nano / 1e9),
    }
}

/// Formats the timeline, one line for each event that matters to a reader.
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
            "resumed" => "▶ resumed: calls that were in progress are lost".to_owned(),
            "turn_ended" => format!(
                "  text {:?} ({} = {:?}, {} tokens, {})",
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
                    .map_or(String::new(), |ms| format!(" (retrying in {ms} ms)")),
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
                "  ! message to the model ({}): {}",
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
        // Each event stays on one line, even if it quotes several.
        let what = what.replace('\n', " ⏎ ");
        lines.push(format!("{:>10}  {what}", words::ms(event["at_ms"].as_f64().unwrap_or(0.0))));
    }
    lines
}
