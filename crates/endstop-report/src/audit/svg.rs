//! The charts of an audit, as SVG: how the sessions ended, and the cost of each group, as bars with
//! a legend.

use super::format;
use super::report::Report;
use crate::amounts::thousands;
use crate::chart::{Canvas, text_width};
use crate::html::Escaper;
use endstop_trajectory::Spent;
use endstop_trajectory::audit::{Audit, How};

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
    let mut canvas = Canvas::new(width, to);
    let y = bar(&mut canvas, 4.0, "sessions, by how they ended", &by_ending(audit, false));
    // Without any price the bars show tokens, because dollars would all have length zero.
    let paid = audit.spent.usd.0 > 0;
    let what =
        if paid { "dollars, by how the session ended" } else { "tokens, by how the session ended" };
    let y = bar(&mut canvas, y, what, &by_ending(audit, true));
    let what = if paid { "dollars in question" } else { "tokens in question" };
    let y = bar(&mut canvas, y, what, &in_question(audit));
    canvas.finish(y, "how sessions ended, and where the money went")
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

/// Draws a bar from this height on, and returns the height at which the next one begins.
fn bar(canvas: &mut Canvas<'_>, top: f64, title: &str, parts: &[Part]) -> f64 {
    let (width, font) = (canvas.width, canvas.font);
    let all: f64 = parts.iter().map(|part| part.value).sum();
    canvas.text((4.0, top + font), "start", "font-weight:600", title);
    let mut y = top + font * 1.5;
    let mut x = 4.0;
    // Without a total there is nothing to divide by, and only the legend is drawn.
    for part in parts.iter().filter(|_| all > 0.0) {
        let wide = (width - 8.0) * part.value / all;
        canvas.titled(&format!("{}: {}", part.name, part.shown), |canvas| {
            canvas.rect((x, y), (wide, 26.0), &format!("fill=\"{}\"", part.color));
        });
        x += wide;
    }
    y += 26.0 + font * 0.5;
    let mut x = 4.0;
    for part in parts {
        let words = format!("{} {}", part.shown, part.name);
        let wide = font * 1.6 + text_width(&words, font);
        // The first entry of a line stays in it even if it is too wide, because no other line has
        // more room.
        if x > 4.0 && x + wide > width {
            x = 4.0;
            y += font * 1.4;
        }
        let side = font * 0.8;
        let style = format!("rx=\"2\" fill=\"{}\"", part.color);
        canvas.rect((x, y + font * 0.2), (side, side), &style);
        canvas.text((x + font * 1.1, y + font * 0.9), "start", "", &words);
        x += wide + font;
    }
    y + font * 2.4
}
