//! `endstop explain`: the timeline of a run from its events, and what ended it.

use crate::args::ExplainArgs;
use crate::card::{count, seconds, shorten, visible};
use crate::input::Source;
use crate::{Failure, Result, output};
use endstop::core::RunEvent;
use endstop::core::decide::parse_json;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn run(args: &ExplainArgs, as_json: bool) -> Result {
    let source = Source::of(Some(&args.run));
    let mut events = Vec::new();
    // A run that was killed may leave its last line half written: what came before is shown.
    let mut cut: Option<Failure> = None;
    source.each_line(|number, line| {
        if line.is_empty() {
            return Ok(());
        }
        let wrong = |problem: &str| {
            Failure::usage(format!(
                "{}: line {number}: {problem}; give a file that `endstop run --events` wrote",
                source.name()
            ))
        };
        if let Some(before) = cut.take() {
            return Err(before);
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
    let outcome = events.iter().rev().find(|event| event["type"] == "outcome");
    if as_json {
        let _ = output::json(
            &json!({"events": events.len(), "outcome": outcome, "timeline": timeline(&events)}),
        );
        return Ok(0);
    }
    for line in timeline(&events) {
        let _ = output::line(&line);
    }
    let Some(outcome) = outcome else {
        let _ = output::line(
            "\nno outcome: the file ends before the run did (it was killed, or still runs)",
        );
        return Ok(0);
    };
    let by = &outcome["decided_by"];
    let _ = output::line(&format!(
        "\nended as {} ({}), decided by {} `{}`: {}",
        text(&outcome["termination"]),
        text(&outcome["category"]),
        text(&by["layer"]),
        text(&by["name"]),
        text(&by["evidence"]),
    ));
    if let Some(also) = outcome["also"].as_array().filter(|also| !also.is_empty()) {
        let also: Vec<String> = also.iter().map(text).collect();
        let _ = output::line(&format!("also true then: {}", also.join(", ")));
    }
    // As the card has it: what nobody has a price for did not cost nothing.
    let cost = match (&outcome["cost_usd"], outcome["cost_unknown"] == true) {
        (cost, true) if cost.as_f64() == Some(0.0) => "cost unknown (no price)".to_owned(),
        (cost, true) => format!("at least ${cost}"),
        (cost, false) if outcome["usage"]["estimated"] == true => format!("~${cost}"),
        (cost, false) => format!("${cost}"),
    };
    let counted = |key: &str, what: &str| count(outcome[key].as_u64().unwrap_or(0), what);
    let _ = output::line(&format!(
        "{}, {}, {}, {cost}, {}",
        counted("turns", "turn"),
        counted("model_calls", "model call"),
        counted("tool_calls", "tool call"),
        time(&outcome["duration_ms"]),
    ));
    Ok(0)
}

/// A line for each event that a reader wants to see.
fn timeline(events: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for event in events {
        let what = match event["type"].as_str().unwrap_or_default() {
            "turn_started" => format!("turn {} attempt {}", event["turn"], event["attempt"]),
            "turn_ended" => format!(
                "  said {:?} ({} = {:?}, {} tokens, ${:.4} so far)",
                shorten(&text(&event["text"]), 100),
                text(&event["signal"]["provider_specific"]["original_field"]),
                text(&event["signal"]["provider_specific"]["original_value"]),
                event["usage"]["output_tokens"],
                event["cost"].as_f64().unwrap_or(0.0) / 1e9,
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
            "compacted" => format!("  shortened {} → {} messages", event["before"], event["after"]),
            "stopping" => format!("■ stopping: {}", text(&event["reason"])),
            _ => continue,
        };
        lines.push(format!("{:>10}  {what}", time(&event["at_ms"])));
    }
    lines
}

/// Milliseconds as a person reads them; a file may say anything.
fn time(ms: &Value) -> String {
    let secs = ms.as_f64().unwrap_or(0.0).max(0.0) / 1e3;
    seconds(Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
}

/// A JSON value as a person reads it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), visible)
}
