//! The terminal report of a backtest: the verdict, the cost of a stop, the savings, and the problems of
//! reading.

use super::report::{Report, Strength};
use super::table::{Row, rows, shown};
use super::{calibrated, curve, findings, format, groups, setting};
use crate::amounts::{count, thousands};
use endstop_trajectory::backtest::{DatasetFigures, Figures};

/// Width of the name column, in characters.
const NAME: usize = 30;
/// Width of a line, in characters.
const WIDTH: usize = 98;

/// Maximum number of candidates for which missing data is reported.
const MOST_LACKING: usize = 10;

/// Returns the lines of the report, with the colours of a terminal if asked.
pub fn lines(report: &Report, colours: bool) -> Vec<String> {
    let paint = Paint(colours);
    let mut out = Vec::new();
    recommendation(&mut out, report, paint);
    out.push(String::new());
    out.push(summary(report));
    let painted = |(line, heading): (String, bool)| if heading { paint.bold(&line) } else { line };
    out.extend(groups::lines(report).into_iter().map(painted));
    out.extend(curve::lines(report).into_iter().map(painted));
    match report.whole() {
        Some(whole) => {
            let several = report.figures.datasets.len() > 1;
            let place = if several { " in all datasets" } else { "" };
            cost(&mut out, report, whole, place, paint);
            saved(&mut out, report, whole, place, paint);
            hints(&mut out, report, whole);
            if several {
                // The last dataset is the total, which was shown above.
                for dataset in report.figures.datasets.split_last().map_or(&[][..], |all| all.1) {
                    let place = format!(" in {}", format::fitted(&dataset.name, 40));
                    out.push(String::new());
                    out.push(paint.bold(&about(dataset)));
                    cost(&mut out, report, dataset, &place, paint);
                    saved(&mut out, report, dataset, &place, paint);
                }
            }
        }
        None => unjudged(&mut out, &report.figures),
    }
    out.extend(calibrated::lines(report).into_iter().map(painted));
    let findings = findings::lines(report);
    if !findings.is_empty() {
        out.push(String::new());
        out.push(paint.bold("NOT READ, OR UNUSUAL"));
        out.extend(findings.into_iter().map(|line| format!("  {line}")));
    }
    out
}

fn summary(report: &Report) -> String {
    // Of several datasets, the last one is their sum, and is not counted.
    let sets = report.figures.datasets.len();
    let sets = if sets > 1 { sets - 1 } else { sets };
    let Some(whole) = report.whole() else {
        return format!("{} read, none with an outcome.", count(report.census.runs(), "run"));
    };
    format!("{} in {}.", numbers(whole), count(sets as u64, "dataset"))
}

fn numbers(dataset: &DatasetFigures) -> String {
    format!(
        "{}: {} good, {} failed; {}",
        count(dataset.runs, "judged run"),
        thousands(dataset.succeeded),
        thousands(dataset.failed),
        count(dataset.steps, "step"),
    )
}

fn about(dataset: &DatasetFigures) -> String {
    format!("{}: {}", format::fitted(&dataset.name, 40), numbers(dataset))
}

fn named(row: &Row) -> String {
    let mark = if row.best.is_some() { "▸ " } else { "  " };
    format!("{mark}{:<NAME$}", format::fitted(&row.name, NAME))
}

fn cost(
    out: &mut Vec<String>,
    report: &Report,
    dataset: &DatasetFigures,
    place: &str,
    paint: Paint,
) {
    out.push(String::new());
    out.push(paint.bold(&format!("WHAT A STOP WOULD HAVE COST{place}: good runs stopped")));
    let all = format!("of all {}", thousands(dataset.succeeded));
    let long = format!("of {} with 4 steps or more", thousands(dataset.succeeded_4));
    out.push(paint.soft(&format!("  {:<NAME$} {all:>30} {long:>31}", "")));
    out.push(paint.soft(&format!(
        "  {:<NAME$} {:>6} {:>8} {:>14}  {:>6} {:>8} {:>14}",
        "", "runs", "share", "95 %", "runs", "share", "95 %"
    )));
    for row in rows(report, dataset) {
        let (good, good4) = (&row.good, &row.good4);
        let line = format!(
            "{} {:>6} {:>8} {:>14}  {:>6} {:>8} {:>14}",
            named(&row),
            good.count,
            good.share,
            good.between,
            good4.count,
            good4.share,
            good4.between
        );
        out.push(paint.row(&row, line.trim_end()));
    }
}

fn saved(
    out: &mut Vec<String>,
    report: &Report,
    dataset: &DatasetFigures,
    place: &str,
    paint: Paint,
) {
    out.push(String::new());
    out.push(paint.bold(&format!("WHAT IT WOULD HAVE SAVED{place}")));
    let failed = format!("of {} failed", thousands(dataset.failed));
    let steps = format!("of {} steps", format::short(dataset.steps));
    let pairs = "failed − good";
    // Columns without any known value are left out.
    let money = dataset.tokens.is_some() || dataset.usd.is_some();
    let spent = |tokens: &str, usd: &str| {
        if money { format!("{tokens:>7} {usd:>8} ") } else { String::new() }
    };
    out.push(paint.soft(&format!(
        "  {:<NAME$} {failed:>14} {steps:>16} {}{pairs:>18}",
        "",
        spent("tokens", "dollars")
    )));
    for row in rows(report, dataset) {
        let line = format!(
            "{} {:>7} {:>6} {:>9} {:>6} {}{:>18}",
            named(&row),
            row.failed.count,
            row.failed.share,
            row.steps,
            row.saved,
            spent(&row.tokens, &row.usd),
            row.paired
        );
        out.push(paint.row(&row, line.trim_end()));
    }
}

/// Adds the meaning of the columns, and the number of runs for which they are known.
fn hints(out: &mut Vec<String>, report: &Report, whole: &DatasetFigures) {
    let mut hints = Vec::new();
    hints.push(
        format!("failed − good: within tasks that have both ({} here), the percentage of failed runs stopped minus that of good runs, with its 95 % confidence interval.", thousands(whole.mixed_tasks)),
    );
    hints.push("Steps, tokens and dollars saved: those after the stops, less all of the good runs that have to be run again.".to_owned());
    if whole.runs_with_tokens < whole.runs {
        hints.push(format!(
            "Tokens cover {} of {}: the others do not record the usage of each step.",
            thousands(whole.runs_with_tokens),
            count(whole.runs, "run")
        ));
    }
    if whole.runs_with_usd < whole.runs {
        hints.push(format!(
            "Dollars cover {} of {}: the others have a step with neither a cost nor a model with a known price.",
            thousands(whole.runs_with_usd),
            count(whole.runs, "run")
        ));
    }
    hints.extend(groups::unpriced(report));
    let hidden = whole.candidates.len() - shown(report, whole).len();
    if hidden > 0 {
        hints.push(format!(
            "{} not shown, because another is better in both; --json and --report include all.",
            count(hidden as u64, "candidate")
        ));
    }
    if whole.tasks_left_out > 0 {
        hints.push(format!(
            "There are too many tasks to store all of them: {} are not part of the comparison within tasks, and the intervals and calibrations are estimates from a random part of the tasks. All other figures are exact.",
            count(whole.tasks_left_out, "run")
        ));
    }
    hints.extend(format::all_lacking(format::of_judged(whole), MOST_LACKING));
    out.push(String::new());
    for hint in hints {
        out.extend(format::wrapped(&hint, WIDTH - 2, "  "));
    }
}

/// Adds the figures of runs without an outcome, for which only the saved steps are known.
fn unjudged(out: &mut Vec<String>, figures: &Figures) {
    for dataset in &figures.unjudged {
        out.push(String::new());
        out.push(format!(
            "{}: {} without an outcome, {}; it is unknown whether these stops would have been right",
            format::fitted(&dataset.name, 40),
            count(dataset.runs, "run"),
            count(dataset.steps, "step")
        ));
        out.push(format!("  {:<NAME$} {:>12} {:>12}", "", "runs stopped", "steps saved"));
        for (name, stopped, steps) in &dataset.candidates {
            out.push(format!(
                "  {:<NAME$} {:>12} {:>12}",
                format::fitted(name, NAME),
                thousands(*stopped),
                format::saved_unjudged(dataset, name, *steps)
            ));
        }
        let hints = format::all_lacking(format::of_unjudged(dataset), MOST_LACKING);
        if !hints.is_empty() {
            out.push(String::new());
        }
        for hint in hints {
            out.extend(format::wrapped(&hint, WIDTH - 2, "  "));
        }
    }
}

/// Adds the verdict, which is one sentence, and then its reasons.
fn recommendation(out: &mut Vec<String>, report: &Report, paint: Paint) {
    let (Some(one), Some(whole)) = (report.recommended(), report.whole()) else {
        // Different headings, because more runs help in one of the cases only, and a rule for a model alone is
        // not one for all.
        let few = report.whole().is_some_and(|whole| !whole.has_enough_good_runs());
        let models: Vec<&str> = calibrated::chosen(report).map(calibrated::model).collect();
        out.push(paint.bold(&match (few, models.is_empty()) {
            (_, false) => format!("A RULE ONLY FOR {}, AND NONE FOR ALL RUNS", models.join(", ")),
            (true, true) => "NOT ENOUGH RUNS TO SAY".to_owned(),
            (false, true) => "NOTHING IS RECOMMENDED".to_owned(),
        }));
        out.extend(format::wrapped(&format::refusal(report), WIDTH - 2, "  "));
        out.extend(format::wrapped(format::CANNOT_SAY, WIDTH - 2, "  "));
        return;
    };
    let most = format::share(report.max_harm);
    out.push(match report.strength() {
        Some(Strength::Set) => {
            paint.best(&format!("SET {}: at most {most} of good runs stopped", one.name))
        }
        // Yellow and not green, because a user who looks only at the colour must not take this for
        // a promise.
        _ => paint.warn(&format!(
            "TRY {}: not shown that it stops at most {most} of good runs",
            one.name
        )),
    });
    let effect = format::effect(one, whole);
    let mut said = vec![format!("{}.", format::upper(&effect))];
    said.extend(format::doubts(report, one, whole));
    said.push(format::CANNOT_SAY.to_owned());
    for text in said {
        out.extend(format::wrapped(&text, WIDTH - 2, "  "));
    }
    if let Some(lines) = setting::snippet(report) {
        out.push(String::new());
        out.extend(lines.lines().map(|line| format!("    {line}").trim_end().to_owned()));
    }
}

/// Colours for a terminal.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    fn soft(self, text: &str) -> String {
        self.with("2", text.trim_end())
    }

    fn best(self, text: &str) -> String {
        self.with("1;32", text)
    }

    fn warn(self, text: &str) -> String {
        self.with("1;33", text)
    }

    fn row(self, row: &Row, line: &str) -> String {
        match row.best {
            Some(Strength::Set) => self.best(line),
            Some(Strength::Try) => self.warn(line),
            None if row.baseline => self.soft(line),
            None if row.harms => self.with("31", line),
            None => line.to_owned(),
        }
    }
}
