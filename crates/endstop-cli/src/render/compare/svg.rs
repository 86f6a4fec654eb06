//! The chart of a comparison, as SVG: the differences of success and of the endings with their
//! intervals, around a line at 0.

use super::format;
use crate::render::html::escape;
use endstop_trajectory::compare::{Comparison, Measure, Unit};
use std::fmt::Write as _;

/// Draws the chart with this width.
pub(super) fn chart(comparison: &Comparison, width: f64) -> String {
    let narrow = width < 600.0;
    let font = if narrow { 13.0 } else { 15.0 };
    let rows: Vec<(String, &Measure)> = comparison
        .measures
        .iter()
        .filter(|one| one.unit == Unit::Share)
        .map(|one| (one.name.clone(), one))
        .chain(comparison.endings.iter().map(|one| (format!("ended: {}", one.name), one)))
        .filter(|(_, one)| one.difference.is_some())
        .collect();
    // The name is above its bar on a narrow page, and left of it on a wide one.
    let (left, row) = if narrow { (16.0, 3.2 * font) } else { (270.0, 2.2 * font) };
    let right = width - 20.0;
    let bounds = rows
        .iter()
        .filter_map(|(_, one)| one.difference.as_ref())
        .flat_map(|found| found.interval.unwrap_or([found.value; 2]));
    let most = bounds.fold(0.05_f64, |most, bound| most.max(bound.abs())).min(1.0) * 1.05;
    let x = |value: f64| left + (right - left) * (value / most + 1.0) / 2.0;
    let top = font * 0.6;
    let bottom = top + row * rows.len() as f64;
    let mut out = String::new();
    grid(&mut out, most, (top, bottom), font, &x);
    for (nth, (name, measure)) in rows.iter().enumerate() {
        let y = top + row * (nth as f64 + if narrow { 0.7 } else { 0.5 });
        let (name_x, name_y, anchor) = if narrow {
            (left, y - font * 0.8, "start")
        } else {
            (left - 12.0, y + font * 0.35, "end")
        };
        text(&mut out, (name_x, name_y), font, anchor, "", name);
        bar(&mut out, measure, y, &x);
    }
    let height = bottom + font * 2.2;
    let said = format::headline(comparison).join(": ");
    format!(
        "<svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">{out}</svg>",
        escape(&said)
    )
}

fn bar(out: &mut String, measure: &Measure, y: f64, x: &dyn Fn(f64) -> f64) {
    let Some(found) = &measure.difference else { return };
    let colour = match format::meaning(measure) {
        "better" => "var(--good)",
        "worse" => "var(--bad)",
        "" => "var(--soft)",
        _ => "var(--warn)",
    };
    if let Some([low, high]) = found.interval {
        let (from, to) = (x(low), x(high));
        let _ = write!(
            out,
            "<path d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {:.1}v10M{to:.1} {:.1}v10\" stroke=\"{colour}\" stroke-width=\"2.5\" fill=\"none\"/>",
            y - 5.0,
            y - 5.0
        );
    }
    let _ = write!(
        out,
        "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5.5\" fill=\"{colour}\"><title>{}</title></circle>",
        x(found.value),
        escape(&format::difference(measure.unit, found))
    );
}

fn grid(out: &mut String, most: f64, (top, bottom): (f64, f64), font: f64, x: &dyn Fn(f64) -> f64) {
    let steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
    let step = steps.into_iter().find(|step| most / step <= 3.5).unwrap_or(0.5);
    let last = (most / step).floor() as i32;
    for nth in -last..=last {
        let value = f64::from(nth) * step;
        let style = if nth == 0 {
            "stroke=\"var(--ink)\" stroke-width=\"1.5\""
        } else {
            "stroke=\"var(--line)\""
        };
        let at = x(value);
        let _ = write!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{top:.1}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" {style}/>"
        );
        let sign = match nth {
            1.. => "+",
            0 => "",
            _ => "−",
        };
        let label = format!("{sign}{:.0}", (100.0 * value).abs());
        text(out, (at, bottom + font * 1.4), font, "middle", "fill:var(--soft)", &label);
    }
}

fn text(out: &mut String, at: (f64, f64), font: f64, anchor: &str, style: &str, text: &str) {
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{font}\" text-anchor=\"{anchor}\" style=\"{style}\">{}</text>",
        at.0,
        at.1,
        escape(text)
    );
}
