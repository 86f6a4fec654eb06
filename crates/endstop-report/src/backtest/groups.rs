//! The runs by model and kind of task, which lead the report: a total over several models describes none
//! of them.

use super::format;
use super::report::Report;
use crate::amounts::{count, thousands};
use endstop_trajectory::Prices;
use endstop_trajectory::backtest::{GroupFigures, HOPELESS, share};
use std::collections::{BTreeMap, BTreeSet};

/// Width of the name column, in characters.
const NAME: usize = 28;
/// Maximum number of models without a price that are named.
const MOST_UNPRICED: usize = 5;
/// Maximum number of groups that are shown.
const MOST: usize = 40;

/// A group as cells.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) cells: Vec<String>,
    pub(crate) hopeless: bool,
}

/// Returns the headings of the cells.
pub(crate) fn headings(report: &Report) -> Vec<&'static str> {
    let mut headings = vec!["runs", "good", "95 %", "turns", "steps"];
    if has_cost(report) {
        headings.push("a run");
    }
    if report.recommended().is_some() {
        headings.extend(["saved", "harm"]);
    }
    headings
}

/// Returns the groups with the most steps first; none if there is only one group.
pub(crate) fn rows(report: &Report) -> Vec<Row> {
    let mut groups: Vec<&GroupFigures> = report.figures.groups.iter().collect();
    // A single group would repeat the totals.
    if groups.len() < 2 {
        return Vec::new();
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.steps));
    groups.into_iter().take(MOST).map(|group| row(report, group)).collect()
}

fn has_cost(report: &Report) -> bool {
    report.figures.groups.iter().any(|group| group.usd.is_some())
}

fn row(report: &Report, group: &GroupFigures) -> Row {
    let mut cells = vec![
        thousands(group.runs),
        format::seen(&group.success),
        format::between(&group.success),
        format!("{:.1}", group.steps as f64 / group.runs.max(1) as f64),
        format::share(group.share_of_steps),
    ];
    if has_cost(report) {
        // Of a group in which only a part of the runs has a cost, a mean would be wrong.
        let whole = group.usd.filter(|_| group.runs_with_usd == group.runs);
        let mean = whole.map(|usd| usd / group.runs.max(1) as f64);
        cells.push(mean.map_or_else(|| "–".to_owned(), format::usd));
    }
    if let Some(one) = report.recommended().and_then(|one| group.candidate(&one.name)) {
        let saved = one.net_steps as f64 / group.steps.max(1) as f64;
        let harm = one.harm.map_or_else(|| "–".to_owned(), format::share);
        cells.extend([format::share(saved), harm]);
    }
    Row { name: name(report, group), cells, hopeless: group.hopeless }
}

/// Returns the name of a group; the dataset is part of it if there are several.
pub(crate) fn name(report: &Report, group: &GroupFigures) -> String {
    let of = &group.group;
    let several = report.figures.datasets.len() > 1;
    let parts = [several.then_some(&of.dataset), of.kind.as_ref(), of.model.as_ref()];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    if parts.is_empty() { "no model, no kind".to_owned() } else { parts.join(" · ") }
}

/// Names the models without a price, whose runs have no dollars although their tokens are recorded.
pub(super) fn unpriced(report: &Report) -> Option<String> {
    let prices = Prices::new();
    let groups = report.figures.groups.iter();
    let lack = groups.filter(|group| group.tokens.is_some() && group.runs_with_usd < group.runs);
    let models: BTreeSet<&str> = lack.filter_map(|group| group.group.model.as_deref()).collect();
    let models: Vec<&str> =
        models.into_iter().filter(|model| prices.of(model, None).is_none()).collect();
    let more = match models.len().saturating_sub(MOST_UNPRICED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<String> =
        models.iter().take(MOST_UNPRICED).map(|model| format::fitted(model, 60)).collect();
    (!named.is_empty())
        .then(|| format!("The price list has no price for {}{more}.", named.join(", ")))
}

/// Names the groups in which hardly any run succeeds, and the kinds of task over all models.
pub(crate) fn hopeless(report: &Report) -> Vec<String> {
    let said = |name: &str, good: f64, steps: f64| {
        let (good, steps) = (format::share(good), format::share(steps));
        format!("{name}: {good} of its runs succeed, and it takes {steps} of all steps.")
    };
    let mut kinds: BTreeMap<(&str, &str), Vec<&GroupFigures>> = BTreeMap::new();
    for group in &report.figures.groups {
        if let Some(kind) = &group.group.kind {
            kinds.entry((&group.group.dataset, kind)).or_default().push(group);
        }
    }
    let mut lines = Vec::new();
    // A kind of task with one model is a group itself, which is listed below.
    for ((_, kind), groups) in kinds.into_iter().filter(|(_, groups)| groups.len() > 1) {
        let sum = |of: &dyn Fn(&GroupFigures) -> u64| groups.iter().map(|one| of(one)).sum::<u64>();
        let good = share(sum(&|one| one.succeeded), sum(&|one| one.runs));
        let steps: f64 = groups.iter().map(|one| one.share_of_steps).sum();
        if let (true, Some(value)) = (good.high < HOPELESS.0 && steps >= HOPELESS.1, good.value) {
            lines.push(said(&format!("{kind}, over {} models", groups.len()), value, steps));
        }
    }
    for group in report.figures.groups.iter().filter(|group| group.hopeless) {
        let value = group.success.value.unwrap_or(0.0);
        lines.push(said(&name(report, group), value, group.share_of_steps));
    }
    lines
}

/// Returns the lines of the report, with `true` for headings.
pub(crate) fn lines(report: &Report) -> Vec<(String, bool)> {
    let rows = rows(report);
    if rows.is_empty() {
        return Vec::new();
    }
    let line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let mut line = format!("  {:<NAME$}", format::fitted(name, NAME));
        for (cell, nth) in cells.zip(0..) {
            let width = [7, 6, 11, 6, 6].get(nth).copied().unwrap_or(8);
            line = format!("{line} {cell:>width$}");
        }
        line
    };
    let mut lines = vec![
        (String::new(), false),
        ("BY MODEL AND KIND OF TASK".to_owned(), true),
        (line("", &mut headings(report).into_iter()), false),
    ];
    for row in &rows {
        lines.push((line(&row.name, &mut row.cells.iter().map(String::as_str)), false));
    }
    let mut hints = Vec::new();
    let more = report.figures.groups.len() - rows.len();
    if more > 0 {
        hints.push(format!(
            "{} with fewer steps not shown; --json has all.",
            count(more as u64, "group")
        ));
    }
    if let Some(one) = report.recommended() {
        hints.push(format!(
            "saved, harm: steps that {} saves, less those of good runs that it kills; the share of good runs that it kills, or of those with 4 steps or more where that is more.",
            one.name
        ));
    }
    hints.extend(hopeless(report));
    for hint in hints {
        lines.extend(format::wrapped(&hint, 96, "  ").into_iter().map(|line| (line, false)));
    }
    lines
}
