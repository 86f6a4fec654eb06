//! The chart of a comparison, as SVG: the differences of success and of the endings with their
//! intervals, around a line at 0.

use super::format;
use crate::render::html::escaper;
use endstop_report::chart::{Canvas, step};
use endstop_trajectory::compare::{Comparison, Measure, Unit};
use std::ops::Range;

/// Draws the chart with this width.
pub(super) fn chart(comparison: &Comparison, width: f64) -> String {
    let escaper = escaper();
    let mut canvas = Canvas::new(width, &escaper);
    let (narrow, font) = (canvas.is_narrow(), canvas.font);
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
    grid(&mut canvas, most, top..bottom, &x);
    for (nth, (name, measure)) in rows.iter().enumerate() {
        let y = top + row * (nth as f64 + if narrow { 0.7 } else { 0.5 });
        let (name_x, name_y, anchor) = if narrow {
            (left, y - font * 0.8, "start")
        } else {
            (left - 12.0, y + font * 0.35, "end")
        };
        canvas.text((name_x, name_y), anchor, "", name);
        bar(&mut canvas, measure, y, &x);
    }
    let height = bottom + font * 2.2;
    let said = format::headline(comparison).join(": ");
    canvas.finish(height, &said)
}

fn bar(canvas: &mut Canvas<'_>, measure: &Measure, y: f64, x: &dyn Fn(f64) -> f64) {
    let Some(found) = &measure.difference else { return };
    let colour = match format::meaning(measure) {
        "better" => "var(--good)",
        "worse" => "var(--bad)",
        "" => "var(--soft)",
        _ => "var(--warn)",
    };
    if let Some([low, high]) = found.interval {
        let (from, to, above) = (x(low), x(high), y - 5.0);
        let ends = format!("M{from:.1} {above:.1}v10M{to:.1} {above:.1}v10");
        let style = format!("stroke=\"{colour}\" stroke-width=\"2.5\" fill=\"none\"");
        canvas.path(&format!("M{from:.1} {y:.1}H{to:.1}{ends}"), &style);
    }
    let title = format::difference(measure.unit, found);
    canvas.dot((x(found.value), y), 5.5, &format!("fill=\"{colour}\""), &title);
}

fn grid(canvas: &mut Canvas<'_>, most: f64, height: Range<f64>, x: &dyn Fn(f64) -> f64) {
    let step = step(most, 3.5, &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5]);
    let last = (most / step).floor() as i32;
    for nth in -last..=last {
        let value = f64::from(nth) * step;
        let style = if nth == 0 {
            "stroke=\"var(--ink)\" stroke-width=\"1.5\""
        } else {
            "stroke=\"var(--line)\""
        };
        let at = x(value);
        canvas.line((at, height.start), (at, height.end), style);
        let sign = match nth {
            1.. => "+",
            0 => "",
            _ => "−",
        };
        let label = format!("{sign}{:.0}", (100.0 * value).abs());
        let below = height.end + canvas.font * 1.4;
        canvas.text((at, below), "middle", "fill:var(--soft)", &label);
    }
}
