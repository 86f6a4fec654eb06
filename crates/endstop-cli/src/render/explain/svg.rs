//! The chart of a run over time, as SVG: model calls, tools, tokens, cost, and the use of the limit
//! that ended the run.

use super::format;
use super::timeline::Timeline;
use super::turns::Turn;
use crate::render::html::escaper;
use endstop::core::Limit;
use endstop_report::chart::Canvas;
use std::fmt::Write as _;

/// The colours of repeats; white letters are readable on all of them.
pub(crate) const COLORS: [&str; 6] =
    ["#8e24aa", "#00695c", "#ad1457", "#4e342e", "#1565c0", "#558b2f"];

/// A chart over time, drawn from the top.
struct Chart<'e> {
    canvas: Canvas<'e>,
    left: f64,
    y: f64,
    end_ms: f64,
}

impl Chart<'_> {
    fn x(&self, ms: f64) -> f64 {
        let wide = self.canvas.width - self.left - 12.0;
        // The lower bound avoids a division by zero for a run without duration.
        self.left + wide * (ms / self.end_ms.max(0.001)).clamp(0.0, 1.0)
    }

    fn label(&mut self, name: &str, note: &str) {
        let (y, font) = (self.y + self.canvas.font, self.canvas.font);
        let (name, note) = (self.canvas.escape(name), self.canvas.escape(note));
        let _ = write!(
            self.canvas,
            "<text x=\"4\" y=\"{y:.1}\" font-size=\"{font}\" font-weight=\"600\">{name}<tspan font-weight=\"400\" dx=\"8\">{note}</tspan></text>"
        );
        self.y += font * 1.5;
    }

    fn bar(&mut self, from: f64, to: f64, height: f64, fill: &str, letter: &str, title: &str) {
        // Short calls get 3 pixels, because they would be invisible in a long run.
        let (x, y) = (self.x(from), self.y);
        let wide = (self.x(to) - x).max(3.0);
        self.canvas.titled(title, |canvas| {
            canvas.rect((x, y), (wide, height), &format!("rx=\"2\" fill=\"{fill}\""));
            // A label that does not fit is left out; the tooltip has the details.
            if wide > canvas.font * 0.8 * letter.len() as f64 && !letter.is_empty() {
                let at = (x + wide / 2.0, y + height * 0.72);
                canvas.text_of_size(at, canvas.font * 0.85, "middle", "fill:#fff", letter);
            }
        });
    }

    /// Draws a step curve from zero to the last value, and the limit as a dashed line.
    fn steps(&mut self, points: &[(f64, f64)], max: Option<f64>, color: &str) {
        let height = 60.0;
        // The limit counts too, so that its line is inside the chart.
        let most = points.iter().map(|point| point.1).fold(max.unwrap_or(0.0), f64::max);
        let (bottom, start, end) = (self.y + height, self.x(0.0), self.x(self.end_ms));
        let at = |value: f64| bottom - height * 0.92 * if most > 0.0 { value / most } else { 0.0 };
        let mut path = format!("M{start:.1} {:.1}", at(0.0));
        for (ms, value) in points {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(*ms), at(*value));
        }
        let _ = write!(path, "H{end:.1}");
        let area = format!("{path}V{bottom:.1}H{start:.1}Z");
        self.canvas.path(&area, &format!("fill=\"{color}\" opacity=\"0.15\""));
        let line = format!("fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\"");
        self.canvas.path(&path, &line);
        if let Some(max) = max {
            let style = "stroke=\"var(--bad)\" stroke-width=\"2\" stroke-dasharray=\"6 4\"";
            self.canvas.line((start, at(max)), (end, at(max)), style);
        }
        self.y = bottom + self.canvas.font * 0.9;
    }
}

/// Draws the chart with the given width: 1000 for a screen, 380 for a phone.
pub(crate) fn svg(timeline: &Timeline, turns: &[Turn<'_>], width: f64) -> String {
    let end_ms = timeline.end_ms().max(0.001);
    let escaper = escaper();
    let mut chart = Chart { canvas: Canvas::new(width, &escaper), left: 8.0, y: 6.0, end_ms };
    model(&mut chart, turns);
    tools(&mut chart, timeline, turns);
    tokens(&mut chart, turns);
    cost(&mut chart, timeline, turns);
    deciding(&mut chart, timeline);
    axis(&mut chart, timeline);
    let height = chart.y + 6.0;
    let said = match timeline.repeats.first() {
        Some(repeat) => format::repeated(repeat),
        None => "the run over time".to_owned(),
    };
    chart.canvas.finish(height, &said)
}

fn model(chart: &mut Chart<'_>, turns: &[Turn<'_>]) {
    let calls: usize = turns.iter().map(|turn| turn.attempts.len()).sum();
    chart.label("model", &format!("{calls} calls, numbered by turn"));
    for turn in turns {
        for (from, to, failed) in &turn.attempts {
            let title = format!(
                "turn {}: {} in {}",
                turn.number,
                failed.as_deref().unwrap_or("answered"),
                format::ms(to - from)
            );
            let fill = if failed.is_some() { "var(--bad)" } else { "#546e8f" };
            chart.bar(*from, *to, 24.0, fill, &turn.number.to_string(), &title);
        }
    }
    chart.y += 24.0 + chart.canvas.font * 0.6;
}

/// Draws the tool calls: repeats with a colour and a letter, the others in grey or red.
fn tools(chart: &mut Chart<'_>, timeline: &Timeline, turns: &[Turn<'_>]) {
    if turns.iter().all(|turn| turn.tools.is_empty()) {
        return;
    }
    let note = if timeline.repeats.is_empty() { "" } else { "repeats have a letter and a colour" };
    chart.label("tools", note);
    let top = chart.y;
    let mut lanes: Vec<f64> = Vec::new();
    for turn in turns {
        let again = timeline.repeats.iter().position(|repeat| repeat.turns.contains(&turn.number));
        for tool in &turn.tools {
            let to = tool.to.unwrap_or(chart.end_ms);
            let (from_x, to_x) = (chart.x(tool.from), chart.x(to).max(chart.x(tool.from) + 3.0));
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
            chart.y = top + 26.0 * lane as f64;
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
            chart.bar(tool.from, to, 22.0, fill, &letter, &title);
        }
    }
    chart.y = top + 26.0 * lanes.len().max(1) as f64 + chart.canvas.font * 0.4;
    for (nth, repeat) in timeline.repeats.iter().enumerate().take(3) {
        let Some(call) = repeat.calls.first() else { continue };
        let (first, last) = (repeat.turns.first(), repeat.turns.last());
        let more = if repeat.calls.len() > 1 { " …" } else { "" };
        let cost = repeat.cost_usd.map_or_else(String::new, |usd| format!(", ${usd:.4} wasted"));
        let most = if chart.canvas.width < 500.0 { 22 } else { 60 };
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
            let font = chart.canvas.font;
            chart.canvas.text((8.0, chart.y + font), "start", "fill:var(--ink)", &line);
            chart.y += font * 1.35;
        }
    }
    chart.y += chart.canvas.font * 0.5;
}

fn tokens(chart: &mut Chart<'_>, turns: &[Turn<'_>]) {
    let most = turns.iter().map(|turn| turn.tokens.0 + turn.tokens.1).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let (input, output) =
        turns.iter().fold((0u64, 0u64), |sum, turn| (sum.0 + turn.tokens.0, sum.1 + turn.tokens.1));
    let thousands = crate::render::amounts::thousands;
    chart.label("tokens", &format!("{} in, {} out", thousands(input), thousands(output)));
    let height = 44.0;
    let bottom = chart.y + height;
    for turn in turns {
        let Some((from, to, _)) = turn.attempts.last() else { continue };
        let x = chart.x(*from);
        let wide = (chart.x(*to) - x).clamp(4.0, 40.0);
        let tall = |tokens: u64| height * tokens as f64 / most as f64;
        let (input, output) = (tall(turn.tokens.0), tall(turn.tokens.1));
        let title = format!("turn {}: {} in, {} out", turn.number, turn.tokens.0, turn.tokens.1);
        chart.canvas.titled(&title, |canvas| {
            canvas.rect((x, bottom - input), (wide, input), "fill=\"var(--bar)\"");
            canvas.rect((x, bottom - input - output), (wide, output), "fill=\"#e08a00\"");
        });
    }
    chart.y = bottom + chart.canvas.font * 0.9;
}

fn cost(chart: &mut Chart<'_>, timeline: &Timeline, turns: &[Turn<'_>]) {
    let mut points: Vec<(f64, f64)> = turns
        .iter()
        .filter_map(|turn| Some((turn.attempts.last()?.1, turn.cost?)))
        .filter(|point| point.1 > 0.0)
        .collect();
    let total = timeline.ending.as_ref().map(|outcome| outcome.cost.to_usd());
    // The last point is the outcome's total, so that the curve reaches the final cost.
    points.extend(total.filter(|total| *total > 0.0).map(|total| (chart.end_ms, total)));
    let Some((_, last)) = points.last().copied() else { return };
    let max = timeline
        .limits
        .last()
        .and_then(|end| end.checks.iter().find(|check| check.limit == Limit::MaxBudgetUsd)?.max);
    let note = match max {
        Some(max) => format!("${last:.4} of ${max:.4}"),
        None => format!("${last:.4}"),
    };
    chart.label("cost", &note);
    chart.steps(&points, max, "#2e7d32");
}

/// Draws the use of the limit that ended the run, over time.
fn deciding(chart: &mut Chart<'_>, timeline: &Timeline) {
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
    chart.label(check.limit.name(), &format!("{}: ended the run", format::of(check)));
    chart.steps(&curve, check.max, "#c62828");
}

fn axis(chart: &mut Chart<'_>, timeline: &Timeline) {
    let y = chart.y;
    let (from, to) = (chart.x(0.0), chart.x(chart.end_ms));
    let font = chart.canvas.font * 0.9;
    chart.canvas.line((from, y), (to, y), "stroke=\"var(--soft)\"");
    for (part, anchor) in ["start", "middle", "end"].into_iter().enumerate() {
        let ms = chart.end_ms * part as f64 / 2.0;
        let at = (chart.x(ms), y + font * 1.3);
        chart.canvas.text_of_size(at, font, anchor, "", &format::ms(ms));
    }
    // Without an outcome the real end is unknown, so no end line is drawn.
    if timeline.ending.is_some() {
        chart.canvas.line((to, 4.0), (to, y), "stroke=\"var(--bad)\" stroke-width=\"2\"");
    }
    chart.y += font * 2.0;
}
