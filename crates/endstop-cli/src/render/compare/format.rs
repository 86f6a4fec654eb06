//! Text shared by the page and the terminal report of a comparison.

use crate::recorded::compare::Compared;
use crate::render::amounts::{count, thousands};
use endstop_report::backtest::usd;
use endstop_trajectory::compare::{Comparison, Difference, Measure, NoInterval, Pairing, Unit};

/// The conclusion of a comparison, which the report begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// B succeeds more often.
    Better,
    /// B succeeds less often.
    Worse,
    /// The runs show no difference in success.
    Unshown,
    /// Success is not recorded.
    Unknown,
}

impl Verdict {
    /// Returns the class of the heading of the page.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Verdict::Better => "good",
            Verdict::Worse => "bad",
            Verdict::Unshown | Verdict::Unknown => "warn",
        }
    }

    /// Returns the name, as JSON spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verdict::Better => "b_succeeds_more",
            Verdict::Worse => "b_succeeds_less",
            Verdict::Unshown => "not_enough_runs",
            Verdict::Unknown => "success_not_recorded",
        }
    }
}

fn success(comparison: &Comparison) -> Option<&Difference> {
    comparison.measures.iter().find(|one| one.name == "success")?.difference.as_ref()
}

pub(crate) fn verdict(comparison: &Comparison) -> Verdict {
    match success(comparison) {
        None => Verdict::Unknown,
        Some(found) if found.is_above_zero() => Verdict::Better,
        Some(found) if found.is_below_zero() => Verdict::Worse,
        Some(_) => Verdict::Unshown,
    }
}

/// Returns the heading and the sentence below it.
pub(crate) fn headline(comparison: &Comparison) -> [String; 2] {
    let Some(found) = success(comparison) else {
        let what = "no run has a recorded outcome; --outcomes FILE states them";
        return ["Success is not recorded".to_owned(), what.to_owned()];
    };
    let shown = difference(Unit::Share, found);
    match verdict(comparison) {
        Verdict::Better => ["B succeeds more often".to_owned(), format!("by {shown}")],
        Verdict::Worse => ["B succeeds less often".to_owned(), format!("by {shown}")],
        Verdict::Unshown | Verdict::Unknown => {
            // Nothing differs and the range is narrow: that is an answer too.
            let reach = found.detectable.map_or_else(
                || "one task tells nothing about the others".to_owned(),
                |reach| {
                    format!(
                        "with {} a difference of {} points would be seen in four of five comparisons",
                        count(found.tasks, "task"),
                        tenth(100.0 * reach)
                    )
                },
            );
            let same = found.differing == 0;
            let heading = if same { "No run differs in success" } else { "Not enough runs to say" };
            [heading.to_owned(), format!("success: {shown}; {reach}")]
        }
    }
}

/// Describes what is compared.
pub(crate) fn sides(comparison: &Comparison) -> Vec<String> {
    let Comparison { a, b, runs, tasks, common_tasks, pairing, .. } = comparison;
    let mut lines = Vec::new();
    match pairing {
        Pairing::Run => lines.push(format!(
            "{} of {}, each compared with itself",
            count(runs[0], "run"),
            count(*common_tasks, "task")
        )),
        Pairing::Task | Pairing::None => {
            for (name, side, at) in [("A", a, 0), ("B", b, 1)] {
                let of = format!("{} of {}", count(runs[at], "run"), count(tasks[at], "task"));
                lines.push(format!("{name}: {side}: {of}"));
            }
        }
    }
    let only = [tasks[0] - (*common_tasks).min(tasks[0]), tasks[1] - (*common_tasks).min(tasks[1])];
    match pairing {
        Pairing::Task => lines.push(format!(
            "compared within {} that both have, each of which counts once; {} only in A and {} only in B are left out",
            count(*common_tasks, "task"),
            thousands(only[0]),
            thousands(only[1])
        )),
        Pairing::None => lines.push(
            "no task is in both sets, so that easy and hard tasks cannot be distinguished: the intervals \
             are wide, and a difference may be one of the tasks"
                .to_owned(),
        ),
        Pairing::Run => {}
    }
    let [no_a, no_b] = comparison.without_outcome;
    if no_a + no_b > 0 {
        let which = match pairing {
            Pairing::Run => count(no_a, "run"),
            _ => format!("{} of A and {} of B", count(no_a, "run"), thousands(no_b)),
        };
        lines.push(format!("{which} without a recorded outcome do not count for success"));
    }
    if comparison.left_out > 0 {
        lines.push(format!(
            "of more than 100,000 tasks a random part is compared: {} are left out",
            count(comparison.left_out, "run")
        ));
    }
    lines
}

/// Returns the heading of the means. Of two sets each task counts once, so that their success is not the
/// share of good runs.
pub(crate) fn means(comparison: &Comparison) -> &'static str {
    match comparison.pairing {
        Pairing::Run => "Mean of a run",
        Pairing::Task | Pairing::None => "Mean over tasks",
    }
}

/// Formats a mean.
pub(crate) fn value(unit: Unit, value: Option<f64>) -> String {
    let Some(value) = value else { return "not recorded".to_owned() };
    match unit {
        Unit::Share => format!("{} %", tenth(100.0 * value)),
        Unit::Steps => few(value),
        Unit::Tokens => thousands(value.round().max(0.0) as u64),
        Unit::Usd => usd(value),
    }
}

/// Formats a difference with its interval: `−12.6 points (−18.2 to −7.0)`.
pub(crate) fn difference(unit: Unit, found: &Difference) -> String {
    let (value, name) = match unit {
        Unit::Share => (signed(unit, found.value), " points"),
        _ => (signed(unit, found.value), ""),
    };
    match found.interval {
        Some([low, high]) => {
            format!("{value}{name} ({} to {})", signed(unit, low), signed(unit, high))
        }
        None => format!("{value}{name} ({})", refusal(found)),
    }
}

/// Describes why a difference has no interval.
fn refusal(found: &Difference) -> String {
    if found.differing == 0 {
        return "no task differs".to_owned();
    }
    match found.no_interval {
        Some(NoInterval::OneTask) => "no interval from one task".to_owned(),
        Some(NoInterval::FewTasks) => {
            format!("no interval: a side has fewer than {} tasks", Difference::LEAST)
        }
        Some(NoInterval::NoSpread) => {
            "no interval: each task differs by the same amount".to_owned()
        }
        Some(NoInterval::FewDiffer) | None => {
            let differ = count(found.differing, "task");
            let s = if found.differing == 1 { "s" } else { "" };
            format!("no interval: only {differ} differ{s}, {} have to", Difference::LEAST)
        }
    }
}

/// Formats a number with its sign.
fn signed(unit: Unit, value: f64) -> String {
    let size = value.abs();
    let text = match unit {
        Unit::Share => tenth(100.0 * size),
        Unit::Steps => few(size),
        Unit::Tokens => thousands(size.round() as u64),
        Unit::Usd => usd(size),
    };
    // A rounded zero has no sign.
    let zero = text.chars().all(|c| !c.is_ascii_digit() || c == '0');
    let sign = if zero {
        "±"
    } else if value < 0.0 {
        "−"
    } else {
        "+"
    };
    format!("{sign}{text}")
}

/// Formats a small number; below one with three decimals, because a rare stop moves a mean little.
fn few(value: f64) -> String {
    if value < 1.0 { format!("{value:.3}") } else { format!("{value:.2}") }
}

fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

/// Returns what the difference means: `better`, `worse`, `more`, `less`, or nothing if none is shown.
pub(crate) fn meaning(measure: &Measure) -> &'static str {
    let Some(found) = measure.difference.as_ref().filter(|found| found.is_shown()) else {
        return "";
    };
    match (measure.name.as_str(), found.is_above_zero()) {
        ("success", true) => "better",
        ("success", false) => "worse",
        (_, true) => "more",
        (_, false) => "less",
    }
}

/// Lists what could not be read.
pub(crate) fn problems(compared: &Compared) -> Vec<String> {
    let problems = compared.stats.problems.iter();
    problems
        .map(|(kind, found)| {
            let first = found.first.first().map_or("?", String::as_str);
            format!("not read ({}): {}, for example {first}", kind.as_str(), thousands(found.count))
        })
        .collect()
}

/// The heading of the list of differences.
pub(crate) fn examples(comparison: &Comparison) -> String {
    let what = if comparison.pairing == Pairing::Run { "run" } else { "task" };
    match comparison.pairing {
        Pairing::Run => {
            format!("{} that A and B stop differently", count(comparison.differing, what))
        }
        _ => format!("{} with another success", count(comparison.differing, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_sign_and_unit() {
        let mut found = Difference {
            value: -0.126,
            interval: Some([-0.182, -0.0701]),
            no_interval: None,
            detectable: Some(0.08),
            tasks: 148,
            differing: 30,
        };
        assert_eq!(difference(Unit::Share, &found), "−12.6 points (−18.2 to −7.0)");
        found.value = 0.0001;
        found.interval = None;
        found.differing = 0;
        assert_eq!(difference(Unit::Share, &found), "±0.0 points (no task differs)");
        found.differing = 1;
        found.no_interval = Some(NoInterval::FewDiffer);
        let few = "±0.000 (no interval: only 1 task differs, 10 have to)";
        assert_eq!(difference(Unit::Steps, &found), few);
        found.differing = 120;
        found.no_interval = Some(NoInterval::NoSpread);
        let same = "±0.000 (no interval: each task differs by the same amount)";
        assert_eq!(difference(Unit::Steps, &found), same);
        found.interval = Some([-1000.0, 2_345_678.4]);
        assert_eq!(difference(Unit::Tokens, &found), "±0 (−1,000 to +2,345,678)");
    }
}
