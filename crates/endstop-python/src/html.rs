//! An outcome as an HTML table, for notebooks.

use endstop_core::{Billing, Category, Outcome};
use std::fmt::Write;

/// Characters of a value that are shown.
const MOST_SHOWN: usize = 600;

/// Writes an outcome as a table.
pub(crate) fn html(outcome: &Outcome) -> String {
    let colour = match outcome.category() {
        Category::Success => "#1a7f37",
        Category::Retryable => "#9a6700",
        Category::Capacity => "#bc4c00",
        Category::Fatal => "#cf222e",
    };
    let mut page = String::from("<table class=\"endstop-outcome\">");
    let mut row = |name: &str, value: &str, style: &str| {
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "<tr><th style=\"text-align:left\">{name}</th><td style=\"text-align:left{style}\">{}</td></tr>",
            escaped(value)
        );
    };
    let style = format!(";font-weight:bold;color:{colour}");
    row("termination", outcome.termination.as_str(), &style);
    row("category", outcome.category().as_str(), "");
    row("why", &outcome.decided_by.evidence, "");
    let also: Vec<&str> = outcome.also.iter().map(|one| one.as_str()).collect();
    if !also.is_empty() {
        row("also", &also.join(", "), "");
    }
    row("turns", &outcome.turns.to_string(), "");
    row("tool calls", &outcome.tool_calls.to_string(), "");
    row("tokens", &outcome.usage.total_tokens().to_string(), "");
    let cost = outcome.cost.to_string();
    let cost = match (outcome.cost_unknown, outcome.usage.billing) {
        (false, _) => cost,
        (true, Billing::AtMost) => format!("at most {cost}"),
        (true, _) => format!("at least {cost}"),
    };
    row("cost", &cost, "");
    row("time", &format!("{:.3} s", outcome.duration.as_secs_f64()), "");
    if let Some(answer) = outcome.answer() {
        let name = if outcome.is_success() { "answer" } else { "partial answer" };
        row(name, &answer, ";white-space:pre-wrap");
    }
    if let Some(diagnostic) = &outcome.error_diagnostic {
        row("diagnostic", diagnostic, ";white-space:pre-wrap");
    }
    page.push_str("</table>");
    page
}

/// Escapes text for HTML, cut to its first characters.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len().min(MOST_SHOWN));
    for (at, letter) in text.chars().enumerate() {
        if at == MOST_SHOWN {
            safe.push('…');
            break;
        }
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            // Control characters can change the direction of text, or hide it.
            letter if letter.is_control() || is_invisible(letter) => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

/// `true` for characters that change how their neighbours are shown.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
