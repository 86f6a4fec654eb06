//! The story as one page of HTML, with nothing outside it: how the run ended, the limits, a picture
//! of the run over time, what repeated, and each turn.
//!
//! ```ignore
//! std::fs::write("run.html", page(&story))?;
//! ```

use super::picture::{COLORS, picture};
use super::story::{Boundary, Repeat, Story, Turn};
use super::words;
use serde_json::Value;
use std::fmt::Write as _;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5b6675;--line:#d8dde4;--card:#fff;--back:#f5f6f8;--bad:#c62828;--warn:#b26a00;--good:#1b7f3b;--bar:#9db2cf}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa5b3;--line:#39424e;--card:#1b2129;--back:#12161b;--bad:#ff6b6b;--warn:#ffb74d;--good:#66d08a;--bar:#5d7699}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:16px}section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px;margin:0 0 16px}
h1{font-size:1.5rem;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:0 0 10px}p{margin:4px 0}.soft{color:var(--soft)}.bad{color:var(--bad)}.warn{color:var(--warn)}.good{color:var(--good)}
code{font:0.9em ui-monospace,monospace;overflow-wrap:anywhere}.limit{display:grid;grid-template-columns:minmax(9em,15em) 1fr minmax(6em,auto);gap:4px 12px;align-items:center;margin:6px 0}
.track{height:14px;border-radius:7px;background:var(--line);overflow:hidden}.track i{display:block;height:100%;background:var(--bar)}.met .track i{background:var(--bad)}.met{font-weight:600}
.badge{display:inline-block;min-width:1.5em;padding:0 .4em;border-radius:.75em;color:#fff;font-weight:700;text-align:center}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font-family:system-ui,sans-serif}.narrow{display:none}
@media(max-width:640px){.wide{display:none}.narrow{display:block}.limit{grid-template-columns:1fr auto}.limit .track{grid-column:1/3;grid-row:2}main{padding:8px}section{padding:12px}}
details{border-top:1px solid var(--line);padding:6px 0}summary{cursor:pointer;overflow-wrap:anywhere}pre{white-space:pre-wrap;overflow-wrap:anywhere;font:0.85em ui-monospace,monospace;margin:6px 0;max-height:24em;overflow:auto}
";

/// The page.
pub(super) fn page(story: &Story) -> String {
    let title = story.outcome.as_ref().map_or_else(
        || format!("run {}", story.state),
        |outcome| words::text(&outcome["termination"]),
    );
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{} · Endstop</title><style>{STYLE}</style></head><body><main>\n",
        escape(&title)
    );
    head(&mut out, story, &title);
    let turns = story.turns();
    if let Some(end) = story.limits.last() {
        limits(&mut out, story, end);
    }
    if !turns.is_empty() {
        let _ = writeln!(
            out,
            "<section><h2>The run over time</h2><div class=\"wide\">{}</div><div class=\"narrow\">{}</div></section>",
            picture(story, &turns, 1000.0),
            picture(story, &turns, 380.0)
        );
    }
    if !story.repeats.is_empty() {
        repeats(&mut out, &story.repeats);
    }
    each_turn(&mut out, story, &turns);
    out.push_str("</main></body></html>\n");
    out
}

fn head(out: &mut String, story: &Story, title: &str) {
    let category = story.outcome.as_ref().map(|outcome| words::text(&outcome["category"]));
    let class = match category.as_deref() {
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
                escape(&words::text(&by["layer"])),
                escape(&words::text(&by["name"])),
                escape(&words::text(&by["evidence"])),
                escape(&words::spent(outcome)),
            );
            for fired in words::fired(outcome) {
                let _ = write!(out, "<p>{}</p>", escape(&fired));
            }
        }
        None => {
            let _ = write!(out, "<p>{}</p>", escape(words::no_outcome(story.state)));
        }
    }
    if let Some(run) = &story.run {
        let model = run.model.as_deref().unwrap_or("?");
        let provider = run.provider.as_deref().unwrap_or("?");
        let _ = write!(
            out,
            "<p class=\"soft\">run <code>{}</code> · {} · {} · Endstop {}</p><p class=\"soft\">{}</p>",
            escape(&run.id),
            escape(&words::date(run.started_ms)),
            escape(&format!("{provider}/{model}")),
            escape(&run.version),
            escape(&words::shorten(&run.task, 400)),
        );
    }
    for problem in &story.problems {
        let _ = write!(out, "<p class=\"bad\">⚠ {}</p>", escape(problem));
    }
    out.push_str("</section>\n");
}

/// How far each limit was used at the end.
fn limits(out: &mut String, story: &Story, end: &Boundary) {
    out.push_str("<section><h2>Limits at the end</h2>");
    let decided = story.outcome.as_ref().map(|outcome| words::text(&outcome["decided_by"]["name"]));
    for check in &end.checks {
        let Some(max) = check.max else { continue };
        let share = if max > 0.0 { (check.value / max).clamp(0.0, 1.0) * 100.0 } else { 100.0 };
        let ended_it = decided.as_deref() == Some(check.limit);
        let _ = write!(
            out,
            "<div class=\"limit{}\"><code>{}</code><span class=\"track\"><i style=\"width:{share:.1}%\"></i></span><span>{}{}</span></div>",
            if ended_it { " met" } else { "" },
            check.limit,
            escape(&words::of(check)),
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
    out.push_str("<section><h2>What repeated</h2>");
    for (nth, repeat) in repeats.iter().enumerate() {
        let _ = write!(out, "<p>{} {}</p>", badge(nth), escape(&words::repeated(repeat)));
        for call in &repeat.calls {
            let _ = write!(
                out,
                "<p><code>{}({}) → {}</code></p>",
                escape(&call.name),
                escape(&words::shorten(&call.arguments, 200)),
                escape(&words::shorten(&call.result, 200)),
            );
        }
    }
    out.push_str("</section>\n");
}

fn each_turn(out: &mut String, story: &Story, turns: &[Turn<'_>]) {
    out.push_str("<section><h2>Turn by turn</h2>");
    let mut before = 0.0;
    for turn in turns {
        let again = story.repeats.iter().position(|repeat| repeat.turns.contains(&turn.number));
        let tools: Vec<&str> = turn.tools.iter().map(|tool| tool.name).collect();
        let spent = turn.cost.unwrap_or(before);
        let summary = format!(
            "turn {}: {}{}",
            turn.number,
            if tools.is_empty() { words::shorten(turn.text, 80) } else { tools.join(", ") },
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
                words::ms(to - from),
                words::ms(*from)
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
            let _ = write!(out, "<pre>{}</pre>", escape(&words::shorten(turn.text, 20_000)));
        }
        for tool in &turn.tools {
            let took =
                tool.to.map_or_else(|| "did not end".to_owned(), |to| words::ms(to - tool.from));
            let _ = write!(
                out,
                "<p><code>{}({})</code> {} · {took}</p><pre>{}</pre>",
                escape(tool.name),
                escape(&words::shorten(tool.arguments, 2_000)),
                escape(tool.status),
                escape(&words::shorten(tool.content, 20_000)),
            );
        }
        for told in &turn.told {
            let _ = write!(out, "<p class=\"warn\">the model was told: {}</p>", escape(told));
        }
        let boundary = story.limits.iter().find(|limit| limit.turn == Some(turn.number));
        if let Some(boundary) = boundary {
            let _ = write!(
                out,
                "<p class=\"soft\">before it: {}</p>",
                escape(&words::limits(boundary))
            );
        }
        out.push_str("</details>");
    }
    if let Some(Value::String(text)) = story.outcome.as_ref().map(|outcome| &outcome["last_text"]) {
        let _ = write!(
            out,
            "<details><summary>the last text</summary><pre>{}</pre></details>",
            escape(text)
        );
    }
    out.push_str("</section>\n");
}

/// The letter of a repetition, in its colour.
fn badge(nth: usize) -> String {
    format!(
        "<span class=\"badge\" style=\"background:{}\">{}</span>",
        COLORS[nth % COLORS.len()],
        words::letter(nth)
    )
}

/// Text as HTML; what a page cannot have is shown as what it is.
pub(super) fn escape(text: &str) -> String {
    crate::card::visible(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
