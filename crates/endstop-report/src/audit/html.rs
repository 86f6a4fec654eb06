//! The HTML page of an audit, self-contained: totals, charts, and the worst sessions.

use super::format;
use super::report::Report;
use super::svg::svg;
use crate::amounts::{count, thousands};
use crate::html::{Escaper, section};
use endstop_trajectory::audit::Session;
use maud::{Markup, PreEscaped, html};

/// Builds the page of an audit; `to` redacts and escapes what comes from files.
pub fn page(report: &Report, to: &Escaper) -> String {
    let audit = &report.audit;
    let title = format!("{} audited", count(audit.sessions, "session"));
    let sections = html! {
        (section(&head(report, &title, to)))
        @if !report.looked.is_empty() { (section(&looked(report, to))) }
        @if audit.sessions > 0 {
            (section(&html! {
                h2 { "How they ended, and where the money went" }
                div.wide { (PreEscaped(svg(report, 1000.0, to))) }
                div.narrow { (PreEscaped(svg(report, 380.0, to))) }
            }))
            @if audit.agents.len() > 1 { (section(&agents(report, to))) }
            (section(&models(report, to)))
        }
        @if !audit.worst.is_empty() {
            (section(&html! {
                h2 {
                    "The worst " (audit.worst.len()) " of " (thousands(audit.wrong))
                    " that ended wrongly, looped or claimed what did not happen"
                }
                @for session in &audit.worst { details { (one(session, to)) } }
            }))
        }
        (section(&figures(report, to)))
    };
    to.page(&title, &sections)
}

fn head(report: &Report, title: &str, to: &Escaper) -> Markup {
    let audit = &report.audit;
    let class = |found: u64| match found {
        1.. => "warn",
        // Green only if the results were recorded: unknown is not good.
        0 if audit.lacking_results > 0 => "",
        0 => "good",
    };
    html! {
        h1 { (to.safe(title)) }
        @if audit.sessions > 0 {
            (to.paragraph("", &format::verdict(report)))
            (to.paragraph("soft", &format::which(report)))
            (to.paragraph("", &format::all(report)))
            @if let Some(line) = format::outcomes(report) { (to.paragraph("", &line)) }
            (to.paragraph(class(audit.loops), &format::loops(report)))
            (to.paragraph(class(audit.signs.sessions), &format::signs(report)))
            (to.paragraph("", &format::limits(report)))
            @if let Some(line) = format::lacking(report) { (to.paragraph("warn", &line)) }
        } @else {
            (to.paragraph("warn", "No sessions found."))
        }
    }
}

/// Returns the notes on the figures.
fn figures(report: &Report, to: &Escaper) -> Markup {
    html! {
        h2 { "Notes on the figures" }
        (to.paragraph("soft", format::source(report)))
        @for line in format::unpriced(report).iter().chain(&format::reading(report)) {
            (to.paragraph("soft", line))
        }
        @for (sign, meaning) in format::SIGNS { (to.paragraph("soft", &format!("{sign} {meaning}"))) }
    }
}

fn looked(report: &Report, to: &Escaper) -> Markup {
    html! {
        h2 { "Folders searched" }
        @for place in &report.looked {
            p {
                (to.safe(place.agent)) " " code { (to.safe(&place.folder)) } " "
                @if place.exists {
                    (count(place.sessions, "session")) " in " (count(place.files, "file"))
                } @else {
                    "folder not found"
                }
            }
        }
    }
}

fn agents(report: &Report, to: &Escaper) -> Markup {
    html! {
        h2 { "By agent and model" }
        @for (name, group) in format::agents(report).into_iter().take(30) {
            p {
                code { (to.safe(name)) } " " (count(group.sessions, "session")) ", "
                (thousands(group.failed)) " failed, " (thousands(group.looped)) " with a loop, "
                (to.safe(&format::spent(&group.spent)))
            }
        }
    }
}

fn models(report: &Report, to: &Escaper) -> Markup {
    let mut models: Vec<_> = report.audit.models.iter().collect();
    models.sort_by_key(|(_, spent)| std::cmp::Reverse((spent.usd.0, spent.tokens())));
    html! {
        h2 { "By model" }
        // The most expensive models first; the others would only lengthen the page.
        @for (name, spent) in models.into_iter().take(30) {
            p { code { (to.safe(name)) } " " (to.safe(&format::spent(spent))) }
        }
    }
}

/// Returns one of the worst sessions.
fn one(session: &Session, to: &Escaper) -> Markup {
    let ended = if session.has_failed() { "bad" } else { "" };
    html! {
        summary { (to.safe(&format::head(session))) }
        p { code { (to.safe(&session.file)) @if let Some(at) = &session.at { ":" (at) } } }
        @if !session.task.is_empty() { (to.paragraph("soft", &format!("task: {}", session.task))) }
        (to.paragraph(ended, &format::ended(session)))
        @if let Some(sign) = &session.sign { (to.paragraph("warn", &format::sign(sign))) }
        // Bounded, because one session may have a great number of loops and stops.
        @for one in session.loops.iter().take(20) { (to.paragraph("warn", &format::looped(one))) }
        @for stop in session.stops.iter().take(20) { (to.paragraph("", &format::stop(stop))) }
        @if let Some(advice) = format::advice(session) { (to.paragraph("good", &advice)) }
    }
}
