//! The timeline of a run as text.

use super::format::{self, text};
use super::timeline::Timeline;
use crate::output;
use crate::render::amounts::count;
use crate::render::card::card;
use crate::visible::shorten;
use serde_json::Value;
use std::fmt::Write as _;

/// Writes a line with secrets redacted again, because the process that stored the run may not have known
/// all of them.
fn shown(line: &str) {
    output::line(line);
}

/// Prints the timeline and the ending.
pub(crate) fn tell(timeline: &Timeline) {
    if let Some(run) = &timeline.run {
        let id = |text: &str| shorten(text, 120).replace(['\n', '\t'], " ");
        let model = id(run.model.as_deref().unwrap_or("?"));
        let date = format::date(run.started_ms);
        shown(&format!("run {} · {date} · {model}", id(&run.id)));
        if let Some(earlier) = &run.continues {
            let earlier = id(earlier);
            shown(&format!("continues run {earlier}, which had ended"));
        }
        if let Some(later) = &run.continued_by {
            shown(&format!("continued to a success by run {}", id(later)));
        }
        for line in format::branches(run) {
            shown(&shorten(&line, 400));
        }
        shown(&format!("task: {}\n", shorten(&run.task, 300)));
    }
    for problem in &timeline.problems {
        output::note(&format!("⚠ {}", shorten(problem, 600)));
    }
    for line in event_lines(timeline) {
        shown(&line);
    }
    for (nth, repeat) in timeline.repeats.iter().enumerate() {
        let calls: Vec<String> = repeat
            .calls
            .iter()
            .map(|call| format!("{}({})", call.name, shorten(&call.arguments, 80)))
            .collect();
        let what = calls.join(", ");
        let heading = if nth == 0 { "\n" } else { "" };
        shown(&format!("{heading}repeats: {what}: {}", format::repeated(repeat)));
    }
    let Some(outcome) = &timeline.ending else {
        shown(&format!("\n{}", format::no_outcome(timeline.state)));
        if let Some(next) = &timeline.next {
            shown(&format!("next: {next}"));
        }
        return;
    };
    let limits = timeline.limits.last().map(format::limits).filter(|limits| !limits.is_empty());
    if let Some(limits) = limits {
        shown(&format!("\nlimits at the end: {limits}"));
    }
    shown("");
    // Without colours, because this is standard output and may be a pipe or a file.
    for line in card(outcome, &timeline.allowed, &timeline.beside(), false, None).lines() {
        shown(line);
    }
}

/// Formats the cost after a turn.
fn so_far(event: &Value) -> String {
    match event["cost_usd"].as_f64() {
        None => "no price".to_owned(),
        Some(usd) => format!("${usd:.4} so far"),
    }
}

/// Formats a model call that the client of a guest is about to make.
fn asked(event: &Value) -> String {
    let what = if event["attempt_of_previous"] == true { "repeats its request" } else { "asks" };
    let mut line = format!("the client {what}: {} bytes of prompt", event["prompt_bytes"]);
    if let Some(model) = event["model"].as_str() {
        line = format!("{line} for {}", shorten(&text(&Value::from(model)), 60));
    }
    match event["output_cap"].as_u64() {
        Some(cap) => format!("{line}, at most {cap} tokens of output"),
        None => line,
    }
}

/// Formats the beginning of a turn, with the limits that were checked before it.
fn turn_started(timeline: &Timeline, event: &Value) -> String {
    let limits = timeline
        .limits
        .iter()
        .find(|at| event["attempt"] == 1 && at.turn.is_some() && at.turn == event["turn"].as_u64());
    let limits = limits.map(format::limits).filter(|limits| !limits.is_empty());
    let limits = limits.map_or_else(String::new, |limits| format!("   [{limits}]"));
    format!("turn {} attempt {}{limits}", event["turn"], event["attempt"])
}

/// Formats the end of a turn: text, finish value, tokens and cost.
fn turn_finished(event: &Value) -> String {
    let output = event["usage"]["output_tokens"].as_u64();
    format!(
        "  text {:?} ({} = {:?}, {} tokens, {})",
        shorten(&text(&event["text"]), 100),
        text(&event["signal"]["provider_specific"]["original_field"]),
        text(&event["signal"]["provider_specific"]["original_value"]),
        output.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string()),
        so_far(event),
    )
}

/// Formats a model call that failed.
fn attempt_failed(event: &Value) -> String {
    let retry = event["retry_in_ms"].as_u64();
    format!(
        "  failed: {}: {}{}",
        text(&event["error"]["class"]),
        shorten(&text(&event["error"]["message"]), 160),
        retry.map_or(String::new(), |ms| format!(" (retrying in {ms} ms)")),
    )
}

/// Formats the end of a tool call.
fn tool_finished(event: &Value) -> String {
    format!(
        "  ← {} {} in {} ms: {}",
        text(&event["name"]),
        text(&event["status"]),
        event["duration_ms"],
        shorten(&text(&event["content"]).replace('\n', " ⏎ "), 120)
    )
}

/// Formats a compaction that shortened the conversation.
fn compacted(event: &Value) -> String {
    format!(
        "  shortened {} → {} messages, {} → {} bytes ({})",
        event["before"],
        event["after"],
        event["bytes_before"],
        event["bytes_after"],
        text(&event["strategy"])
    )
}

/// Formats the end of a guest's loop.
fn closed(event: &Value) -> String {
    let how = if event["ok"] == true { "ended" } else { "ended with an error" };
    let detail = shorten(&text(&event["detail"]), 160);
    let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
    let decided = if event["decided_elsewhere"].is_string() {
        let decided = shorten(&text(&event["decided_elsewhere"]), 160);
        format!(" (decided in another conversation: {decided})")
    } else {
        String::new()
    };
    format!("the client's loop {how}{detail}{decided}")
}

fn dollars(usd: &Value) -> String {
    usd.as_f64().map_or_else(|| "–".to_owned(), |usd| format!("${usd:.4}"))
}

/// Formats the spending of the other conversations of a guest's run.
fn spent_elsewhere(event: &Value) -> String {
    format!(
        "other conversations: {}, {} tokens, {}",
        count(event["turns"].as_u64().unwrap_or(0), "turn"),
        event["tokens"],
        dollars(&event["cost_usd"]),
    )
}

/// Formats a model call whose end is not recorded.
fn open_call(event: &Value) -> String {
    let streamed = text(&event["text"]);
    let mut line = format!(
        "  open: the call has no recorded end; {} of text and {} characters of reasoning and arguments \
         so far",
        count(streamed.len() as u64, "byte"),
        event["hidden_chars"],
    );
    if event["reserved_usd"].as_f64().is_some_and(|usd| usd > 0.0) {
        let [reserved, cost] = ["reserved_usd", "cost_usd"].map(|field| dollars(&event[field]));
        let _ = write!(line, ", {reserved} reserved in addition to {cost}");
    }
    if streamed.is_empty() { line } else { format!("{line}: {:?}", shorten(&streamed, 100)) }
}

/// Formats an event; `None` if it does not matter to a reader.
fn event_text(timeline: &Timeline, event: &Value) -> Option<String> {
    let short = |field: &str, most| shorten(&text(&event[field]), most);
    Some(match event["type"].as_str().unwrap_or_default() {
        "turn_started" => turn_started(timeline, event),
        "turn_finished" => turn_finished(event),
        "attempt_failed" => attempt_failed(event),
        "tool_started" => format!("  → {} {}", text(&event["name"]), short("arguments", 120)),
        "tool_finished" => tool_finished(event),
        "message_injected" => {
            format!("  ! message to the model ({}): {}", text(&event["why"]), short("text", 120))
        }
        "warning" => format!("⚠ {}", short("message", 300)),
        "compacted" => compacted(event),
        "compaction_failed" => {
            format!("  the conversation could not be shortened: {}", short("why", 160))
        }
        "asked" => asked(event),
        "closed" => closed(event),
        "open_call" => open_call(event),
        "spent_elsewhere" => spent_elsewhere(event),
        "parked" => parked(event),
        "decided" => format!("? the request was {}", decided(&event["decision"])),
        "resumed" => "▶ resumed: calls that were in progress are lost".to_owned(),
        "verified" => verdict(event),
        "hand_over" => format!("  hand-over: {}", short("text", 300)),
        "limits_changed" => format!("! limits changed: {}", short("limits", 300)),
        "model_switched" => {
            let name: Vec<&str> =
                ["provider", "model"].iter().filter_map(|key| event[*key].as_str()).collect();
            let because = event["because"].as_str().map(|why| format!(", because of {why}"));
            let removed = event["removed_parts"].as_u64().filter(|parts| *parts > 0);
            let removed = removed.map(|parts| {
                format!("; {} that only the earlier model can read left out", count(parts, "part"))
            });
            let name = shorten(&name.join("/"), 200);
            let (because, removed) = (because.unwrap_or_default(), removed.unwrap_or_default());
            format!("→ continues with {name}{because}{removed}")
        }
        "paused" => {
            let wait = format::ms(event["wait_ms"].as_f64().unwrap_or(0.0));
            format!("  pauses for {wait}: {}", text(&event["evidence"]))
        }
        "suspended" => {
            let time = format::ms(event["duration_ms"].as_f64().unwrap_or(0.0));
            format!("  the process was suspended for {time}")
        }
        "stopping" => format!("■ stopping: {}", text(&event["reason"])),
        _ => return None,
    })
}

/// Formats the request of a parked run.
fn parked(event: &Value) -> String {
    let subject = shorten(event["subject"].as_str().unwrap_or_default(), 200).replace('\n', " ");
    let tool = event["tool"].as_str().map(|tool| format!("`{}` ", shorten(tool, 60)));
    let kind = text(&event["kind"]);
    format!("? parked: waits for {kind}: {}{subject}", tool.unwrap_or_default().replace('\n', " "))
}

/// Formats the decision about a request.
fn decided(decision: &Value) -> String {
    let why = |name: &str| decision[name].as_str().map(|why| shorten(why, 160).replace('\n', " "));
    let told = |what: &str, name: &str| why(name).map(|why| format!("{what}: {why}"));
    match decision.as_str() {
        Some("approve") => "approved".to_owned(),
        Some("expired") => "denied by timeout: no decision came in time".to_owned(),
        _ => told("denied", "deny")
            .or_else(|| told("answered", "text"))
            .or_else(|| told("approved with other arguments", "approve_changed"))
            .unwrap_or_else(|| "decided".to_owned()),
    }
}

/// Formats a verdict of the verifier.
fn verdict(event: &Value) -> String {
    let of = match (event["round"].as_u64(), event["rounds"].as_u64()) {
        (Some(round), Some(most)) => format!(" (round {round} of {most})"),
        _ => String::new(),
    };
    if event["passed"] == true {
        return format!("  ✓ verified{of}");
    }
    let output = event["output"].as_str().unwrap_or_default();
    let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    format!("  ✗ rejected by the verifier{of}: {}", shorten(last, 160))
}

/// Formats the timeline, one line for each event that matters to a reader.
fn event_lines(timeline: &Timeline) -> Vec<String> {
    let line = |event: &Value| {
        // Each event stays on one line, even if it quotes several.
        let text = event_text(timeline, event)?.replace('\n', " ⏎ ");
        Some(format!("{:>10}  {text}", format::ms(event["at_ms"].as_f64().unwrap_or(0.0))))
    };
    timeline.entries.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{Timeline, event_lines};
    use endstop::Message;
    use endstop::core::guest::{Guest, GuestStart};
    use endstop::core::{GuestCall, GuestMode, RunSpec};
    use endstop::journal::{RecordedRun, RunHeader};
    use std::time::Duration;

    #[test]
    fn guest_run_shows_its_client() {
        let spec = || RunSpec { guest: Some(GuestMode::default()), ..RunSpec::default() };
        let mut guest = Guest::new(spec(), GuestStart { record: true, ..GuestStart::default() });
        let call = GuestCall {
            input: vec![Message::user("Count the files.")],
            prompt_bytes: 1_800,
            output_cap: Some(4_096),
            model: Some("m\u{1b}[2J".into()),
            ..GuestCall::default()
        };
        let again =
            GuestCall { prompt_bytes: 7, attempt_of_previous: true, ..GuestCall::default() };
        let _ =
            (guest.ask(Duration::from_millis(5), call), guest.ask(Duration::from_millis(9), again));
        guest.close(Duration::from_millis(20), false, "exit status 1");
        let events = guest.take_events().into_iter().map(|one| one.event).collect();
        let header = RunHeader { id: "one".into(), spec: spec(), ..RunHeader::default() };
        let run = RecordedRun { header, events, ..RecordedRun::default() };

        let timeline = Timeline::of_run(&run, false, None).unwrap();
        let types: Vec<_> = timeline.entries.iter().map(|one| one["type"].clone()).collect();
        let expected =
            ["asked", "turn_started", "asked", "attempt_failed", "turn_started", "closed"];
        assert_eq!(types, expected);
        let lines = event_lines(&timeline).join("\n");
        assert!(lines.contains("the client asks: 1800 bytes of prompt for m"), "{lines}");
        assert!(lines.contains("at most 4096 tokens of output"), "{lines}");
        assert!(lines.contains("the client repeats its request: 7 bytes of prompt"), "{lines}");
        assert!(lines.contains("the client's loop ended with an error: exit status 1"), "{lines}");
        assert!(!lines.contains('\u{1b}'), "escaped: {lines}");
        // Only the program that owned the loop can continue it.
        assert_eq!((timeline.state, timeline.next.is_some()), ("ended", true));
        assert!(!timeline.next.unwrap().contains("--resume"));
    }
}
