//! Calibration results: for each model the rule that keeps its promise in each kind of task, and for each
//! family of rules the threshold over all.

use super::format;
use super::report::Report;
use crate::amounts::{count, thousands};
use endstop_trajectory::backtest::{Calibrated, Calibration, DatasetFigures, share};

/// Returns the calibrations that chose a rule.
pub(crate) fn chosen(report: &Report) -> impl Iterator<Item = &Calibration> {
    report.figures.calibrations.iter().filter(|one| one.spec.is_some())
}

/// Returns the name of a calibration's model.
pub(crate) fn model(one: &Calibration) -> &str {
    one.model.as_deref().unwrap_or("runs without a model")
}

/// Describes the calibration of a model: the rule or the reason why there is none, its effect on
/// held-back tasks, and its groups.
pub(crate) fn about(one: &Calibration) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(rule) = &one.rule {
        said.push(format!(
            "{}: {rule}, worth {} of all steps ({} of {}).",
            model(one),
            format::share(one.net_steps as f64 / one.steps.max(1) as f64),
            format::signed(one.net_steps),
            thousands(one.steps),
        ));
    } else {
        let why = one.refused.as_deref().unwrap_or("none");
        said.push(format!("{}: no rule: {why}.", model(one)));
    }
    if one.rule.is_some() {
        let held = &one.test;
        let tasks = share(held.test_tasks_stopped, held.test_tasks);
        said.push(format!(
            "On held-back tasks: a good run stopped in {} good tasks, {}, {} failed runs, worth {} steps.",
            of(held.test_tasks_stopped, held.test_tasks),
            format::seen(&tasks),
            of(held.test_failed_stopped, held.test_failed),
            format::signed(held.test_net_steps),
        ));
    }
    let kind = |group: &endstop_trajectory::backtest::CalibratedGroup| match &group.kind {
        Some(kind) => format!("{} · {kind}", group.dataset),
        None => group.dataset.clone(),
    };
    let promised: Vec<String> = one
        .groups
        .iter()
        .filter(|group| group.promised)
        .map(|group| {
            format!("{} ({} good tasks)", kind(group), of(group.tasks_stopped, group.good_tasks))
        })
        .collect();
    if !promised.is_empty() {
        said.push(format!("Promised in {}.", promised.join(", ")));
    }
    let refused: Vec<String> = one
        .groups
        .iter()
        // `needed` is set only in groups with too few good tasks.
        .filter_map(|group| Some((group, group.needed?)))
        .map(|(group, needed)| format!("{} ({} of {needed})", kind(group), group.good_tasks))
        .collect();
    if !refused.is_empty() {
        said.push(format!("Too few good tasks for a promise in {}.", refused.join(", ")));
    }
    said
}

/// The meaning of the promise.
pub(crate) const PROMISE: &str = "A task is good if one of its runs is good. The promise holds for each kind of task on average over users; it is not a bound for one user. It does not hold for another model. Held back: each tenth of the tasks is judged by the rule that the other nine tenths choose. These rules may differ from the chosen one, so that no interval can be given for it.";

/// Returns the lines of the report, with `true` for headings.
pub(crate) fn lines(report: &Report) -> Vec<(String, bool)> {
    let Some(alpha) = report.alpha else { return Vec::new() };
    let mut lines = vec![
        (String::new(), false),
        (format!("CALIBRATED: at most {} of good tasks stopped", format::share(alpha)), true),
    ];
    let wrapped = |text: &str, indent: &str| {
        let lines = format::wrapped(text, 96, indent);
        lines.into_iter().map(|line| (line, false)).collect::<Vec<_>>()
    };
    lines.extend(wrapped(PROMISE, "  "));
    for one in &report.figures.calibrations {
        lines.push((String::new(), false));
        for (said, nth) in about(one).iter().zip(0..) {
            lines.extend(wrapped(said, if nth == 0 { "  " } else { "    " }));
        }
    }
    for dataset in &report.figures.datasets {
        lines.push((String::new(), false));
        let name = format::fitted(&dataset.name, 24);
        lines.push((
            format!(
                "  {name:<24} {:>8} {:>27} {:>16} {:>16}",
                "chosen on", "good tasks stopped", "good runs", "failed runs"
            ),
            true,
        ));
        for one in &dataset.calibrated {
            lines.push((line(one), false));
        }
        if let Some(said) = left_out(dataset) {
            lines.push((String::new(), false));
            lines.extend(wrapped(&said, "  "));
        }
    }
    lines
}

/// Describes the runs of a dataset that some of the rules cannot evaluate.
pub(crate) fn left_out(dataset: &DatasetFigures) -> Option<String> {
    let lacks: Vec<&Calibrated> =
        dataset.calibrated.iter().filter(|one| one.left_out > 0).collect();
    // One line names all of these rules, so it gives the largest of their numbers.
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
    let tasks = share(one.test.test_tasks_stopped, one.test.test_tasks);
    format!(
        "  {:<24} {:>9} {:>27} {:>16} {:>16}",
        format::fitted(rule, 24),
        count(one.calibration_tasks, "task"),
        format!(
            "{} ({})",
            of(one.test.test_tasks_stopped, one.test.test_tasks),
            format::seen(&tasks)
        ),
        of(one.test.test_good_stopped, one.test.test_good),
        of(one.test.test_failed_stopped, one.test.test_failed),
    )
}

/// Formats `3 of 120`.
pub(crate) fn of(part: u64, all: u64) -> String {
    format!("{} of {}", thousands(part), thousands(all))
}
