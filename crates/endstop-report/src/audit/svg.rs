//! The charts of an audit, as SVG: how the sessions ended, and the cost of each group, as bars with
//! a legend.

use super::format;
use super::report::Report;
use crate::amounts::thousands;
use crate::html::Escaper;
use endstop_trajectory::Spent;
use endstop_trajectory::audit::{Audit, How};
use std::fmt::Write as _;

/// A segment of a bar.
struct Part {
    name: &'static str,
    color: &'static str,
    value: f64,
    shown: String,
}

/// Draws the charts with the given width: 1000 for a screen, 380 for a phone.
pub(crate) fn svg(report: &Report, width: f64, to: &Escaper) -> String {
    let audit = &report.audit;
    let font = if width < 500.0 { 13.0 } else { 15.0 };
    let mut out = String::new();
    let mut y = 4.0;
    let size = (width, font);
    let by = by_ending(audit, false);
    bar((&mut out, &mut y), size, "sessions, by how they ended", &by, to);
    // Without any price the bars show tokens, because dollars would all have length zero.
    let paid = audit.spent.usd.0 > 0;
    let what =
        if paid { "dollars, by how the session ended" } else { "tokens, by how the session ended" };
    bar((&mut out, &mut y), size, what, &by_ending(audit, true), to);
    let what = if paid { "dollars in question" } else { "tokens in question" };
    bar((&mut out, &mut y), size, what, &in_question(audit), to);
    format!(
        "<svg viewBox=\"0 0 {width} {y:.0}\" role=\"img\" aria-label=\"how sessions ended, and where the money went\">{out}</svg>"
    )
}

fn color(how: How) -> &'static str {
    match how {
        How::Answered => "#2e7d32",
        How::Stopped => "#1565c0",
        How::NoAnswer => "#c62828",
        How::Interrupted => "#8e24aa",
        How::Limit => "#b26a00",
        How::Cut => "#6d4c41",
        How::Failed => "#ad1457",
        _ => "#6b7684",
    }
}

fn by_ending(audit: &Audit, spent: bool) -> Vec<Part> {
    let groups = How::ALL.into_iter().filter_map(|how| Some((how, audit.ended.get(&how)?)));
    groups
        .map(|(how, group)| {
            let (value, shown) = match (spent, audit.spent.usd.0 > 0) {
                (false, _) => (group.sessions as f64, thousands(group.sessions)),
                (true, true) => (group.spent.usd.to_usd(), format::money(&group.spent)),
                (true, false) => (group.spent.tokens() as f64, thousands(group.spent.tokens())),
            };
            Part { name: format::how(how), color: color(how), value, shown }
        })
        .collect()
}

fn in_question(audit: &Audit) -> Vec<Part> {
    let (all, doubt) = (&audit.spent, &audit.in_question);
    let (values, shown) = if all.usd.0 > 0 {
        // Saturating, because counts that were merged from elsewhere may not add up.
        let fine = all.usd.saturating_sub(doubt.usd);
        let shown = [format::money(&Spent { usd: fine, ..*all }), format::money(doubt)];
        ([fine.to_usd(), doubt.usd.to_usd()], shown)
    } else {
        let fine = all.tokens().saturating_sub(doubt.tokens());
        ([fine as f64, doubt.tokens() as f64], [thousands(fine), thousands(doubt.tokens())])
    };
    let [fine, doubtful] = shown;
    vec![
        Part { name: "nothing found", color: "#2e7d32", value: values[0], shown: fine },
        Part {
            name: "after a loop, without an answer, or with a sign",
            color: "#c62828",
            value: values[1],
            shown: doubtful,
        },
    ]
}

fn bar(
    (out, y): (&mut String, &mut f64),
    (width, font): (f64, f64),
    title: &str,
    parts: &[Part],
    to: &Escaper,
) {
    let all: f64 = parts.iter().map(|part| part.value).sum();
    let _ = write!(
        out,
        "<text x=\"4\" y=\"{:.1}\" font-size=\"{font}\" font-weight=\"600\">{}</text>",
        *y + font,
        to.escape(title)
    );
    *y += font * 1.5;
    let mut x = 4.0;
    // Without a total there is nothing to divide by, and only the legend is drawn.
    for part in parts.iter().filter(|_| all > 0.0) {
        let wide = (width - 8.0) * part.value / all;
        let _ = write!(
            out,
            "<g><title>{}: {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"26\" fill=\"{}\"/></g>",
            to.escape(part.name),
            to.escape(&part.shown),
            part.color
        );
        x += wide;
    }
    *y += 26.0 + font * 0.5;
    let mut x = 4.0;
    for part in parts {
        let words = format!("{} {}", part.shown, part.name);
        // An estimate of the text width, because SVG has no text layout: 0.56 em for a letter.
        let wide = font * (1.6 + 0.56 * words.chars().count() as f64);
        // The first entry of a line stays in it even if it is too wide, because no other line has
        // more room.
        if x > 4.0 && x + wide > width {
            x = 4.0;
            *y += font * 1.4;
        }
        let _ = write!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{font}\">{}</text>",
            *y + font * 0.2,
            font * 0.8,
            font * 0.8,
            part.color,
            x + font * 1.1,
            *y + font * 0.9,
            to.escape(&words)
        );
        x += wide + font;
    }
    *y += font * 2.4;
}
