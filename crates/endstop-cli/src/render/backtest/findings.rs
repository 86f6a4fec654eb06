//! The problems of reading: as text, as JSON, and as the error of `--strict`.

use crate::failure::{Failure, Result};
use crate::recorded::backtest::Report;
use crate::render::amounts::{count, thousands};
use crate::visible::visible;
use endstop_trajectory::read::{Finding, ProblemKind};
use serde_json::{Map, Value, json};

/// Maximum number of examples of each kind.
const NAMED: usize = 3;

/// Returns each kind of problem with its effect on the figures.
fn odd(report: &Report) -> Vec<(String, &Finding)> {
    let stats = &report.stats;
    let mut odd: Vec<(String, &Finding)> = stats
        .problems
        .iter()
        .map(|(kind, finding)| {
            (format!("not read, {}: {}", what(*kind), thousands(finding.count)), finding)
        })
        .collect();
    let runs = [
        (&stats.without_outcome, "without an outcome", "not counted as good or failed"),
        (&stats.twice_in_file, "with an id that is duplicate in its file", "each counted"),
        (&stats.twice_over_files, "with an id that is also in another file", "each counted"),
        (&stats.out_of_order, "with steps out of order", "replayed in that order"),
        (&stats.empty, "without a turn", "not counted"),
    ];
    for (finding, what, means) in runs {
        if finding.count > 0 {
            odd.push((format!("{what}: {}, {means}", count(finding.count, "run")), finding));
        }
    }
    odd
}

fn what(kind: ProblemKind) -> String {
    match kind {
        ProblemKind::Unreadable => "cannot be opened or decompressed".to_owned(),
        ProblemKind::NoTrajectory => "unknown format".to_owned(),
        ProblemKind::WrongFormat => "not in the requested format".to_owned(),
        ProblemKind::Half => "ends inside a record".to_owned(),
        ProblemKind::Malformed => "invalid data for its format".to_owned(),
        ProblemKind::TooLong => "record too long".to_owned(),
        ProblemKind::UnknownVersion => "unknown format version".to_owned(),
        kind => kind.as_str().to_owned(),
    }
}

/// Returns a line for each kind of problem, and the first examples of it.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for (said, finding) in odd(report) {
        lines.push(said);
        for name in finding.first.iter().take(NAMED) {
            lines.push(format!("    {}", visible(name).replace('\n', " ")));
        }
        if finding.count > NAMED as u64 && !finding.first.is_empty() {
            lines.push("    …".to_owned());
        }
    }
    let skipped = &report.figures.skipped;
    if skipped.summary_only > 0 {
        let runs = count(skipped.summary_only, "run");
        lines.push(format!("only a summary recorded: {runs}, not counted"));
    }
    if skipped.single_turn > 0 {
        let runs = count(skipped.single_turn, "run");
        lines.push(format!("configured for a single turn: {runs}, not counted"));
    }
    if report.stats.not_compared > 0 {
        let runs = count(report.stats.not_compared, "run");
        lines.push(format!("ids not checked for duplicates, because there are too many: {runs}"));
    }
    if let Some(outcomes) = &report.outcomes {
        if outcomes.missing() > 0 {
            lines.push(format!(
                "missing in the outcomes file: {}, first {}",
                count(outcomes.missing(), "run"),
                visible(&outcomes.missed().join(", "))
            ));
        }
        if outcomes.unused() > 0 {
            let ids: Vec<&str> = outcomes.unused_ids().into_iter().take(NAMED).collect();
            lines.push(format!(
                "in the outcomes file, but not among the runs: {}, first {}",
                thousands(outcomes.unused() as u64),
                visible(&ids.join(", "))
            ));
        }
    }
    if report.passed_over > 0 {
        lines.push(format!(
            "skipped in folders, clearly not recordings: {}",
            count(report.passed_over, "file")
        ));
    }
    lines
}

/// Returns an error if there are problems; for `--strict`.
pub(crate) fn refuse(report: &Report) -> Result<()> {
    let odd = odd(report);
    if odd.is_empty() && report.stats.not_compared == 0 {
        return Ok(());
    }
    let mut why = String::from("--strict: the input has problems");
    for (said, finding) in odd {
        why = format!("{why}\n  {said}");
        for name in &finding.first {
            why = format!("{why}\n    {name}");
        }
    }
    if report.stats.not_compared > 0 {
        let runs = count(report.stats.not_compared, "run");
        why = format!("{why}\n  ids not checked for duplicates: {runs}");
    }
    Err(Failure::usage(why))
}

/// Returns the reading statistics as JSON.
pub(crate) fn json(report: &Report) -> Value {
    let stats = &report.stats;
    let finding = |finding: &Finding| json!({"count": finding.count, "first": finding.first});
    let problems: Map<String, Value> = stats
        .problems
        .iter()
        .map(|(kind, found)| (kind.as_str().to_owned(), finding(found)))
        .collect();
    let notes: Map<String, Value> =
        stats.notes.iter().map(|(kind, found)| (kind.clone(), finding(found))).collect();
    json!({
        "runs": stats.runs,
        "turns": stats.turns,
        "calls": stats.calls,
        "results": stats.results,
        "errors": stats.errors,
        "labelled": stats.labelled,
        "succeeded": stats.succeeded,
        "endings": stats.endings,
        "formats": stats.formats,
        "empty": finding(&stats.empty),
        "without_outcome": finding(&stats.without_outcome),
        "out_of_order": finding(&stats.out_of_order),
        "twice_in_file": finding(&stats.twice_in_file),
        "twice_over_files": finding(&stats.twice_over_files),
        "not_compared": stats.not_compared,
        "notes": notes,
        "problems": problems,
        "outcomes": report.outcomes.as_ref().map(|outcomes| json!({
            "given": outcomes.len(),
            "missing": outcomes.missing(),
            "unused": outcomes.unused(),
        })),
        "passed_over": report.passed_over,
    })
}
