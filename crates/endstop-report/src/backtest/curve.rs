//! Curves: a limit at several values, and what it loses and saves at each; as text, as JSON and as
//! SVG.

use super::format;
use super::report::{Curve, Report};
use crate::amounts::thousands;
use crate::chart::{Canvas, step};
use crate::html::Escaper;
use endstop_trajectory::backtest::{CandidateFigures, DatasetFigures};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The figures of a curve: each value with those of its candidate.
type Points<'c> = Vec<(&'c str, &'c CandidateFigures)>;

fn points<'c>(curve: &'c Curve, whole: &'c DatasetFigures) -> Points<'c> {
    let points = curve.points.iter();
    points.filter_map(|(value, name)| Some((value.as_str(), whole.candidate(name)?))).collect()
}

/// Returns the share of all dollars that a candidate is worth, if dollars are known.
fn dollars(one: &CandidateFigures, whole: &DatasetFigures) -> Option<f64> {
    // Runs that were free have no share, because dividing by their total gives infinity or NaN.
    Some(one.net_usd? / whole.usd.filter(|usd| *usd > 0.0)?)
}

/// Returns the lines of the text report; headings are marked.
pub(super) fn lines(report: &Report) -> Vec<(String, bool)> {
    let Some(whole) = report.whole() else { return Vec::new() };
    let mut out = Vec::new();
    for curve in &report.curves {
        out.push((String::new(), false));
        out.push((
            format!("{}: good runs lost, and what is saved", curve.limit.to_uppercase()),
            true,
        ));
        // A table of zeros would look as if the limit lost no run.
        if is_blind(curve, whole) {
            out.extend(lacking(curve, whole).map(|said| (format!("  {said}"), false)));
            continue;
        }
        let head = format!(
            "  {:>12} {:>15} {:>17} {:>11} {:>13}",
            curve.limit, "good runs lost", "95 %", "steps saved", "dollars saved"
        );
        out.push((head, false));
        for (value, one) in points(curve, whole) {
            let harm = one.harm();
            let usd = dollars(one, whole);
            let money = match (usd, one.net_usd) {
                (Some(share), Some(usd)) => {
                    format!("{} {}", format::usd(usd), format::share(share))
                }
                _ => "unknown".to_owned(),
            };
            let line = format!(
                "  {value:>12} {:>15} {:>17} {:>11} {money:>13}",
                format::seen(&harm),
                format::between(&harm),
                format::share(one.net)
            );
            out.push((line, false));
        }
        if let Some(said) = lacking(curve, whole) {
            out.push((format!("  {said}"), false));
        }
    }
    if report.curves.iter().any(|curve| !is_blind(curve, whole)) {
        out.push((format!("  {MEANING}"), false));
    }
    out
}

/// The explanation of the figures.
pub(super) const MEANING: &str = "Good runs lost: of all or of those with 4 steps or more, whichever is \
    more. Saved: less the steps or dollars of the good runs that are lost.";

/// States in how many runs a limit cannot be judged.
pub(super) fn lacking(curve: &Curve, whole: &DatasetFigures) -> Option<String> {
    // The first point stands for all, because every value of a limit needs the same data.
    let (_, one) = *points(curve, whole).first()?;
    (one.lacking > 0).then(|| {
        let needs = if curve.limit.ends_with("_usd") {
            "they record neither the dollars of each step, nor its tokens with a model that has a price"
        } else {
            "they do not record what it looks at"
        };
        let (lacking, runs) = (thousands(one.lacking), thousands(whole.runs));
        format!("In {lacking} of {runs} runs it cannot fire, because {needs}.")
    })
}

/// Returns `true` if the limit cannot fire in any run.
pub(super) fn is_blind(curve: &Curve, whole: &DatasetFigures) -> bool {
    points(curve, whole).iter().all(|(_, one)| one.lacking >= whole.runs)
}

/// Returns the curves as JSON.
pub(super) fn json(report: &Report) -> Value {
    let Some(whole) = report.whole() else { return json!([]) };
    let curves = report.curves.iter().map(|curve| {
        let points: Vec<Value> = points(curve, whole)
            .into_iter()
            .map(|(value, one)| {
                json!({"value": value, "candidate": one.name, "good_lost": one.harm(), "net": one.net,
                    "net_usd": one.net_usd, "net_usd_share": dollars(one, whole), "lacking": one.lacking})
            })
            .collect();
        json!({"limit": curve.limit, "points": points})
    });
    Value::Array(curves.collect())
}

/// The place of the drawing area.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    least: f64,
    most: f64,
    many: usize,
}

impl Area {
    /// The values are evenly spaced, because lists such as 0.1, 0.2, 0.5, 5 have no common scale.
    fn x(&self, nth: usize) -> f64 {
        let steps = self.many.saturating_sub(1).max(1) as f64;
        self.left + (self.right - self.left) * nth as f64 / steps
    }

    fn y(&self, share: f64) -> f64 {
        let place = (share.clamp(self.least, self.most) - self.least) / (self.most - self.least);
        self.bottom - (self.bottom - self.top) * place
    }

    fn line(&self, shares: &[f64]) -> String {
        let points = shares.iter().enumerate();
        let points = points.map(|(nth, share)| format!("{:.1},{:.1}", self.x(nth), self.y(*share)));
        points.collect::<Vec<_>>().join(" ")
    }
}

/// Draws a curve with this width.
pub(super) fn chart(curve: &Curve, whole: &DatasetFigures, width: f64, to: &Escaper) -> String {
    let points = points(curve, whole);
    if points.is_empty() {
        return String::new();
    }
    let mut canvas = Canvas::new(width, to);
    let font = canvas.font;
    let harms: Vec<_> = points.iter().map(|(_, one)| one.harm()).collect();
    let lost: Vec<f64> = harms.iter().map(|harm| harm.value.unwrap_or(0.0)).collect();
    let saved: Vec<f64> = points.iter().map(|(_, one)| one.net).collect();
    // One unknown value removes the line, because a line across a gap would look like data.
    let money: Option<Vec<f64>> = points.iter().map(|(_, one)| dollars(one, whole)).collect();
    let all = || lost.iter().chain(&saved).chain(money.iter().flatten()).copied();
    // At least 2 %, so that the axis does not magnify differences that mean nothing.
    let most = all().chain(harms.iter().map(|harm| harm.high)).fold(0.02, f64::max).min(1.0);
    // A limit that loses many good runs is worth less than nothing; far below, the curve is cut.
    let least = all().fold(0.0, f64::min).max(-most / 2.0);
    let area = Area {
        left: font * 3.6,
        right: width - font * 1.2,
        top: font * 4.6,
        bottom: font * 4.6 + if canvas.is_narrow() { 190.0 } else { 300.0 },
        least,
        most: most * 1.05,
        many: points.len(),
    };
    axes(&mut canvas, &area, &points);
    band(&mut canvas, &area, &harms.iter().map(|harm| (harm.low, harm.high)).collect::<Vec<_>>());
    let mut series = vec![("good runs lost, with its 95 % band", "var(--bad)", "", lost)];
    series.push(("steps saved", "var(--good)", "", saved));
    series.extend(money.map(|money| ("dollars saved", "var(--ink)", "6 4", money)));
    for (nth, (name, colour, dash, shares)) in series.iter().enumerate() {
        let _ = write!(
            canvas,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" stroke-dasharray=\"{dash}\"/>",
            area.line(shares)
        );
        let y = font * (1.2 + 1.25 * nth as f64);
        canvas.text((6.0, y), "start", &format!("fill:{colour};font-weight:600"), name);
    }
    for (nth, (value, one)) in points.iter().enumerate() {
        let title = format!("{}={value}: {}", curve.limit, format::effect(one, whole));
        let at = (area.x(nth), area.y(one.harm().value.unwrap_or(0.0)));
        canvas.dot(at, 4.0, "fill=\"var(--bad)\"", &title);
    }
    let below = (f64::midpoint(area.left, area.right), area.bottom + font * 3.0);
    canvas.text(below, "middle", "", &format!("{} →", curve.limit));
    let height = area.bottom + font * 3.6;
    let label = format!("good runs lost, and steps and dollars saved, by {}", curve.limit);
    canvas.finish(height, &label)
}

fn band(canvas: &mut Canvas<'_>, area: &Area, bounds: &[(f64, f64)]) {
    let at = |(nth, share): (usize, f64)| format!("{:.1},{:.1}", area.x(nth), area.y(share));
    // A polygon: the upper bounds from left to right, then the lower bounds back.
    let above = bounds.iter().enumerate().map(|(nth, (_, high))| at((nth, *high)));
    let below = bounds.iter().enumerate().rev().map(|(nth, (low, _))| at((nth, *low)));
    let points: Vec<String> = above.chain(below).collect();
    let _ = write!(
        canvas,
        "<polygon points=\"{}\" fill=\"var(--bad)\" opacity=\"0.16\"/>",
        points.join(" ")
    );
}

fn axes(canvas: &mut Canvas<'_>, area: &Area, points: &Points<'_>) {
    let font = canvas.font;
    let step = step(area.most - area.least, 7.0, &[0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5]);
    // Counted in whole steps, because repeatedly adding 0.1 would drift away from the labels.
    let (first, last) = ((area.least / step).ceil() as i32, (area.most / step).floor() as i32);
    for nth in first..=last {
        let share = f64::from(nth) * step;
        let y = area.y(share);
        let colour = if nth == 0 { "var(--soft)" } else { "var(--line)" };
        canvas.line((area.left, y), (area.right, y), &format!("stroke=\"{colour}\""));
        let at = (area.left - 6.0, y + font * 0.35);
        canvas.text(at, "end", "fill:var(--soft)", &format::share(share));
    }
    let mut free = 0.0;
    for (nth, (value, _)) in points.iter().enumerate() {
        let half = value.chars().count() as f64 * font * 0.32;
        // A value that would overlap the one before it is left out.
        if area.x(nth) - half >= free {
            let at = (area.x(nth), area.bottom + font * 1.5);
            canvas.text(at, "middle", "fill:var(--soft)", value);
            free = area.x(nth) + half + 6.0;
        }
    }
}
