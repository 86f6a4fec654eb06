//! The result as Markdown, for the summary of a job.

use super::summary::{level, passed};
use crate::checks::Verdict;
use crate::suite::SuiteResult;
use std::fmt::Write as _;

/// Returns the summary: the level, and a table of the checks that did not pass.
pub fn markdown(result: &SuiteResult) -> String {
    let (passed, applicable) = passed(result);
    let mut text = format!(
        "### How the runs of `{}` end: {}\n\n{passed} of {applicable} checks pass, edition {}.\n",
        cell(&result.profile),
        level(result),
        result.edition
    );
    for problem in &result.problems {
        let _ = writeln!(text, "\n> {}", cell(problem));
    }
    let rest: Vec<_> = result.checks.iter().filter(|one| one.verdict != Verdict::Pass).collect();
    if !rest.is_empty() {
        text.push_str("\n| id | level | verdict | expected | observed |\n|---|---|---|---|---|\n");
        for check in rest {
            let (id, level, verdict) = (&check.id, u8::from(check.level), check.verdict);
            let strength = if check.must { "MUST" } else { "SHOULD" };
            let _ = writeln!(
                text,
                "| {id} | {level} {strength} | {verdict} | {} | {} |",
                cell(&check.text),
                cell(&check.why)
            );
        }
    }
    text
}

/// Makes text of a program harmless in a cell.
pub(super) fn cell(text: &str) -> String {
    let mut cell = String::new();
    for c in text.chars().take(400) {
        match c {
            '|' | '<' | '>' | '[' | ']' | '`' | '*' | '_' | '\\' | '#' | '@' => {
                let _ = write!(cell, "&#{};", u32::from(c));
            }
            c if c.is_control() => cell.push(' '),
            c => cell.push(c),
        }
    }
    cell
}
