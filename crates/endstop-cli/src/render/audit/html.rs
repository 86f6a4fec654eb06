//! The HTML page of an audit, self-contained: totals, charts, and the worst sessions.

use super::format;
use super::svg::svg;
use crate::recorded::audit::Found;
use crate::render::amounts::{count, thousands};
use crate::render::html::{END, begin, escape};
use endstop_trajectory::audit::Session;
use std::fmt::Write as _;

/// Builds the page.
pub(crate) fn page(found: &Found) -> String {
    let audit = &found.audit;
    let title = format!("{} audited", count(audit.sessions, "session"));
    let mut out = begin(&title);
    let _ = write!(out, "<section><h1>{}</h1>", escape(&title));
    let mut said = |class: &str, line: &str| {
        let _ = write!(out, "<p class=\"{class}\">{}</p>", escape(line));
    };
    if audit.sessions > 0 {
        said("soft", &format::which(found));
        said("", &format::all(found));
        let class = |found: u64| match found {
            1.. => "warn",
            // Green only if the results were recorded: unknown is not good.
            0 if audit.lacking_results > 0 => "",
            0 => "good",
        };
        said(class(audit.loops), &format::loops(found));
        said(class(audit.signs.sessions), &format::signs(found));
        said("", &format::limits(found));
        if let Some(line) = format::lacking(found) {
            said("warn", &line);
        }
    } else {
        said("warn", "No sessions found.");
    }
    out.push_str("</section>\n");
    if !found.looked.is_empty() {
        looked(&mut out, found);
    }
    if audit.sessions > 0 {
        let _ = writeln!(
            out,
            "<section><h2>How they ended, and where the money went</h2><div class=\"wide\">{}</div><div class=\"narrow\">{}</div></section>",
            svg(found, 1000.0),
            svg(found, 380.0)
        );
        models(&mut out, found);
    }
    if !audit.worst.is_empty() {
        let _ = write!(
            out,
            "<section><h2>The worst {} of {} sessions with problems</h2>",
            audit.worst.len(),
            thousands(audit.wrong)
        );
        for session in &audit.worst {
            one(&mut out, session);
        }
        out.push_str("</section>\n");
    }
    figures(&mut out, found);
    out.push_str(END);
    out
}

/// Adds the notes on the figures.
fn figures(out: &mut String, found: &Found) {
    out.push_str("<section><h2>Notes on the figures</h2>");
    let mut said = |line: &str| {
        let _ = write!(out, "<p class=\"soft\">{}</p>", escape(line));
    };
    said(format::source(found));
    for line in format::unpriced(found).iter().chain(&format::reading(found)) {
        said(line);
    }
    for (sign, meaning) in format::SIGNS {
        said(&format!("{sign} {meaning}"));
    }
    out.push_str("</section>\n");
}

fn looked(out: &mut String, found: &Found) {
    out.push_str("<section><h2>Folders searched</h2>");
    for place in &found.looked {
        let what = if place.exists {
            format!("{} in {}", count(place.sessions, "session"), count(place.files, "file"))
        } else {
            "folder not found".to_owned()
        };
        let _ = write!(
            out,
            "<p>{} <code>{}</code> {what}</p>",
            escape(place.agent),
            escape(&place.folder)
        );
    }
    out.push_str("</section>\n");
}

fn models(out: &mut String, found: &Found) {
    out.push_str("<section><h2>By model</h2>");
    let mut models: Vec<_> = found.audit.models.iter().collect();
    models.sort_by_key(|(_, spent)| std::cmp::Reverse((spent.usd.0, spent.tokens())));
    // The most expensive models first; the others would only lengthen the page.
    for (name, spent) in models.into_iter().take(30) {
        let _ =
            write!(out, "<p><code>{}</code> {}</p>", escape(name), escape(&format::spent(spent)));
    }
    out.push_str("</section>\n");
}

/// Adds one of the worst sessions.
fn one(out: &mut String, session: &Session) {
    let at = session.at.map_or_else(String::new, |at| format!(":{at}"));
    let _ = write!(
        out,
        "<details><summary>{}</summary><p><code>{}{at}</code></p>",
        escape(&format::head(session)),
        escape(&session.file)
    );
    let mut said = |class: &str, line: &str| {
        let _ = write!(out, "<p class=\"{class}\">{}</p>", escape(line));
    };
    if !session.task.is_empty() {
        said("soft", &format!("task: {}", session.task));
    }
    said(if session.ended.how.is_without_answer() { "bad" } else { "" }, &format::ended(session));
    if let Some(sign) = &session.sign {
        said("warn", &format::sign(sign));
    }
    // Bounded, because one session may have a great number of loops and stops.
    for one in session.loops.iter().take(20) {
        said("warn", &format::looped(one));
    }
    for stop in session.stops.iter().take(20) {
        said("", &format::stop(stop));
    }
    if let Some(advice) = format::advice(session) {
        said("good", &advice);
    }
    out.push_str("</details>");
}
