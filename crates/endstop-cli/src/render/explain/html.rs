//! The HTML page of a run, self-contained: ending, limits, chart, repeats, and each turn.

use super::format;
use super::svg::{COLORS, svg};
use super::timeline::{Boundary, Repeat, Timeline, Turn};
use crate::render::html::{END, begin, escape};
use serde_json::Value;
use std::fmt::Write as _;

/// Builds the page.
pub(crate) fn page(story: &Timeline) -> String {
    let title = story.outcome.as_ref().map_or_else(
        || format!("run {}", story.state),
        |outcome| format::text(&outcome["termination"]),
    );
    let mut out = begin(&title);
    head(&mut out, story, &title);
    let turns = story.turns();
    if let Some(end) = story.limits.last() {
        limits(&mut out, story, end);
    }
    if !turns.is_empty() {
        let _ = writeln!(
            out,
            // The chart is drawn twice, because SVG text cannot reflow; the styles show one or the
            // other.
            "<section><h2>The run over time</h2><div class=\"wide\">{}</div><div class=\"narrow\">{}</div></section>",
            svg(story, &turns, 1000.0),
            svg(story, &turns, 380.0)
        );
    }
    if !story.repeats.is_empty() {
        repeats(&mut out, &story.repeats);
    }
    each_turn(&mut out, story, &turns);
    out.push_str(END);
    out
}

fn head(out: &mut String, story: &Timeline, title: &str) {
    let category = story.outcome.as_ref().map(|outcome| format::text(&outcome["category"]));
    let wrong = story.outcome.as_ref().is_some_and(|outcome| outcome["verified"] == false);
    let class = match category.as_deref() {
        Some("success") if wrong => "bad",
        Some("success") => "good",
        Some("fatal") => "bad",
        _ => "warn",
    };
    let _ = write!(out, "<section><h1 class=\"{class}\">{}", escape(title));
    if let Some(category) = &category {
        let _ = write!(out, " <span class=\"soft\">({})</span>", escape(category));
    }
    out.push_str("</h1>");
    match &story.outcome {
        Some(outcome) => {
            let by = &outcome["decided_by"];
            let _ = write!(
                out,
                "<p>Decided by {} <code>{}</code>: {}</p><p>{}</p>",
                escape(&format::text(&by["layer"])),
                escape(&format::text(&by["name"])),
                escape(&format::text(&by["evidence"])),
                escape(&format::spent(outcome)),
            );
            if let Some(verified) = format::verified(story) {
                let class = if wrong { "bad" } else { "soft" };
                let _ = write!(out, "<p class=\"{class}\">verified {}</p>", escape(&verified));
            }
            if let Some(diverged) = format::diverged(outcome) {
                let _ = write!(out, "<p class=\"bad\">replay {}</p>", escape(&diverged));
            }
            for fired in format::fired(outcome) {
                let _ = write!(out, "<p>{}</p>", escape(&fired));
            }
        }
        None => {
            let _ = write!(out, "<p>{}</p>", escape(format::no_outcome(story.state)));
        }
    }
    if let Some(next) = &story.next {
        let _ = write!(out, "<p>Next: {}</p>", escape(&format::shorten(next, 600)));
    }
    if let Some(run) = &story.run {
        let model = run.model.as_deref().unwrap_or("?");
        let provider = run.provider.as_deref().unwrap_or("?");
        let _ = write!(
            out,
            "<p class=\"soft\">run <code>{}</code> · {} · {} · Endstop {}</p><p class=\"soft\">{}</p>",
            escape(&run.id),
            escape(&format::date(run.started_ms)),
            escape(&format!("{provider}/{model}")),
            escape(&run.version),
            escape(&format::shorten(&run.task, 400)),
        );
    }
    for problem in &story.problems {
        let _ = write!(out, "<p class=\"bad\">⚠ {}</p>", escape(problem));
    }
    out.push_str("</section>\n");
}

/// Adds a bar for the use of each limit at the end.
fn limits(out: &mut String, story: &Timeline, end: &Boundary) {
    out.push_str("<section><h2>Limits at the end</h2>");
    let decided =
        story.outcome.as_ref().map(|outcome| format::text(&outcome["decided_by"]["name"]));
    for check in &end.checks {
        let Some(max) = check.max else { continue };
        // A limit of zero is used up from the start.
        let share = if max > 0.0 { (check.value / max).clamp(0.0, 1.0) * 100.0 } else { 100.0 };
        let ended_it = decided.as_deref() == Some(check.limit);
        let _ = write!(
            out,
            "<div class=\"limit{}\"><code>{}</code><span class=\"track\"><i style=\"width:{share:.1}%\"></i></span><span>{}{}</span></div>",
            if ended_it { " met" } else { "" },
            check.limit,
            escape(&format::of(check)),
            if ended_it { " <span class=\"bad\">ended the run</span>" } else { "" },
        );
    }
    let off: Vec<&str> =
        end.checks.iter().filter(|check| check.max.is_none()).map(|check| check.limit).collect();
    if !off.is_empty() {
        let _ = write!(out, "<p class=\"soft\">off: {}</p>", off.join(", "));
    }
    out.push_str("</section>\n");
}

fn repeats(out: &mut String, repeats: &[Repeat]) {
    out.push_str("<section><h2>Repeats</h2>");
    for (nth, repeat) in repeats.iter().enumerate() {
        let _ = write!(out, "<p>{} {}</p>", badge(nth), escape(&format::repeated(repeat)));
        for call in &repeat.calls {
            let _ = write!(
                out,
                "<p><code>{}({}) → {}</code></p>",
                escape(&call.name),
                escape(&format::shorten(&call.arguments, 200)),
                escape(&format::shorten(&call.result, 200)),
            );
        }
    }
    out.push_str("</section>\n");
}

fn each_turn(out: &mut String, story: &Timeline, turns: &[Turn<'_>]) {
    out.push_str("<section><h2>Turn by turn</h2>");
    let mut before = 0.0;
    for turn in turns {
        let again = story.repeats.iter().position(|repeat| repeat.turns.contains(&turn.number));
        let tools: Vec<&str> = turn.tools.iter().map(|tool| tool.name).collect();
        // Turns carry the total cost so far, and the summary shows the difference.
        let spent = turn.cost.unwrap_or(before);
        let summary = format!(
            "turn {}: {}{}",
            turn.number,
            if tools.is_empty() { format::shorten(turn.text, 80) } else { tools.join(", ") },
            if spent > before { format!(" · ${:.4}", spent - before) } else { String::new() },
        );
        before = spent;
        let _ = write!(
            out,
            "<details><summary>{} {}</summary>",
            again.map(badge).unwrap_or_default(),
            escape(&summary)
        );
        for (from, to, failed) in &turn.attempts {
            let how = failed.as_deref().unwrap_or("answered");
            let _ = write!(
                out,
                "<p class=\"soft\">model: {how} after {} (at {})</p>",
                format::ms(to - from),
                format::ms(*from)
            );
        }
        if !turn.finish.is_empty() {
            let (input, output) = turn.tokens;
            let _ = write!(
                out,
                "<p class=\"soft\">finish <code>{}</code>, {input} tokens in, {output} out</p>",
                escape(&turn.finish)
            );
        }
        if !turn.text.is_empty() {
            // Long texts are shortened, so that a page with many turns still loads on a phone.
            let _ = write!(out, "<pre>{}</pre>", escape(&format::shorten(turn.text, 20_000)));
        }
        for tool in &turn.tools {
            let took =
                tool.to.map_or_else(|| "did not end".to_owned(), |to| format::ms(to - tool.from));
            let _ = write!(
                out,
                "<p><code>{}({})</code> {} · {took}</p><pre>{}</pre>",
                escape(tool.name),
                escape(&format::shorten(tool.arguments, 2_000)),
                escape(tool.status),
                escape(&format::shorten(tool.content, 20_000)),
            );
        }
        for told in &turn.told {
            let _ = write!(out, "<p class=\"warn\">message to the model: {}</p>", escape(told));
        }
        let boundary = story.limits.iter().find(|limit| limit.turn == Some(turn.number));
        if let Some(boundary) = boundary {
            let _ = write!(
                out,
                "<p class=\"soft\">limits before this turn: {}</p>",
                escape(&format::limits(boundary))
            );
        }
        out.push_str("</details>");
    }
    if let Some(Value::String(text)) = story.outcome.as_ref().map(|outcome| &outcome["last_text"]) {
        let _ = write!(
            out,
            "<details><summary>last text</summary><pre>{}</pre></details>",
            escape(text)
        );
    }
    out.push_str("</section>\n");
}

/// Returns the letter of a repeat in its colour.
fn badge(nth: usize) -> String {
    format!(
        "<span class=\"badge\" style=\"background:{}\">{}</span>",
        COLORS[nth % COLORS.len()],
        format::letter(nth)
    )
}
