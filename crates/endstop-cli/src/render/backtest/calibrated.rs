//! Calibration results: thresholds that were chosen on half of the tasks, and their results on the
//! other half.

use super::format;
use crate::recorded::backtest::Report;
use crate::render::amounts::{count, thousands};
use endstop_trajectory::backtest::{Calibrated, DatasetFigures, share};

/// Returns the threshold that stops most failed runs among the tasks that were not used to choose
/// it.
pub(crate) fn best(report: &Report) -> Option<&Calibrated> {
    let chosen = report.whole()?.calibrated.iter().filter(|chosen| chosen.spec.is_some());
    chosen
        .filter(|chosen| chosen.test_failed_stopped > 0)
        // Of equals, prefer the one that stops fewer good runs, then the first. `rev`, because
        // `max_by_key` returns the last maximum.
        .rev()
        .max_by_key(|one| (one.test_failed_stopped, std::cmp::Reverse(one.test_good_stopped)))
}

/// Returns the lines of the report, with `true` for headings.
pub(crate) fn lines(report: &Report) -> Vec<(String, bool)> {
    let Some(alpha) = report.alpha else { return Vec::new() };
    let mut lines = vec![
        (String::new(), false),
        (format!("CALIBRATED: at most {} of good tasks stopped", format::share(alpha)), true),
    ];
    let about = "A task is good if one of its runs is good. The threshold is chosen on half of the tasks, and its results are counted on the other half; for new tasks of the same kind the bound holds on average.";
    lines.extend(format::wrapped(about, 96, "  ").into_iter().map(|line| (line, false)));
    for dataset in &report.figures.datasets {
        lines.push((String::new(), false));
        let name = format::fitted(&dataset.name, 24);
        lines.push((
            format!(
                "  {name:<24} {:>8} {:>27} {:>16} {:>16}",
                "chosen on", "good tasks stopped (95 %)", "good runs", "failed runs"
            ),
            true,
        ));
        for one in &dataset.calibrated {
            lines.push((line(one), false));
        }
        if let Some(said) = left_out(dataset) {
            lines.push((String::new(), false));
            lines.extend(format::wrapped(&said, 96, "  ").into_iter().map(|line| (line, false)));
        }
    }
    lines.push((String::new(), false));
    let said = match best(report) {
        Some(one) => format!(
            "{} stops the most failed runs among the tasks that were not used to choose it.",
            one.rule.as_deref().unwrap_or(&one.family)
        ),
        None => "None of them stops a failed run among the tasks that were not used to choose it."
            .to_owned(),
    };
    lines.extend(format::wrapped(&said, 96, "  ").into_iter().map(|line| (line, false)));
    lines
}

/// Describes the runs of a dataset that some of the rules cannot evaluate.
pub(crate) fn left_out(dataset: &DatasetFigures) -> Option<String> {
    let lacks: Vec<&Calibrated> =
        dataset.calibrated.iter().filter(|one| one.left_out > 0).collect();
    let most = lacks.iter().map(|one| one.left_out).max()?;
    let names: Vec<&str> = lacks.iter().map(|one| one.family.as_str()).collect();
    Some(format!(
        "{} of {} left out for {}: tool results were not recorded.",
        count(most, "run"),
        dataset.name,
        names.join(", ")
    ))
}

fn line(one: &Calibrated) -> String {
    let Some(rule) = &one.rule else {
        let why = one.refused.as_deref().unwrap_or("none");
        return format!("  {:<24} none: {why}", one.family);
    };
    let tasks = share(one.test_tasks_stopped, one.test_tasks);
    format!(
        "  {:<24} {:>9} {:>27} {:>16} {:>16}",
        format::fitted(rule, 24),
        count(one.calibration_tasks, "task"),
        format!("{} ({})", format::seen(&tasks), format::between(&tasks)),
        of(one.test_good_stopped, one.test_good),
        of(one.test_failed_stopped, one.test_failed),
    )
}

/// Formats `3 of 120`.
pub(crate) fn of(part: u64, all: u64) -> String {
    format!("{} of {}", thousands(part), thousands(all))
}
