//! The HTML page of a comparison, self-contained: the answer, a chart of the differences, the table,
//! and the runs that differ.

use super::format;
use super::svg::chart;
use crate::recorded::compare::Compared;
use crate::render::html::{paragraph, safe, section};
use endstop_trajectory::compare::{Comparison, Measure, Pairing};
use maud::{Markup, PreEscaped, html};

/// Number of runs or tasks that are listed.
const LISTED: usize = 200;

/// Builds the page.
pub(crate) fn page(compared: &Compared) -> String {
    let comparison = &compared.comparison;
    let problems = format::problems(compared);
    let sections = html! {
        (section(&head(comparison)))
        (section(&html! {
            h2 { "Differences in percentage points" }
            div.wide { (PreEscaped(chart(comparison, 1000.0))) }
            div.narrow { (PreEscaped(chart(comparison, 380.0))) }
            p.soft {
                "B minus A. A dot is the observed difference, and the bar its 95 % confidence interval. "
                "A bar that crosses the line at 0 shows no difference."
            }
        }))
        (section(&table(comparison)))
        @if comparison.differing > 0 { (section(&examples(comparison))) }
        @if !problems.is_empty() {
            (section(&html! { h2 { "Not read" } @for line in &problems { (paragraph("", line)) } }))
        }
        (section(&notes()))
    };
    crate::render::html::page("Comparison of A and B", &sections)
}

fn head(comparison: &Comparison) -> Markup {
    let [heading, sentence] = format::headline(comparison);
    html! {
        h1 class=(format::verdict(comparison).class()) { (safe(&heading)) }
        p { (safe(&sentence)) "." }
        @if comparison.pairing == Pairing::Run {
            (paragraph("", &format!("A: {}", comparison.a)))
            (paragraph("", &format!("B: {}", comparison.b)))
        }
        @for line in format::sides(comparison) { (paragraph("soft", &line)) }
    }
}

fn table(comparison: &Comparison) -> Markup {
    html! {
        h2 { (format::means(comparison)) }
        div.scroll {
            table {
                thead { tr { th { "measure" } th { "A" } th { "B" } th { "B − A (95 %)" } th { "tasks that differ" } } }
                tbody {
                    @for measure in &comparison.measures { (row(&measure.name, measure)) }
                    @for measure in &comparison.endings {
                        (row(&format!("ended: {}", measure.name), measure))
                    }
                }
            }
        }
    }
}

fn row(name: &str, measure: &Measure) -> Markup {
    let class = match format::meaning(measure) {
        "better" => "good",
        "worse" => "bad",
        "" => "",
        _ => "warn",
    };
    html! {
        tr {
            td { (safe(name)) }
            td { (format::value(measure.unit, measure.a)) }
            td { (format::value(measure.unit, measure.b)) }
            @if let Some(found) = &measure.difference {
                td { span class=(class) { (format::difference(measure.unit, found)) } }
                td { (found.differing) " of " (found.tasks) }
            } @else { td {} td {} }
        }
    }
}

fn examples(comparison: &Comparison) -> Markup {
    html! {
        h2 { (safe(&format::examples(comparison))) }
        div.scroll {
            table {
                thead { tr { th { "id" } th { "A" } th { "B" } } }
                tbody {
                    @for one in comparison.examples.iter().take(LISTED) {
                        tr {
                            td { @if let Some(set) = &one.dataset { (safe(set)) " " } (safe(&one.id)) }
                            td { (safe(&one.a)) }
                            td { (safe(&one.b)) }
                        }
                    }
                }
            }
        }
        @if comparison.differing > LISTED as u64 {
            (paragraph("soft", &format!("the first {LISTED} by name; --json lists a thousand")))
        }
    }
}

fn notes() -> Markup {
    html! {
        h2 { "Notes on the figures" }
        (paragraph("soft", "Runs of a task are alike, so that the unit of each interval is the task. Shares: \
            the interval of Agresti and Min for matched pairs. Steps, tokens and dollars: a studentised \
            bootstrap with a fixed seed; with fewer than ten tasks that differ no interval holds, and \
            none is given."))
        (paragraph("soft", "About one in twenty comparisons of equal sides shows a difference by chance, \
            for each row of the table."))
    }
}
