//! The chart of a run over time, as SVG: model calls, tools, tokens, cost, and the use of the limit
//! that ended the run.

use super::format;
use super::timeline::Timeline;
use super::turns::Turn;
use crate::render::html::escape;
use endstop::core::Limit;
use std::fmt::Write as _;

/// The colours of repeats; white letters are readable on all of them.
pub(crate) const COLORS: [&str; 6] =
    ["#8e24aa", "#00695c", "#ad1457", "#4e342e", "#1565c0", "#558b2f"];

struct Canvas {
    out: String,
    width: f64,
    left: f64,
    y: f64,
    end_ms: f64,
    font: f64,
}

impl Canvas {
    fn x(&self, ms: f64) -> f64 {
        // The lower bound avoids a division by zero for a run without duration.
        self.left + (self.width - self.left - 12.0) * (ms / self.end_ms.max(0.001)).clamp(0.0, 1.0)
    }

    fn label(&mut self, name: &str, note: &str) {
        let (y, font) = (self.y + self.font, self.font);
        let _ = write!(
            self.out,
            "<text x=\"4\" y=\"{y:.1}\" font-size=\"{font}\" font-weight=\"600\">{}<tspan font-weight=\"400\" dx=\"8\">{}</tspan></text>",
            escape(name),
            escape(note)
        );
        self.y += font * 1.5;
    }

    fn bar(&mut self, from: f64, to: f64, height: f64, fill: &str, letter: &str, title: &str) {
        // Short calls get 3 pixels, because they would be invisible in a long run.
        let x = self.x(from);
        let wide = (self.x(to) - x).max(3.0);
        let y = self.y;
        let _ = write!(
            self.out,
            "<g><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{height}\" rx=\"2\" fill=\"{fill}\"/>",
            escape(title)
        );
        // A label that does not fit is left out; the tooltip has the details.
        if wide > self.font * 0.8 * letter.len() as f64 && !letter.is_empty() {
            let _ = write!(
                self.out,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{}\" text-anchor=\"middle\" style=\"fill:#fff\">{letter}</text>",
                x + wide / 2.0,
                y + height * 0.72,
                self.font * 0.85
            );
        }
        self.out.push_str("</g>");
    }

    /// Draws a step curve from zero to the last value, and the limit as a dashed line.
    fn steps(&mut self, points: &[(f64, f64)], max: Option<f64>, color: &str) {
        let height = 60.0;
        // The limit counts too, so that its line is inside the chart.
        let most = points.iter().map(|point| point.1).fold(max.unwrap_or(0.0), f64::max);
        let (bottom, end) = (self.y + height, self.end_ms);
        let at = |value: f64| bottom - height * 0.92 * if most > 0.0 { value / most } else { 0.0 };
        let mut path = format!("M{:.1} {:.1}", self.x(0.0), at(0.0));
        for (ms, value) in points {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(*ms), at(*value));
        }
        let _ = write!(path, "H{:.1}", self.x(end));
        let _ = write!(
            self.out,
            "<path d=\"{path}V{bottom:.1}H{:.1}Z\" fill=\"{color}\" opacity=\"0.15\"/><path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\"/>",
            self.x(0.0)
        );
        if let Some(max) = max {
            let (y, from, to) = (at(max), self.x(0.0), self.x(end));
            let _ = write!(
                self.out,
                "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"var(--bad)\" stroke-width=\"2\" stroke-dasharray=\"6 4\"/>"
            );
        }
        self.y = bottom + self.font * 0.9;
    }
}

/// Draws the chart with the given width: 1000 for a screen, 380 for a phone.
pub(crate) fn svg(timeline: &Timeline, turns: &[Turn<'_>], width: f64) -> String {
    let end_ms = timeline.end_ms().max(0.001);
    // The narrow chart is scaled less, so smaller letters look the same.
    let font = if width < 500.0 { 13.0 } else { 15.0 };
    let mut canvas = Canvas { out: String::new(), width, left: 8.0, y: 6.0, end_ms, font };
    model(&mut canvas, turns);
    tools(&mut canvas, timeline, turns);
    tokens(&mut canvas, turns);
    cost(&mut canvas, timeline, turns);
    deciding(&mut canvas, timeline);
    axis(&mut canvas, timeline);
    let height = canvas.y + 6.0;
    let said = match timeline.repeats.first() {
        Some(repeat) => format::repeated(repeat),
        None => "the run over time".to_owned(),
    };
    format!(
        "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">{}</svg>",
        escape(&said),
        canvas.out
    )
}

fn model(canvas: &mut Canvas, turns: &[Turn<'_>]) {
    let calls: usize = turns.iter().map(|turn| turn.attempts.len()).sum();
    canvas.label("model", &format!("{calls} calls, numbered by turn"));
    for turn in turns {
        for (from, to, failed) in &turn.attempts {
            let title = format!(
                "turn {}: {} in {}",
                turn.number,
                failed.as_deref().unwrap_or("answered"),
                format::ms(to - from)
            );
            let fill = if failed.is_some() { "var(--bad)" } else { "#546e8f" };
            canvas.bar(*from, *to, 24.0, fill, &turn.number.to_string(), &title);
        }
    }
    canvas.y += 24.0 + canvas.font * 0.6;
}

/// Draws the tool calls: repeats with a colour and a letter, the others in grey or red.
fn tools(canvas: &mut Canvas, timeline: &Timeline, turns: &[Turn<'_>]) {
    if turns.iter().all(|turn| turn.tools.is_empty()) {
        return;
    }
    let note = if timeline.repeats.is_empty() { "" } else { "repeats have a letter and a colour" };
    canvas.label("tools", note);
    let top = canvas.y;
    let mut lanes: Vec<f64> = Vec::new();
    for turn in turns {
        let again = timeline.repeats.iter().position(|repeat| repeat.turns.contains(&turn.number));
        for tool in &turn.tools {
            let to = tool.to.unwrap_or(canvas.end_ms);
            let (from_x, to_x) = (canvas.x(tool.from), canvas.x(to).max(canvas.x(tool.from) + 3.0));
            // Compared in pixels, because short calls are drawn wider than they lasted. Six lanes show
            // a typical set of parallel calls; further ones overlap in the last lane.
            let lane = match lanes.iter().position(|until| *until <= from_x) {
                Some(lane) => lane,
                None if lanes.len() < 6 => {
                    lanes.push(0.0);
                    lanes.len() - 1
                }
                None => lanes.len() - 1,
            };
            lanes[lane] = to_x;
            canvas.y = top + 26.0 * lane as f64;
            let failed = !matches!(tool.status, "ok");
            let (fill, letter) = match again {
                Some(nth) => (COLORS[nth % COLORS.len()], format::letter(nth)),
                None if failed => ("var(--bad)", String::new()),
                None => ("#7d8a99", String::new()),
            };
            let status = if tool.status.is_empty() { "did not end" } else { tool.status };
            let title = format!(
                "turn {}: {}({}) {status} in {}: {}",
                turn.number,
                tool.name,
                format::shorten(tool.arguments, 120),
                format::ms(to - tool.from),
                format::shorten(tool.content, 200)
            );
            canvas.bar(tool.from, to, 22.0, fill, &letter, &title);
        }
    }
    canvas.y = top + 26.0 * lanes.len().max(1) as f64 + canvas.font * 0.4;
    for (nth, repeat) in timeline.repeats.iter().enumerate().take(3) {
        let Some(call) = repeat.calls.first() else { continue };
        let (first, last) = (repeat.turns.first(), repeat.turns.last());
        let more = if repeat.calls.len() > 1 { " …" } else { "" };
        let cost = repeat.cost_usd.map_or_else(String::new, |usd| format!(", ${usd:.4} wasted"));
        let most = if canvas.width < 500.0 { 22 } else { 60 };
        let words = [
            format!(
                "{} {}({}){more}",
                format::letter(nth),
                call.name,
                format::shorten(&call.arguments, most)
            ),
            format!(
                "same result in turns {}–{} ({}×){cost}",
                first.copied().unwrap_or(0),
                last.copied().unwrap_or(0),
                repeat.turns.len()
            ),
        ];
        for line in words {
            let (y, font) = (canvas.y + canvas.font, canvas.font);
            let _ = write!(
                canvas.out,
                "<text x=\"8\" y=\"{y:.1}\" font-size=\"{font}\" style=\"fill:{}\" stroke=\"none\"><tspan style=\"fill:var(--ink)\">{}</tspan></text>",
                COLORS[nth % COLORS.len()],
                escape(&line)
            );
            canvas.y += font * 1.35;
        }
    }
    canvas.y += canvas.font * 0.5;
}

fn tokens(canvas: &mut Canvas, turns: &[Turn<'_>]) {
    let most = turns.iter().map(|turn| turn.tokens.0 + turn.tokens.1).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let (input, output) =
        turns.iter().fold((0u64, 0u64), |sum, turn| (sum.0 + turn.tokens.0, sum.1 + turn.tokens.1));
    let thousands = crate::render::amounts::thousands;
    canvas.label("tokens", &format!("{} in, {} out", thousands(input), thousands(output)));
    let height = 44.0;
    let bottom = canvas.y + height;
    for turn in turns {
        let Some((from, to, _)) = turn.attempts.last() else { continue };
        let x = canvas.x(*from);
        let wide = (canvas.x(*to) - x).clamp(4.0, 40.0);
        let tall = |tokens: u64| height * tokens as f64 / most as f64;
        let (input, output) = (tall(turn.tokens.0), tall(turn.tokens.1));
        let _ = write!(
            canvas.out,
            "<g><title>turn {}: {} in, {} out</title><rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{input:.1}\" fill=\"var(--bar)\"/><rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{output:.1}\" fill=\"#e08a00\"/></g>",
            turn.number,
            turn.tokens.0,
            turn.tokens.1,
            bottom - input,
            bottom - input - output
        );
    }
    canvas.y = bottom + canvas.font * 0.9;
}

fn cost(canvas: &mut Canvas, timeline: &Timeline, turns: &[Turn<'_>]) {
    let mut points: Vec<(f64, f64)> = turns
        .iter()
        .filter_map(|turn| Some((turn.attempts.last()?.1, turn.cost?)))
        .filter(|point| point.1 > 0.0)
        .collect();
    let total = timeline.ending.as_ref().map(|outcome| outcome.cost.to_usd());
    // The last point is the outcome's total, so that the curve reaches the final cost.
    points.extend(total.filter(|total| *total > 0.0).map(|total| (canvas.end_ms, total)));
    let Some((_, last)) = points.last().copied() else { return };
    let max = timeline
        .limits
        .last()
        .and_then(|end| end.checks.iter().find(|check| check.limit == Limit::MaxBudgetUsd)?.max);
    let note = match max {
        Some(max) => format!("${last:.4} of ${max:.4}"),
        None => format!("${last:.4}"),
    };
    canvas.label("cost", &note);
    canvas.steps(&points, max, "#2e7d32");
}

/// Draws the use of the limit that ended the run, over time.
fn deciding(canvas: &mut Canvas, timeline: &Timeline) {
    let is_decided_by = |check: &&endstop::core::CheckState| timeline.is_decided_by(check.limit);
    let curve: Vec<(f64, f64)> = timeline
        .limits
        .iter()
        .filter_map(|at| {
            let check = at.checks.iter().find(is_decided_by)?;
            Some((at.at_ms, check.value))
        })
        .collect();
    let last = timeline.limits.last().and_then(|end| end.checks.iter().find(is_decided_by));
    // The cost has its own curve already.
    let last = last.filter(|check| check.limit != Limit::MaxBudgetUsd);
    let (Some(check), false) = (last, curve.is_empty()) else { return };
    canvas.label(check.limit.name(), &format!("{}: ended the run", format::of(check)));
    canvas.steps(&curve, check.max, "#c62828");
}

fn axis(canvas: &mut Canvas, timeline: &Timeline) {
    let y = canvas.y;
    let (from, to) = (canvas.x(0.0), canvas.x(canvas.end_ms));
    let font = canvas.font * 0.9;
    let _ = write!(
        canvas.out,
        "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"var(--soft)\"/>"
    );
    for part in 0..=2 {
        let ms = canvas.end_ms * f64::from(part) / 2.0;
        let (x, anchor) = (canvas.x(ms), ["start", "middle", "end"][part as usize]);
        let _ = write!(
            canvas.out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{font}\" text-anchor=\"{anchor}\">{}</text>",
            y + font * 1.3,
            escape(&format::ms(ms))
        );
    }
    let _ = write!(
        canvas.out,
        "<line x1=\"{to:.1}\" x2=\"{to:.1}\" y1=\"4\" y2=\"{y:.1}\" stroke=\"var(--bad)\" stroke-width=\"{}\"/>",
        // Without an outcome the real end is unknown, so no end line is drawn.
        if timeline.ending.is_some() { 2 } else { 0 }
    );
    canvas.y += font * 2.0;
}
