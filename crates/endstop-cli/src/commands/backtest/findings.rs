//! What was read, and what was not: in words, as JSON, and as the reason to refuse it all.
//!
//! ```text
//! for line in findings::lines(&report) { … }
//! findings::refuse(&report)?;   // --strict
//! ```

use super::Report;
use crate::card::{count, thousands, visible};
use crate::{Failure, Result};
use endstop_trajectory::read::{Finding, ProblemKind};
use serde_json::{Map, Value, json};

/// How many of a kind are named.
const NAMED: usize = 3;

/// What is odd, each with what it means for the figures.
fn odd(report: &Report) -> Vec<(String, &Finding)> {
    let census = &report.census;
    let mut odd: Vec<(String, &Finding)> = census
        .problems
        .iter()
        .map(|(kind, finding)| {
            (format!("not read, {}: {}", what(*kind), thousands(finding.count)), finding)
        })
        .collect();
    let runs = [
        (&census.without_outcome, "without an outcome", "in no figure of good and failed runs"),
        (&census.twice_in_file, "with the id of another one in the same file", "counted each"),
        (&census.twice_over_files, "with the id of one in another file", "counted each"),
        (&census.out_of_order, "with steps out of order", "replayed as they stand"),
        (&census.empty, "without a turn", "in no figure"),
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
        ProblemKind::Unreadable => "cannot be opened or unpacked".to_owned(),
        ProblemKind::NoTrajectory => "of no format that is known".to_owned(),
        ProblemKind::WrongFormat => "not of the format that was asked for".to_owned(),
        ProblemKind::Half => "ends in the middle of a record".to_owned(),
        ProblemKind::Malformed => "of another shape than its format has".to_owned(),
        ProblemKind::TooLong => "longer than a record may be".to_owned(),
        ProblemKind::UnknownVersion => "of an unknown version of its format".to_owned(),
        kind => kind.as_str().to_owned(),
    }
}

/// A line for each kind of thing that was not read or not judged, and the first of it.
pub(super) fn lines(report: &Report) -> Vec<String> {
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
        lines.push(format!("of which only a summary is recorded: {runs}, in no figure"));
    }
    if skipped.single_turn > 0 {
        let runs = count(skipped.single_turn, "run");
        lines.push(format!("configured for a single turn: {runs}, in no figure"));
    }
    if report.census.not_compared > 0 {
        let runs = count(report.census.not_compared, "run");
        lines.push(format!(
            "whose ids were not compared with others, as there are too many: {runs}"
        ));
    }
    if let Some(outcomes) = &report.outcomes {
        if outcomes.missing() > 0 {
            lines.push(format!(
                "not in the file of outcomes: {}, first {}",
                count(outcomes.missing(), "run"),
                visible(&outcomes.missed().join(", "))
            ));
        }
        if outcomes.unused() > 0 {
            let ids: Vec<&str> = outcomes.unused_ids().into_iter().take(NAMED).collect();
            lines.push(format!(
                "in the file of outcomes, and not among the runs: {}, first {}",
                thousands(outcomes.unused() as u64),
                visible(&ids.join(", "))
            ));
        }
    }
    if report.passed_over > 0 {
        lines.push(format!(
            "passed over in folders, obviously no recordings: {}",
            count(report.passed_over, "file")
        ));
    }
    lines
}

/// Under `--strict`: what is odd is an error.
pub(super) fn refuse(report: &Report) -> Result<()> {
    let odd = odd(report);
    if odd.is_empty() && report.census.not_compared == 0 {
        return Ok(());
    }
    let mut why = String::from("--strict: what was read is not all sound");
    for (said, finding) in odd {
        why = format!("{why}\n  {said}");
        for name in &finding.first {
            why = format!("{why}\n    {name}");
        }
    }
    if report.census.not_compared > 0 {
        let runs = count(report.census.not_compared, "run");
        why = format!("{why}\n  whose ids were not compared with others: {runs}");
    }
    Err(Failure::usage(why))
}

/// What was read, as JSON.
pub(super) fn json(report: &Report) -> Value {
    let census = &report.census;
    let finding = |finding: &Finding| json!({"count": finding.count, "first": finding.first});
    let problems: Map<String, Value> = census
        .problems
        .iter()
        .map(|(kind, found)| (kind.as_str().to_owned(), finding(found)))
        .collect();
    let notes: Map<String, Value> =
        census.notes.iter().map(|(kind, found)| (kind.clone(), finding(found))).collect();
    json!({
        "runs": census.runs,
        "turns": census.turns,
        "calls": census.calls,
        "results": census.results,
        "errors": census.errors,
        "labelled": census.labelled,
        "succeeded": census.succeeded,
        "endings": census.endings,
        "formats": census.formats,
        "empty": finding(&census.empty),
        "without_outcome": finding(&census.without_outcome),
        "out_of_order": finding(&census.out_of_order),
        "twice_in_file": finding(&census.twice_in_file),
        "twice_over_files": finding(&census.twice_over_files),
        "not_compared": census.not_compared,
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
