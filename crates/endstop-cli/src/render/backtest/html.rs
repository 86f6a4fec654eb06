//! The HTML page of a backtest, self-contained: the chart first, then the recommendation, then the
//! tables.

use super::svg::chart;
use super::table::{Row, rows};
use super::{calibrated, findings, format, setting};
use crate::recorded::backtest::Report;
use crate::render::amounts::{count, thousands};
use crate::render::html::{END, begin, escape};
use endstop_trajectory::backtest::{DatasetFigures, Figures};
use std::fmt::Write as _;

/// Builds the page.
pub(crate) fn page(report: &Report) -> String {
    let mut out = begin("Would other limits have been better?");
    head(&mut out, report);
    if let Some(whole) = report.whole() {
        let _ = writeln!(
            out,
            "<section><h2>What each candidate costs and saves</h2><div class=\"wide\">{}</div><div class=\"narrow\">{}</div><p class=\"soft\">Each dot is a candidate; no other candidate is better in both than a large dot, and the line joins the large dots. A horizontal bar is the 95 % confidence interval. Long good runs have 4 steps or more. The green area shows what can be recommended.</p></section>",
            chart(report, whole, 1000.0),
            chart(report, whole, 380.0),
        );
        advice(&mut out, report);
        // The total is the last dataset, and comes first on the page.
        for dataset in report.figures.datasets.iter().rev() {
            table(&mut out, report, dataset);
        }
        notes(&mut out, whole);
    } else {
        unjudged(&mut out, &report.figures);
    }
    calibration(&mut out, report);
    let findings = findings::lines(report);
    if !findings.is_empty() {
        out.push_str("<section><h2>Not read, or unusual</h2>");
        for line in findings {
            let named = line.starts_with(' ');
            let class = if named { "soft" } else { "" };
            let _ = write!(out, "<p class=\"{class}\">{}</p>", escape(line.trim()));
        }
        out.push_str("</section>\n");
    }
    out.push_str(END);
    out
}

fn head(out: &mut String, report: &Report) {
    out.push_str("<section>");
    match (report.recommended(), report.whole()) {
        (Some(one), Some(whole)) => {
            let _ = write!(
                out,
                "<h1 class=\"good\">Set {}</h1><p>To stop at most {} of good runs: {}.</p>",
                escape(&one.name),
                format::share(report.max_harm),
                escape(&format::effect(one, whole)),
            );
        }
        _ => {
            let _ = write!(
                out,
                "<h1 class=\"warn\">Nothing is recommended</h1><p>{}.</p>",
                escape(&format::refusal(report)),
            );
        }
    }
    if let Some(whole) = report.whole() {
        let sets = report.figures.datasets.len();
        let sets = if sets > 1 { sets - 1 } else { sets };
        let _ = write!(
            out,
            "<p class=\"soft\">{} in {}: {} good, {} failed; {}</p>",
            count(whole.runs, "judged run"),
            count(sets as u64, "dataset"),
            thousands(whole.succeeded),
            thousands(whole.failed),
            count(whole.steps, "step"),
        );
    }
    out.push_str("</section>\n");
}

/// Adds the reasons for caution, and the setting.
fn advice(out: &mut String, report: &Report) {
    out.push_str("<section><h2>Confidence</h2>");
    if let (Some(one), Some(whole)) = (report.recommended(), report.whole()) {
        for doubt in format::doubts(report, one, whole) {
            let _ = write!(out, "<p>{}</p>", escape(&doubt));
        }
    }
    let _ = write!(out, "<p>{}</p>", escape(format::CANNOT_SAY));
    if let Some(text) = setting::snippet(report) {
        let _ = write!(out, "<p>In <code>endstop.toml</code>:</p><pre>{}</pre>", escape(&text));
    }
    out.push_str("</section>\n");
}

fn table(out: &mut String, report: &Report, dataset: &DatasetFigures) {
    let name = if dataset.name == "ALL" { "All datasets" } else { &dataset.name };
    // Columns without any known value are left out.
    let money = dataset.tokens.is_some() || dataset.usd.is_some();
    let _ = write!(
        out,
        "<section><h2>{}</h2><p class=\"soft\">{}: {} good, {} failed; {}</p><div class=\"scroll\"><table><thead><tr><th>candidate</th><th>good runs stopped</th><th>of {} with 4+ steps</th><th>failed runs stopped</th><th>steps saved</th>{}<th>failed − good</th></tr></thead><tbody>",
        escape(name),
        count(dataset.runs, "judged run"),
        thousands(dataset.succeeded),
        thousands(dataset.failed),
        count(dataset.steps, "step"),
        thousands(dataset.succeeded_4),
        if money { "<th>tokens</th><th>dollars</th>" } else { "" },
    );
    for row in rows(report, dataset) {
        line(out, &row, money);
    }
    out.push_str("</tbody></table></div></section>\n");
}

fn line(out: &mut String, row: &Row, money: bool) {
    let class = if row.best {
        "best good"
    } else if row.baseline {
        "soft"
    } else {
        ""
    };
    let harm = if row.harms { "bad" } else { "" };
    let _ = write!(out, "<tr class=\"{class}\"><td>{}</td>", escape(&row.name));
    for (class, runs) in [(harm, &row.good), (harm, &row.good4), ("", &row.failed)] {
        let _ = write!(
            out,
            "<td><span class=\"{class}\">{} · {}</span><br><span class=\"soft\">{}</span></td>",
            runs.count, runs.share, runs.between
        );
    }
    let _ = write!(out, "<td>{} · {}</td>", row.steps, row.saved);
    if money {
        let _ = write!(out, "<td>{}</td><td>{}</td>", row.tokens, row.usd);
    }
    let _ = write!(out, "<td>{}</td></tr>", row.paired);
}

fn notes(out: &mut String, whole: &DatasetFigures) {
    let _ = write!(
        out,
        "<section><h2>Columns</h2><p>Tokens cover {} of {}, in which every step records its usage; dollars cover {}, in which every step has a cost or a model with a known price.</p><p>Failed − good: within tasks that have both ({} of them), the percentage of failed runs stopped minus that of good runs, with its 95 % confidence interval.</p>",
        thousands(whole.runs_with_tokens),
        count(whole.runs, "run"),
        thousands(whole.runs_with_usd),
        thousands(whole.mixed_tasks),
    );
    for hint in format::all_lacking(format::of_judged(whole), usize::MAX) {
        let _ = write!(out, "<p class=\"soft\">{}</p>", escape(&hint));
    }
    out.push_str("</section>\n");
}

fn unjudged(out: &mut String, figures: &Figures) {
    for dataset in &figures.unjudged {
        let _ = write!(
            out,
            "<section><h2>{}</h2><p>{}, {}. It is unknown whether these stops would have been right.</p><div class=\"scroll\"><table><thead><tr><th>candidate</th><th>runs stopped</th><th>steps saved</th></tr></thead><tbody>",
            escape(&dataset.name),
            count(dataset.runs, "run without an outcome"),
            count(dataset.steps, "step"),
        );
        for (name, stopped, steps) in &dataset.candidates {
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(name),
                thousands(*stopped),
                format::saved_unjudged(dataset, name, *steps)
            );
        }
        out.push_str("</tbody></table></div>");
        for hint in format::all_lacking(format::of_unjudged(dataset), usize::MAX) {
            let _ = write!(out, "<p class=\"soft\">{}</p>", escape(&hint));
        }
        out.push_str("</section>\n");
    }
}

fn calibration(out: &mut String, report: &Report) {
    let Some(alpha) = report.alpha else { return };
    let _ = write!(
        out,
        "<section><h2>Calibrated: at most {} of good tasks stopped</h2><p class=\"soft\">Each threshold is chosen on half of the tasks; its results are counted on the other half.</p><div class=\"scroll\"><table><thead><tr><th>rule</th><th>dataset</th><th>chosen on</th><th>good tasks stopped</th><th>good runs</th><th>failed runs</th></tr></thead><tbody>",
        format::share(alpha)
    );
    for dataset in &report.figures.datasets {
        for one in &dataset.calibrated {
            let Some(rule) = &one.rule else {
                let _ = write!(
                    out,
                    "<tr><td>{}</td><td>{}</td><td colspan=\"4\" class=\"soft\">none: {}</td></tr>",
                    escape(&one.family),
                    escape(&dataset.name),
                    escape(one.refused.as_deref().unwrap_or("none")),
                );
                continue;
            };
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(rule),
                escape(&dataset.name),
                count(one.calibration_tasks, "task"),
                calibrated::of(one.test_tasks_stopped, one.test_tasks),
                calibrated::of(one.test_good_stopped, one.test_good),
                calibrated::of(one.test_failed_stopped, one.test_failed),
            );
        }
    }
    out.push_str("</tbody></table></div>");
    for said in report.figures.datasets.iter().filter_map(calibrated::left_out) {
        let _ = write!(out, "<p class=\"soft\">{}</p>", escape(&said));
    }
    out.push_str("</section>\n");
}
