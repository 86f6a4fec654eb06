//! The HTML page of a comparison of runs, self-contained: the endings and costs, the turns of each run
//! on one line, and the turn in which they diverge, side by side.

use super::format::{COLUMNS, branch, cells, decided, sentence};
use super::path::{Path, Step};
use super::{Comparison, Pair};
use crate::render::html::{paragraph, safe, section};
use crate::visible::shorten;
use endstop::Category;
use maud::{Markup, html};

/// Number of turns in a line; more would not be seen.
const MOST_TURNS: u64 = 400;

/// Builds the page.
pub(crate) fn page(compared: &Comparison) -> String {
    let problems = compared.runs.iter().flat_map(|run| &run.problems);
    let sections = html! {
        (section(&head(compared)))
        (section(&lines(compared)))
        @for pair in &compared.pairs { (section(&one_pair(compared, pair))) }
        @for problem in problems { (section(&paragraph("bad", &format!("⚠ {problem}")))) }
    };
    crate::render::html::page(&format!("{} runs compared", compared.runs.len()), &sections)
}

fn class(path: &Path) -> &'static str {
    let Some(ending) = &path.timeline.ending else { return "soft" };
    match ending.category() {
        Category::Success if ending.verified == Some(false) => "bad",
        Category::Success => "good",
        Category::Fatal => "bad",
        _ => "warn",
    }
}

fn head(compared: &Comparison) -> Markup {
    html! {
        h1 { (compared.runs.len()) " runs compared" }
        @for pair in &compared.pairs { (paragraph("", &format!("{}.", sentence(compared, pair)))) }
        div.scroll {
            table {
                thead { tr { th { "run" } @for column in COLUMNS { th { (column) } } } }
                tbody {
                    @for (nth, run) in compared.runs.iter().enumerate() {
                        @let [ended, rest @ ..] = cells(run);
                        tr {
                            td { b { (Comparison::letter(nth)) } " " code { (safe(&shorten(&run.name, 80))) } }
                            td { span class=(class(run)) { (safe(&ended)) } }
                            @for cell in &rest { td { (safe(cell)) } }
                        }
                    }
                }
            }
        }
        @for (nth, run) in compared.runs.iter().enumerate() {
            @let letter = Comparison::letter(nth);
            @if let Some(why) = decided(run) { (paragraph("soft", &format!("{letter}: {why}"))) }
            @if let Some(from) = branch(run) { (paragraph("soft", &format!("{letter}: {from}"))) }
        }
    }
}

/// Draws a box for each turn; those that the run has in common with the first one are pale.
fn lines(compared: &Comparison) -> Markup {
    let common = |nth: usize| match nth {
        0 => compared.pairs.iter().map(|pair| pair.same).min().unwrap_or(0),
        nth => compared.pairs[nth - 1].same,
    };
    html! {
        h2 { "Turns" }
        @for (nth, run) in compared.runs.iter().enumerate() {
            div.lane {
                b { (Comparison::letter(nth)) }
                span {
                    @for turn in 1..=run.last().min(MOST_TURNS) {
                        @let title = turn_title(turn, run.at(turn));
                        i.same[turn <= common(nth)] title=(safe(&title)) {}
                    }
                    @if run.last() > MOST_TURNS { " … " (run.last()) " turns" }
                    " " span class=(class(run)) { (safe(&cells(run)[0])) }
                }
            }
        }
        p.soft { "Each box is a turn. Pale ones are those that a run has in common with A, and A with all others." }
    }
}

fn turn_title(turn: u64, step: Option<&Step>) -> String {
    let Some(step) = step else { return format!("turn {turn}: not known") };
    let calls: Vec<&str> = step.calls.iter().map(|call| call.name.as_str()).collect();
    let what =
        if calls.is_empty() { shorten(&step.text, 80) } else { shorten(&calls.join(", "), 80) };
    format!("turn {turn}: {what}")
}

fn one_pair(compared: &Comparison, pair: &Pair) -> Markup {
    let runs = [0, pair.other];
    html! {
        h2 { (safe(&sentence(compared, pair))) }
        @if let Some(found) = &pair.diverge {
            div.pair {
                @for nth in runs {
                    div {
                        p { b { (Comparison::letter(nth)) } ", turn " (found.turn) }
                        (one_step(compared.runs[nth].at(found.turn)))
                    }
                }
            }
            @for nth in runs { (after(nth, &compared.runs[nth], found.turn)) }
        }
        @if pair.same > 0 { (before(&compared.runs[0], pair.same)) }
    }
}

/// Lists the turns of a run after the one in which it diverges.
fn after(nth: usize, run: &Path, turn: u64) -> Markup {
    let rest = run.last().saturating_sub(turn);
    html! {
        @if rest > 0 {
            details {
                summary { (Comparison::letter(nth)) " after that: " (rest) " more" }
                @for turn in turn + 1..=run.last() { p.soft { "turn " (turn) } (one_step(run.at(turn))) }
            }
        }
    }
}

fn before(run: &Path, same: u64) -> Markup {
    html! {
        details {
            summary { "the turns that both have" }
            @for turn in 1..=same { p.soft { "turn " (turn) } (one_step(run.at(turn))) }
        }
    }
}

fn one_step(step: Option<&Step>) -> Markup {
    let Some(step) = step else { return html! { p.soft { "no such turn" } } };
    html! {
        // Long texts are shortened, so that a page with many turns still loads on a phone.
        @if !step.text.is_empty() { pre { (safe(&shorten(&step.text, 20_000))) } }
        @for call in &step.calls {
            p { code { (safe(&call.name)) "(" (safe(&shorten(&call.arguments, 2_000))) ")" } " " (safe(&call.status)) }
            pre { (safe(&shorten(&call.result, 20_000))) }
        }
    }
}
