//! The problems of reading: as text, as JSON, and as the error of `--strict`.

use super::census::Census;
use super::report::Report;
use crate::amounts::{count, thousands};
use crate::visible::visible;
use endstop_trajectory::backtest::Reading;
use endstop_trajectory::read::{Finding, Outcomes, ReadStats};
use serde_json::{Map, Value, json};

/// Maximum number of examples of each kind.
const NAMED: usize = 3;

/// An irregularity: its description, the number of cases and the first few.
struct Odd<'r> {
    said: String,
    count: u64,
    first: &'r [String],
}

/// Returns each kind of problem with its effect on the figures.
fn odd(report: &Report) -> Vec<Odd<'_>> {
    let mut odd = Vec::new();
    let mut add = |said: String, count: u64, first| odd.push(Odd { said, count, first });
    let not_read = |kind: &str, many: u64| format!("not read, {kind}: {}", thousands(many));
    let of_runs =
        |many: u64, what: &str, means: &str| format!("{what}: {}, {means}", count(many, "run"));
    match &report.census {
        Census::Files { stats, .. } => {
            for (kind, one) in &stats.problems {
                add(not_read(what(kind.as_str()), one.count), one.count, &*one.first);
            }
            for (one, what, means) in [
                (&stats.without_outcome, "without an outcome", "not counted as good or failed"),
                (&stats.twice_in_file, "with an id that is duplicate in its file", "each counted"),
                (
                    &stats.twice_over_files,
                    "with an id that is also in another file",
                    "each counted",
                ),
                (&stats.out_of_order, "with steps out of order", "replayed in that order"),
                (&stats.empty, "without a turn", "not counted"),
            ] {
                if one.count > 0 {
                    add(of_runs(one.count, what, means), one.count, &*one.first);
                }
            }
        }
        Census::Parts(reading) => {
            for (kind, one) in &reading.problems {
                add(not_read(what(kind), one.count), one.count, &*one.first);
            }
            let one = &reading.without_outcome;
            if one.count > 0 {
                let said =
                    of_runs(one.count, "without an outcome", "not counted as good or failed");
                add(said, one.count, &*one.first);
            }
            if reading.duplicates > 0 {
                let what = "with an id that is duplicate in its dataset";
                add(of_runs(reading.duplicates, what, "each counted"), reading.duplicates, &[]);
            }
        }
    }
    odd
}

fn what(kind: &str) -> &str {
    match kind {
        "unreadable" => "cannot be opened or decompressed",
        "no_trajectory" => "unknown format",
        "wrong_format" => "not in the requested format",
        "half_record" => "ends inside a record",
        "malformed" => "invalid data for its format",
        "too_long" => "record too long",
        "unknown_version" => "unknown format version",
        "not_built" => "not read by this build",
        kind => kind,
    }
}

/// Returns a line for each kind of problem, and the first examples of it.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for one in odd(report) {
        lines.push(one.said);
        for name in one.first.iter().take(NAMED) {
            lines.push(format!("    {}", visible(name).replace('\n', " ")));
        }
        // Without an example above it, an ellipsis would continue nothing.
        if one.count > NAMED as u64 && !one.first.is_empty() {
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
    if report.census.not_compared() > 0 {
        let runs = count(report.census.not_compared(), "run");
        lines.push(format!("ids not checked for duplicates, because there are too many: {runs}"));
    }
    match &report.census {
        Census::Files { outcomes, passed_over, .. } => {
            lines.extend(outcomes.iter().flat_map(of_outcomes));
            lines.extend(of_skipped(*passed_over));
        }
        Census::Parts(reading) => lines.extend(of_skipped(reading.skipped)),
    }
    lines
}

/// Describes how the outcomes of a separate file and the runs differ.
fn of_outcomes(outcomes: &Outcomes) -> Vec<String> {
    let mut lines = Vec::new();
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
    lines
}

fn of_skipped(files: u64) -> Option<String> {
    (files > 0)
        .then(|| format!("skipped in folders, clearly not recordings: {}", count(files, "file")))
}

/// Describes all problems with their examples, for `--strict`; `None` if there are none.
pub fn problems(report: &Report) -> Option<String> {
    let odd = odd(report);
    // Ids that were not compared may be duplicates, so a strict check must not pass.
    let not_compared = report.census.not_compared();
    if odd.is_empty() && not_compared == 0 {
        return None;
    }
    let mut why = String::from("the input has problems");
    for one in odd {
        why = format!("{why}\n  {}", one.said);
        for name in one.first {
            why = format!("{why}\n    {name}");
        }
    }
    if not_compared > 0 {
        why = format!("{why}\n  ids not checked for duplicates: {}", count(not_compared, "run"));
    }
    Some(why)
}

/// Returns the reading statistics as JSON.
pub(crate) fn json(report: &Report) -> Value {
    match &report.census {
        Census::Files { stats, outcomes, passed_over } => {
            of_files(stats, outcomes.as_ref(), *passed_over)
        }
        Census::Parts(reading) => of_parts(reading),
    }
}

/// Returns the counts of merged parts: those that do not depend on files and their order.
fn of_parts(reading: &Reading) -> Value {
    json!({
        "runs": reading.runs,
        "turns": reading.turns,
        "endings": reading.endings,
        "formats": reading.formats,
        "without_outcome": reading.without_outcome,
        "duplicates": reading.duplicates,
        "problems": reading.problems,
        "passed_over": reading.skipped,
    })
}

fn of_files(stats: &ReadStats, outcomes: Option<&Outcomes>, passed_over: u64) -> Value {
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
        "outcomes": outcomes.map(|outcomes| json!({
            "given": outcomes.len(),
            "missing": outcomes.missing(),
            "unused": outcomes.unused(),
        })),
        "passed_over": passed_over,
    })
}
