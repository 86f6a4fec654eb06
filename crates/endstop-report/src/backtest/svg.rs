//! The chart of a backtest, as SVG: the steps that each candidate saves against the good runs that
//! it stops, the Pareto front with confidence intervals, and the recommended candidate.
//!
//! The axis of the good runs is stretched near zero, because choices are made there: the first few
//! percent take half of it.

use super::report::{Report, Strength};
use super::{format, table};
use crate::chart::{Canvas, bold_width, step, text_width};
use crate::html::Escaper;
use endstop_trajectory::backtest::{CandidateFigures, Cap, DatasetFigures, ParetoPoint, Share};
use std::fmt::Write as _;

/// The share below which the axis is approximately linear, and above which it is approximately
/// logarithmic.
const STRETCH: f64 = 0.004;

/// The labelled positions of the axis.
const TICKS: [f64; 9] = [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// A drawing area with its axes.
struct Plot<'e> {
    canvas: Canvas<'e>,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The largest shares on the axes.
    most_harm: f64,
    most_saved: f64,
    /// The occupied rectangles: left, top, right, bottom.
    taken: Vec<[f64; 4]>,
}

impl Plot<'_> {
    fn x(&self, harm: f64) -> f64 {
        // Logarithmic, but finite at zero, at which the best candidates are.
        let at = |harm: f64| (1.0 + harm / STRETCH).ln();
        let share = at(harm.clamp(0.0, self.most_harm)) / at(self.most_harm);
        self.left + (self.right - self.left) * share
    }

    fn y(&self, saved: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * (saved / self.most_saved).clamp(0.0, 1.0)
    }

    fn is_free(&self, place: [f64; 4]) -> bool {
        // A name may rise a little above the drawing area, because the topmost points have no other
        // room.
        let inside = place[0] >= self.left
            && place[2] <= self.canvas.width - 4.0
            && place[1] >= self.top - self.canvas.font * 0.4
            && place[3] <= self.bottom;
        inside
            && self.taken.iter().all(|other| {
                place[2] < other[0]
                    || place[0] > other[2]
                    || place[3] < other[1]
                    || place[1] > other[3]
            })
    }

    /// Draws a name next to a point at the first free position, or no name if none is free.
    fn name(&mut self, x: f64, y: f64, style: &str, name: &str) {
        let bold = style.contains("font-weight");
        let tall = self.canvas.font;
        let wide = if bold { bold_width } else { text_width }(name, tall);
        // Below the point first, because the line of the front mostly runs above it; then ever
        // farther away.
        for (left, base) in [
            (x + 8.0, y + tall * 1.15),
            (x + 9.0, y + tall * 0.35),
            (x - wide - 9.0, y - tall * 0.6),
            (x + 9.0, y - tall * 0.7),
            (x - wide - 9.0, y + tall * 0.35),
            (x - wide - 9.0, y + tall * 1.2),
            (x - wide - 9.0, y + tall * 1.6),
            (x + 12.0, y + tall * 1.8),
            (x - wide - 9.0, y - tall * 1.4),
        ] {
            let place = [left, base - tall * 0.85, left + wide, base + tall * 0.25];
            if self.is_free(place) {
                self.taken.push(place);
                self.canvas.text((left, base), "start", style, name);
                return;
            }
        }
    }
}

/// Draws the chart with the given width: 1000 for a screen, 380 for a phone.
pub(crate) fn chart(report: &Report, dataset: &DatasetFigures, width: f64, to: &Escaper) -> String {
    let canvas = Canvas::new(width, to);
    let (narrow, font) = (canvas.is_narrow(), canvas.font);
    let best = report
        .recommended()
        .and_then(|one| dataset.candidates.iter().find(|other| other.name == one.name));
    let refusal = if best.is_some() { Vec::new() } else { refusal(report, width, font) };
    // Room for the lines above the drawing area, and for the titles of the axes.
    let above = if best.is_none() {
        refusal.len()
    } else if narrow {
        3
    } else {
        1
    };
    let head = font * (2.15 + 1.25 * above as f64);
    let height = if narrow { 430.0 } else { 520.0 };
    let front = dataset.pareto();
    let baseline = table::baseline(report, dataset);
    let [most_harm, most_saved] = ends_of_axes(dataset, baseline, best);
    let mut plot = Plot {
        canvas,
        left: font * 3.3,
        right: width - font * 1.3,
        top: head,
        bottom: height - font * 3.6,
        most_harm,
        most_saved,
        taken: Vec::new(),
    };
    axes(&mut plot, report, narrow);
    others(&mut plot, dataset, &front.iter().map(|point| point.name.as_str()).collect::<Vec<_>>());
    let points: Vec<(&str, f64, f64)> = front
        .iter()
        .map(|point| (point.name.as_str(), point.harm.value.unwrap_or(0.0), point.saved))
        .collect();
    // In this order, because later shapes cover earlier ones.
    front_line(&mut plot, &points);
    for point in front.iter().filter(|point| best.is_none_or(|one| one.name != point.name)) {
        front_point(&mut plot, point);
    }
    baselines(&mut plot, baseline);
    if let Some(one) = best {
        recommended(&mut plot, one, narrow, report.strength());
    }
    for (nth, line) in refusal.iter().enumerate() {
        let y = font * (1.1 + 1.25 * nth as f64);
        plot.canvas.text((6.0, y), "start", "fill:var(--warn);font-weight:600", line);
    }
    // Names come last, so that none takes the place of a point.
    for (name, harm, saved) in points {
        if best.is_none_or(|one| one.name != name) {
            let (x, y) = (plot.x(harm), plot.y(saved));
            plot.name(
                x,
                y,
                "fill:var(--soft)",
                &format::fitted(name, if narrow { 20 } else { 34 }),
            );
        }
    }
    let said = best.map_or_else(
        || "what each candidate saves over the good runs that it stops".to_owned(),
        |one| format::label(one).join(" "),
    );
    plot.canvas.finish(height, &said)
}

/// Returns the ends of the axes: the largest harm and the largest share of steps saved.
fn ends_of_axes(
    dataset: &DatasetFigures,
    baseline: &Cap,
    best: Option<&CandidateFigures>,
) -> [f64; 2] {
    let harm = |one: &CandidateFigures| one.harm().value.unwrap_or(0.0);
    let largest = dataset.candidates.iter().map(harm).fold(cap_harm(baseline), f64::max);
    // The recommended candidate also needs room for the upper end of its interval.
    let largest = best.map_or(largest, |one| largest.max(one.harm().high));
    // At least 2 %, so that the axis does not magnify differences that mean nothing.
    let most_harm = TICKS.into_iter().find(|tick| *tick >= largest.max(0.02)).unwrap_or(1.0);
    let saved = dataset.candidates.iter().map(|one| one.net);
    // Some space above the highest point, for its name.
    [most_harm, (saved.fold(baseline.net, f64::max) * 1.08).clamp(0.05, 1.0)]
}

/// Draws a candidate of the front, with the interval of its harm.
fn front_point(plot: &mut Plot<'_>, point: &ParetoPoint) {
    let (x, y) = (plot.x(point.harm.value.unwrap_or(0.0)), plot.y(point.saved));
    let style = "stroke=\"var(--bar)\" stroke-width=\"1.5\" opacity=\"0.7\"";
    whisker(plot, &point.harm, y, style);
    let title = format!(
        "{}: saves {}, stops {} of good runs (95 %: {})",
        point.name,
        format::share(point.saved),
        format::seen(&point.harm),
        format::between(&point.harm)
    );
    plot.canvas.dot((x, y), 5.0, "fill=\"var(--ink)\"", &title);
    plot.taken.push([x - 6.0, y - 6.0, x + 6.0, y + 6.0]);
}

/// Returns the reason why nothing is recommended, in lines of bold text.
fn refusal(report: &Report, width: f64, font: f64) -> Vec<String> {
    let why = format!("nothing is recommended: {}", format::refusal(report));
    let most = ((width - 12.0) / bold_width("n", font)) as usize;
    let mut lines = format::wrapped(&why, most, "");
    lines.truncate(4);
    lines
}

fn axes(plot: &mut Plot<'_>, report: &Report, narrow: bool) {
    let (left, right, top, bottom) = (plot.left, plot.right, plot.top, plot.bottom);
    let font = plot.canvas.font;
    // The area in which a candidate can be recommended.
    let allowed = plot.x(report.max_harm);
    let area = (allowed - left, bottom - top);
    plot.canvas.rect((left, top), area, "fill=\"var(--good)\" opacity=\"0.09\"");
    // At most six lines, so that the labels do not touch on a phone.
    let step = step(plot.most_saved, 6.0, &[0.01, 0.02, 0.05, 0.1, 0.2, 0.25]);
    let mut saved = 0.0;
    while saved <= plot.most_saved {
        let y = plot.y(saved);
        plot.canvas.line((left, y), (right, y), "stroke=\"var(--line)\"");
        plot.canvas.text(
            (left - 6.0, y + font * 0.35),
            "end",
            "fill:var(--soft)",
            &format::share(saved),
        );
        saved += step;
    }
    let mut free = 0.0;
    let most = plot.most_harm;
    for tick in TICKS.into_iter().filter(|tick| *tick <= most) {
        let x = plot.x(tick);
        plot.canvas.line((x, bottom), (x, bottom + 5.0), "stroke=\"var(--soft)\"");
        let text = format::share(tick);
        let long = text_width(&text, font);
        // The last number would leave the chart.
        let x = x.min(plot.canvas.width - long / 2.0 - 4.0);
        // A number that would overlap the one before it is left out.
        if x - long / 2.0 >= free {
            plot.canvas.text((x, bottom + font * 1.5), "middle", "fill:var(--soft)", &text);
            free = x + long / 2.0 + 6.0;
        }
    }
    plot.canvas.line((left, bottom), (right, bottom), "stroke=\"var(--soft)\"");
    let below = bottom + font * 3.0;
    let middle = f64::midpoint(left, right);
    plot.canvas.text((middle, below), "middle", "", if narrow { "good runs stopped, of all or of long ones →" } else { "share of good runs stopped: of all or of those with 4 steps or more, whichever is more →" });
    let over = if narrow { "↑ steps saved" } else { "↑ share of all steps saved" };
    plot.canvas.text((6.0, top - font * 0.7), "start", "", over);
    plot.canvas.line(
        (allowed, top),
        (allowed, bottom),
        "stroke=\"var(--bad)\" stroke-width=\"2\" stroke-dasharray=\"6 4\"",
    );
    // Names must not cover the line of the allowed harm.
    plot.taken.push([allowed - 2.0, top, allowed + 2.0, bottom]);
    let most = format!("at most {}", format::share(report.max_harm));
    let half = bold_width(&most, font) / 2.0;
    // Kept inside the chart, and then to the right of the axis title, which is on the same line.
    let at = allowed.clamp(left + half, right - half);
    let start = at.max(6.0 + text_width(over, font) + 14.0 + half);
    plot.canvas.text((start, top - font * 0.7), "middle", "fill:var(--bad);font-weight:600", &most);
}

/// Draws the candidates that another one beats in both figures.
fn others(plot: &mut Plot<'_>, dataset: &DatasetFigures, front: &[&str]) {
    for one in &dataset.candidates {
        // A candidate that saves nothing would cover the axis and the baseline that does nothing.
        if front.contains(&one.name.as_str()) || one.net_steps <= 0 {
            continue;
        }
        let at = (plot.x(one.harm().value.unwrap_or(0.0)), plot.y(one.net));
        let title = format::label(one).join(" ");
        plot.canvas.dot(at, 3.5, "fill=\"var(--bar)\" opacity=\"0.75\"", &title);
        plot.taken.push([at.0 - 4.0, at.1 - 4.0, at.0 + 4.0, at.1 + 4.0]);
    }
}

fn front_line(plot: &mut Plot<'_>, points: &[(&str, f64, f64)]) {
    let Some(first) = points.first() else { return };
    // A step line, because no candidate between two points of the front was tried.
    let mut path = format!("M{:.1} {:.1}", plot.x(first.1), plot.y(first.2));
    let mut before = (plot.x(first.1), plot.y(first.2));
    // In bounds, because `points` has a first element.
    for (_, harm, saved) in &points[1..] {
        let (x, y) = (plot.x(*harm), plot.y(*saved));
        let _ = write!(path, "H{x:.1}V{y:.1}");
        plot.taken.push([before.0, before.1 - 2.0, x, before.1 + 2.0]);
        plot.taken.push([x - 2.0, y, x + 2.0, before.1]);
        before = (x, y);
    }
    plot.canvas.path(&path, "fill=\"none\" stroke=\"var(--soft)\" stroke-width=\"2\"");
}

fn whisker(plot: &mut Plot<'_>, share: &Share, y: f64, style: &str) {
    let (from, to) = (plot.x(share.low), plot.x(share.high));
    plot.taken.push([from, y - 3.0, to, y + 3.0]);
    plot.canvas.line((from, y), (to, y), style);
    for x in [from, to] {
        plot.canvas.line((x, y - 4.0), (x, y + 4.0), style);
    }
}

/// Returns the share of good runs that a cap stops: of all or of long ones, whichever is higher.
fn cap_harm(cap: &Cap) -> f64 {
    let value = |share: &Share| share.value.unwrap_or(0.0);
    value(&cap.good_killed).max(value(&cap.good4_killed))
}

/// Draws the two baselines: a cap on turns, and no change.
fn baselines(plot: &mut Plot<'_>, cap: &Cap) {
    let (x, y) = (plot.x(cap_harm(cap)), plot.y(cap.net));
    let square = |plot: &mut Plot<'_>, x: f64, y: f64, title: &str| {
        plot.canvas.titled(title, |canvas| {
            let style = "fill=\"var(--card)\" stroke=\"var(--warn)\" stroke-width=\"2.5\"";
            canvas.rect((x - 5.0, y - 5.0), (10.0, 10.0), style);
        });
        plot.taken.push([x - 7.0, y - 7.0, x + 7.0, y + 7.0]);
    };
    let title = format!(
        "{}: saves {}, stops {} of good runs",
        table::cap_name(cap),
        format::share(cap.net),
        format::share(cap_harm(cap))
    );
    let (none_x, none_y) = (plot.x(0.0), plot.y(0.0));
    square(plot, none_x, none_y, "doing nothing: saves nothing, stops nothing");
    square(plot, x, y, &title);
    plot.name(x, y, "fill:var(--warn)", &format!("cap at {} turns", cap.turns));
    plot.name(none_x, none_y, "fill:var(--warn)", "doing nothing");
}

/// Draws the recommended point, with its meaning in words.
fn recommended(
    plot: &mut Plot<'_>,
    one: &CandidateFigures,
    narrow: bool,
    strength: Option<Strength>,
) {
    // Green only if the runs support the promise.
    let colour = if strength == Some(Strength::Set) { "var(--good)" } else { "var(--warn)" };
    let (x, y) = (plot.x(one.harm().value.unwrap_or(0.0)), plot.y(one.net));
    let font = plot.canvas.font;
    whisker(plot, &one.harm(), y, &format!("stroke=\"{colour}\" stroke-width=\"3\""));
    plot.canvas.dot(
        (x, y),
        9.0,
        &format!("fill=\"{colour}\" stroke=\"var(--card)\" stroke-width=\"2\""),
        &format::label(one).join(" "),
    );
    plot.taken.push([x - 10.0, y - 10.0, x + 10.0, y + 10.0]);
    let [name, saves, stops] = format::label(one);
    let bold = &*format!("fill:{colour};font-weight:700");
    if narrow {
        let most = ((plot.canvas.width - 12.0) / (font * 0.6)) as usize;
        let lines = [format!("● {}:", format::fitted(&name, most - 3)), saves, stops];
        for (nth, line) in lines.iter().enumerate() {
            plot.canvas.text((6.0, font * (1.1 + 1.25 * nth as f64)), "start", bold, line);
        }
    } else {
        let line = format!("● {}: {saves} {stops}", format::fitted(&name, 40));
        plot.canvas.text((6.0, font * 1.2), "start", bold, &line);
    }
    plot.name(x, y, bold, &format::fitted(&name, if narrow { 20 } else { 40 }));
}
