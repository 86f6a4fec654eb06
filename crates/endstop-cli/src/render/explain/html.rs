//! The HTML page of a run, self-contained: ending, limits, chart, repeats, and each turn.

use super::format;
use super::repeats::Repeat;
use super::svg::{COLORS, svg};
use super::timeline::{Boundary, Timeline};
use super::turns::Turn;
use crate::render::card::rows;
use crate::render::html::{paragraph, safe, section};
use endstop::{Category, Outcome, core::CheckState};
use maud::{Markup, PreEscaped, html};

/// Builds the page.
pub(crate) fn page(timeline: &Timeline) -> String {
    let title = timeline.ending.as_ref().map_or_else(
        || format!("run {}", timeline.state),
        |outcome| outcome.termination.to_string(),
    );
    let turns = timeline.turns();
    let sections = html! {
        (section(&head(timeline, &title)))
        @if let Some(end) = timeline.limits.last() { (section(&limits(timeline, end))) }
        @if !turns.is_empty() { (section(&chart(timeline, &turns))) }
        @if !timeline.repeats.is_empty() { (section(&repeats(&timeline.repeats))) }
        (section(&each_turn(timeline, &turns)))
    };
    crate::render::html::page(&title, &sections)
}

fn head(timeline: &Timeline, title: &str) -> Markup {
    let category = timeline.ending.as_ref().map(Outcome::category);
    let wrong = timeline.ending.as_ref().is_some_and(|outcome| outcome.verified == Some(false));
    let class = match category {
        Some(Category::Success) if wrong => "bad",
        Some(Category::Success) => "good",
        Some(Category::Fatal) => "bad",
        _ => "warn",
    };
    html! {
        h1 class=(class) {
            (safe(title))
            @if let Some(category) = category { " " span.soft { "(" (category.as_str()) ")" } }
        }
        @match &timeline.ending {
            Some(outcome) => (ending(timeline, outcome)),
            None => {
                p { (safe(format::no_outcome(timeline.state))) }
                @if let Some(next) = &timeline.next { p { "Next: " (safe(next)) } }
            }
        }
        @if let Some(run) = &timeline.run {
            @let provider = run.provider.as_deref().unwrap_or("?");
            @let model = run.model.as_deref().unwrap_or("?");
            p.soft {
                "run " code { (safe(&run.id)) }
                " · " (safe(&format::date(run.started_ms)))
                " · " (safe(&format!("{provider}/{model}")))
                " · Endstop " (safe(&run.version))
            }
            p.soft { (safe(&format::shorten(&run.task, 400))) }
            @for line in format::branches(run) { p.soft { (safe(&format::shorten(&line, 400))) } }
        }
        @for problem in &timeline.problems { p.bad { "⚠ " (safe(problem)) } }
    }
}

/// Returns the rows of the card.
fn ending(timeline: &Timeline, outcome: &Outcome) -> Markup {
    let class = |name: &str| match (name, outcome.verified) {
        ("verified", Some(false)) | ("replay", _) => Some("bad"),
        _ => None,
    };
    html! {
        dl.card {
            @for (name, text) in rows(outcome, &timeline.allowed, &timeline.beside()) {
                dt { (name) } " " dd class=[class(name)] { (safe(&text)) }
            }
        }
    }
}

/// Returns a bar for the use of each limit at the end.
fn limits(timeline: &Timeline, end: &Boundary) -> Markup {
    let off = end.checks.iter().filter(|check| check.max.is_none());
    let off: Vec<&str> = off.map(|check| check.limit.name()).collect();
    html! {
        h2 { "Limits at the end" }
        @for check in &end.checks {
            @if let Some(max) = check.max {
                (limit(check, max, timeline.is_decided_by(check.limit)))
            }
        }
        @if !off.is_empty() { p.soft { "off: " (off.join(", ")) } }
    }
}

fn limit(check: &CheckState, max: f64, ended_it: bool) -> Markup {
    // A limit of zero is used up from the start.
    let share = if max > 0.0 { (check.value / max).clamp(0.0, 1.0) * 100.0 } else { 100.0 };
    html! {
        div.limit.met[ended_it] {
            code { (check.limit) }
            span.track { i style={ "width:" (format!("{share:.1}")) "%" } {} }
            span {
                (safe(&format::of(check)))
                @if ended_it { " " span.bad { "ended the run" } }
            }
        }
    }
}

fn chart(timeline: &Timeline, turns: &[Turn<'_>]) -> Markup {
    html! {
        h2 { "The run over time" }
        // The chart is drawn twice, because SVG text cannot reflow; the styles show one or the
        // other.
        div.wide { (PreEscaped(svg(timeline, turns, 1000.0))) }
        div.narrow { (PreEscaped(svg(timeline, turns, 380.0))) }
    }
}

fn repeats(repeats: &[Repeat]) -> Markup {
    html! {
        h2 { "Repeats" }
        @for (nth, repeat) in repeats.iter().enumerate() {
            p { (badge(nth)) " " (safe(&format::repeated(repeat))) }
            @for call in &repeat.calls {
                p {
                    code {
                        (safe(&call.name))
                        "(" (safe(&format::shorten(&call.arguments, 200))) ")"
                        " → " (safe(&format::shorten(&call.result, 200)))
                    }
                }
            }
        }
    }
}

fn each_turn(timeline: &Timeline, turns: &[Turn<'_>]) -> Markup {
    // Turns carry the total cost so far, and the summary shows the difference.
    let before = turns.iter().scan(0.0, |spent, turn| {
        let before = *spent;
        *spent = turn.cost.unwrap_or(before);
        Some(before)
    });
    html! {
        h2 { "Turn by turn" }
        @for (turn, before) in turns.iter().zip(before) {
            details { (one_turn(timeline, turn, before)) }
        }
        @if let Some(text) = timeline.ending.as_ref().and_then(|outcome| outcome.last_text.as_deref()) {
            details { summary { "last text" } pre { (safe(text)) } }
        }
    }
}

fn one_turn(timeline: &Timeline, turn: &Turn<'_>, before: f64) -> Markup {
    let again = timeline.repeats.iter().position(|repeat| repeat.turns.contains(&turn.number));
    let tools: Vec<&str> = turn.tools.iter().map(|tool| tool.name).collect();
    let spent = turn.cost.unwrap_or(before);
    let summary = format!(
        "turn {}: {}{}",
        turn.number,
        if tools.is_empty() { format::shorten(turn.text, 80) } else { tools.join(", ") },
        if spent > before { format!(" · ${:.4}", spent - before) } else { String::new() },
    );
    let (input, output) = turn.tokens;
    let boundary = timeline.limits.iter().find(|limit| limit.turn == Some(turn.number));
    html! {
        summary { @if let Some(nth) = again { (badge(nth)) } " " (safe(&summary)) }
        @for (from, to, failed) in &turn.attempts {
            p.soft {
                "model: " (failed.as_deref().unwrap_or("answered"))
                " after " (format::ms(to - from)) " (at " (format::ms(*from)) ")"
            }
        }
        @if !turn.finish.is_empty() {
            p.soft {
                "finish " code { (safe(&turn.finish)) } ", " (input) " tokens in, " (output) " out"
            }
        }
        // Long texts are shortened, so that a page with many turns still loads on a phone.
        @if !turn.text.is_empty() { pre { (safe(&format::shorten(turn.text, 20_000))) } }
        @for tool in &turn.tools {
            p {
                code {
                    (safe(tool.name)) "(" (safe(&format::shorten(tool.arguments, 2_000))) ")"
                }
                " " (safe(tool.status)) " · "
                @match tool.to {
                    Some(to) => (format::ms(to - tool.from)),
                    None => "did not end",
                }
            }
            pre { (safe(&format::shorten(tool.content, 20_000))) }
        }
        @for told in &turn.told { (paragraph("warn", &format!("message to the model: {told}"))) }
        @if let Some(boundary) = boundary {
            p.soft { "limits before this turn: " (safe(&format::limits(boundary))) }
        }
    }
}

/// Returns the letter of a repeat in its colour.
fn badge(nth: usize) -> Markup {
    html! {
        span.badge style={ "background:" (COLORS[nth % COLORS.len()]) } { (format::letter(nth)) }
    }
}
