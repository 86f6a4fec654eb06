//! The HTML page of a backtest, self-contained: the chart first, then the recommendation, then the
//! tables.

use super::report::{Curve, Report, Strength};
use super::svg::chart;
use super::table::{Row, rows};
use super::{calibrated, curve, findings, format, groups, setting};
use crate::amounts::{count, thousands};
use crate::html::{Escaper, section};
use endstop_trajectory::backtest::{DatasetFigures, Unjudged};
use maud::{Markup, PreEscaped, html};

/// Builds the page of a backtest; `to` redacts and escapes what comes from files.
pub fn page(report: &Report, to: &Escaper) -> String {
    let findings = findings::lines(report);
    let sections = html! {
        (section(&head(report, to)))
        // First, because it was asked for: the candidates are only compared with it.
        @if let Some(alpha) = report.alpha { (section(&calibration(report, alpha, to))) }
        @if let Some(whole) = report.whole() {
            @for one in &report.curves { (section(&by_value(one, whole, to))) }
            (section(&html! {
                h2 { "What each candidate costs and saves" }
                div.wide { (PreEscaped(chart(report, whole, 1000.0, to))) }
                div.narrow { (PreEscaped(chart(report, whole, 380.0, to))) }
                p.soft {
                    "Each dot is a candidate; no other candidate is better in both than a large dot, "
                    "and the line joins the large dots. A horizontal bar is the 95 % confidence "
                    "interval. Long good runs have 4 steps or more. The green area shows what can be "
                    "recommended."
                }
            }))
            (section(&advice(report, to)))
            @if !groups::rows(report).is_empty() { (section(&by_group(report, to))) }
            // The total is the last dataset, and comes first on the page.
            @for dataset in report.figures.datasets.iter().rev() {
                (section(&table(report, dataset, to)))
            }
            (section(&notes(report, whole, to)))
        } @else {
            @if !groups::rows(report).is_empty() { (section(&by_group(report, to))) }
            @for dataset in &report.figures.unjudged { (section(&unjudged(dataset, to))) }
        }
        @if !findings.is_empty() {
            (section(&html! {
                h2 { "Not read, or unusual" }
                @for line in &findings {
                    (to.paragraph(if line.starts_with(' ') { "soft" } else { "" }, line.trim()))
                }
            }))
        }
    };
    to.page("Would other limits have been better?", &sections)
}

fn head(report: &Report, to: &Escaper) -> Markup {
    // Of several datasets, the last one is their sum, and is not counted.
    let sets = report.figures.datasets.len();
    let sets = if sets > 1 { sets - 1 } else { sets };
    html! {
        @if let (Some(one), Some(whole)) = (report.recommended(), report.whole()) {
            @if report.strength() == Some(Strength::Set) {
                h1.good { "Set " (to.safe(&one.name)) }
                p {
                    "To stop at most " (format::share(report.max_harm)) " of good runs: "
                    (to.safe(&format::effect(one, whole))) "."
                }
            } @else {
                h1.warn { "Try " (to.safe(&one.name)) }
                p {
                    "These runs do not show that it stops at most " (format::share(report.max_harm))
                    " of good runs; " (to.safe(&format::effect(one, whole))) "."
                }
            }
        } @else {
            h1.warn {
                @if report.whole().is_some_and(|whole| !whole.has_enough_good_runs()) {
                    "Not enough runs to say"
                } @else {
                    "Nothing is recommended"
                }
            }
            p { (to.safe(&format::upper(&format::refusal(report)))) "." }
        }
        @if report.figures.calibrations.iter().any(|one| one.rule.is_some()) {
            p { "This is about the candidates; the calibrated rules of each model are below." }
        }
        @if let Some(whole) = report.whole() {
            p.soft {
                (count(whole.runs, "judged run")) " in " (count(sets as u64, "dataset")) ": "
                (sizes(whole))
            }
        }
    }
}

/// Returns the numbers of good and failed runs, and of their steps.
fn sizes(dataset: &DatasetFigures) -> Markup {
    html! {
        (thousands(dataset.succeeded)) " good, " (thousands(dataset.failed)) " failed; "
        (count(dataset.steps, "step"))
    }
}

/// Returns the reasons for caution, and the setting.
fn advice(report: &Report, to: &Escaper) -> Markup {
    html! {
        h2 { "Confidence" }
        @if let (Some(one), Some(whole)) = (report.recommended(), report.whole()) {
            @for doubt in format::doubts(report, one, whole) { p { (to.safe(&doubt)) } }
        }
        p { (to.safe(format::CANNOT_SAY)) }
        @if let Some(text) = setting::snippet(report) {
            p { "In " code { "endstop.toml" } ":" }
            pre { (to.safe(&text)) }
        }
    }
}

/// Returns the curve of a limit.
fn by_value(one: &Curve, whole: &DatasetFigures, to: &Escaper) -> Markup {
    html! {
        h2 { (to.safe(&one.limit)) ": good runs lost, and what is saved" }
        // A flat line at 0 would look like a limit that costs nothing.
        @if !curve::is_blind(one, whole) {
            div.wide { (PreEscaped(curve::chart(one, whole, 1000.0, to))) }
            div.narrow { (PreEscaped(curve::chart(one, whole, 380.0, to))) }
            (to.paragraph("soft", curve::MEANING))
        }
        @if let Some(said) = curve::lacking(one, whole) { (to.paragraph("warn", &said)) }
    }
}

/// Returns the table of groups.
fn by_group(report: &Report, to: &Escaper) -> Markup {
    html! {
        h2 { "By model and kind of task" }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "group" }
                        @for heading in groups::headings(report) { th { (heading) } }
                    }
                }
                tbody {
                    @for row in groups::rows(report) {
                        tr class=(if row.hopeless { "bad" } else { "" }) {
                            td { (to.safe(&row.name)) }
                            // A narrow page must not break a number from its unit.
                            @for cell in &row.cells { td { (cell.replace(' ', "\u{a0}")) } }
                        }
                    }
                }
            }
        }
        @for said in groups::hopeless(report) { p { (to.safe(&said)) } }
        p.soft {
            "Steps: the share of all steps."
            @if report.recommended().is_some() {
                " Saved, harm: what the recommended candidate saves of the group's steps, and the share of "
                "its good runs that it stops, or of those with 4 steps or more where that is more."
            }
        }
    }
}

fn table(report: &Report, dataset: &DatasetFigures, to: &Escaper) -> Markup {
    let name = if dataset.name == "ALL" { "All datasets" } else { &dataset.name };
    // Columns without any known value are left out.
    let money = dataset.tokens.is_some() || dataset.usd.is_some();
    html! {
        h2 { (to.safe(name)) }
        p.soft { (count(dataset.runs, "judged run")) ": " (sizes(dataset)) }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "candidate" }
                        th { "good runs stopped" }
                        th { "of " (thousands(dataset.succeeded_4)) " with 4+ steps" }
                        th { "failed runs stopped" }
                        th { "steps saved" }
                        @if money { th { "tokens" } th { "dollars" } }
                        th { "failed − good" }
                    }
                }
                tbody { @for row in rows(report, dataset) { (line(&row, money, to)) } }
            }
        }
    }
}

fn line(row: &Row, money: bool, to: &Escaper) -> Markup {
    let class = match row.best {
        Some(Strength::Set) => "best good",
        Some(Strength::Try) => "best warn",
        None if row.baseline => "soft",
        None => "",
    };
    let harm = if row.harms { "bad" } else { "" };
    html! {
        tr class=(class) {
            td { (to.safe(&row.name)) }
            @for (class, runs) in [(harm, &row.good), (harm, &row.good4), ("", &row.failed)] {
                td {
                    span class=(class) { (runs.count) " · " (runs.share) }
                    br;
                    span.soft { (runs.between) }
                }
            }
            td { (row.steps) " · " (row.saved) }
            @if money { td { (row.tokens) } td { (row.usd) } }
            td { (row.paired) }
        }
    }
}

fn notes(report: &Report, whole: &DatasetFigures, to: &Escaper) -> Markup {
    html! {
        h2 { "Columns" }
        p {
            "Tokens cover " (thousands(whole.runs_with_tokens)) " of " (count(whole.runs, "run"))
            ", in which every step records its usage; dollars cover "
            (thousands(whole.runs_with_usd))
            ", in which every step has a cost or a model with a known price."
        }
        @if let Some(unpriced) = groups::unpriced(report) { (to.paragraph("soft", &unpriced)) }
        p {
            "Steps, tokens and dollars saved are those after the stops, less all of the good runs that \
             are stopped, because these have to be run again."
        }
        p {
            "Failed − good: within tasks that have both (" (thousands(whole.mixed_tasks))
            " of them), the percentage of failed runs stopped minus that of good runs, with its 95 % \
             confidence interval."
        }
        @for hint in format::all_lacking(format::of_judged(whole), usize::MAX) {
            (to.paragraph("soft", &hint))
        }
    }
}

fn unjudged(dataset: &Unjudged, to: &Escaper) -> Markup {
    html! {
        h2 { (to.safe(&dataset.name)) }
        p {
            (count(dataset.runs, "run")) " without an outcome, " (count(dataset.steps, "step"))
            ". It is unknown whether these stops would have been right."
        }
        div.scroll {
            table {
                thead { tr { th { "candidate" } th { "runs stopped" } th { "steps saved" } } }
                tbody {
                    @for (name, stopped, steps) in &dataset.candidates {
                        tr {
                            td { (to.safe(name)) }
                            td { (thousands(*stopped)) }
                            td { (format::saved_unjudged(dataset, name, *steps)) }
                        }
                    }
                }
            }
        }
        @for hint in format::all_lacking(format::of_unjudged(dataset), usize::MAX) {
            (to.paragraph("soft", &hint))
        }
    }
}

fn calibration(report: &Report, alpha: f64, to: &Escaper) -> Markup {
    html! {
        h2 { "Calibrated: at most " (format::share(alpha)) " of good tasks stopped" }
        p.soft {
            (calibrated::PROMISE)
        }
        @for one in &report.figures.calibrations {
            @for (said, nth) in calibrated::about(one).iter().zip(0..) {
                // The line with the model heads its block.
                p { @if nth == 0 { strong { (to.safe(said)) } } @else { (to.safe(said)) } }
            }
        }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "rule" }
                        th { "dataset" }
                        th { "chosen on" }
                        th { "good tasks stopped" }
                        th { "good runs" }
                        th { "failed runs" }
                    }
                }
                tbody {
                    @for dataset in &report.figures.datasets {
                        @for one in &dataset.calibrated {
                            tr {
                                @if let Some(rule) = &one.rule {
                                    td { (to.safe(rule)) }
                                    td { (to.safe(&dataset.name)) }
                                    td { (count(one.calibration_tasks, "task")) }
                                    td { (calibrated::of(one.test.test_tasks_stopped, one.test.test_tasks)) }
                                    td { (calibrated::of(one.test.test_good_stopped, one.test.test_good)) }
                                    td { (calibrated::of(one.test.test_failed_stopped, one.test.test_failed)) }
                                } @else {
                                    td { (to.safe(&one.family)) }
                                    td { (to.safe(&dataset.name)) }
                                    td colspan="4" class="soft" {
                                        "none: " (to.safe(one.refused.as_deref().unwrap_or("none")))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        @for said in report.figures.datasets.iter().filter_map(calibrated::left_out) {
            (to.paragraph("soft", &said))
        }
    }
}
