//! The HTML page of an audit, self-contained: totals, charts, and the worst sessions.

use super::format;
use super::svg::svg;
use crate::recorded::audit::Found;
use crate::render::amounts::{count, thousands};
use crate::render::html::{paragraph, safe, section};
use endstop_trajectory::audit::Session;
use maud::{Markup, PreEscaped, html};

/// Builds the page.
pub(crate) fn page(found: &Found) -> String {
    let audit = &found.audit;
    let title = format!("{} audited", count(audit.sessions, "session"));
    let sections = html! {
        (section(&head(found, &title)))
        @if !found.looked.is_empty() { (section(&looked(found))) }
        @if audit.sessions > 0 {
            (section(&html! {
                h2 { "How they ended, and where the money went" }
                div.wide { (PreEscaped(svg(found, 1000.0))) }
                div.narrow { (PreEscaped(svg(found, 380.0))) }
            }))
            (section(&models(found)))
        }
        @if !audit.worst.is_empty() {
            (section(&html! {
                h2 {
                    "The worst " (audit.worst.len()) " of " (thousands(audit.wrong))
                    " sessions with problems"
                }
                @for session in &audit.worst { details { (one(session)) } }
            }))
        }
        (section(&figures(found)))
    };
    crate::render::html::page(&title, &sections)
}

fn head(found: &Found, title: &str) -> Markup {
    let audit = &found.audit;
    let class = |found: u64| match found {
        1.. => "warn",
        // Green only if the results were recorded: unknown is not good.
        0 if audit.lacking_results > 0 => "",
        0 => "good",
    };
    html! {
        h1 { (safe(title)) }
        @if audit.sessions > 0 {
            (paragraph("soft", &format::which(found)))
            (paragraph("", &format::all(found)))
            (paragraph(class(audit.loops), &format::loops(found)))
            (paragraph(class(audit.signs.sessions), &format::signs(found)))
            (paragraph("", &format::limits(found)))
            @if let Some(line) = format::lacking(found) { (paragraph("warn", &line)) }
        } @else {
            (paragraph("warn", "No sessions found."))
        }
    }
}

/// Returns the notes on the figures.
fn figures(found: &Found) -> Markup {
    html! {
        h2 { "Notes on the figures" }
        (paragraph("soft", format::source(found)))
        @for line in format::unpriced(found).iter().chain(&format::reading(found)) {
            (paragraph("soft", line))
        }
        @for (sign, meaning) in format::SIGNS { (paragraph("soft", &format!("{sign} {meaning}"))) }
    }
}

fn looked(found: &Found) -> Markup {
    html! {
        h2 { "Folders searched" }
        @for place in &found.looked {
            p {
                (safe(place.agent)) " " code { (safe(&place.folder)) } " "
                @if place.exists {
                    (count(place.sessions, "session")) " in " (count(place.files, "file"))
                } @else {
                    "folder not found"
                }
            }
        }
    }
}

fn models(found: &Found) -> Markup {
    let mut models: Vec<_> = found.audit.models.iter().collect();
    models.sort_by_key(|(_, spent)| std::cmp::Reverse((spent.usd.0, spent.tokens())));
    html! {
        h2 { "By model" }
        // The most expensive models first; the others would only lengthen the page.
        @for (name, spent) in models.into_iter().take(30) {
            p { code { (safe(name)) } " " (safe(&format::spent(spent))) }
        }
    }
}

/// Returns one of the worst sessions.
fn one(session: &Session) -> Markup {
    let ended = if session.ended.how.is_without_answer() { "bad" } else { "" };
    html! {
        summary { (safe(&format::head(session))) }
        p { code { (safe(&session.file)) @if let Some(at) = &session.at { ":" (at) } } }
        @if !session.task.is_empty() { (paragraph("soft", &format!("task: {}", session.task))) }
        (paragraph(ended, &format::ended(session)))
        @if let Some(sign) = &session.sign { (paragraph("warn", &format::sign(sign))) }
        // Bounded, because one session may have a great number of loops and stops.
        @for one in session.loops.iter().take(20) { (paragraph("warn", &format::looped(one))) }
        @for stop in session.stops.iter().take(20) { (paragraph("", &format::stop(stop))) }
        @if let Some(advice) = format::advice(session) { (paragraph("good", &advice)) }
    }
}
