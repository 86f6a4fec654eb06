//! Results of several programs as pages of a book: a table of their checks, and a page with the evidence of each program.

use super::markdown::cell;
use super::summary::{level, passed};
use crate::checks::{CHECKS, Level, Verdict};
use crate::evidence::{Call, Evidence, Exit};
use crate::profile;
use crate::suite::{self, CheckResult, SuiteResult};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The name of the file with the tables.
pub const TABLES: &str = "tables.md";

/// The most characters of an output that a page shows.
const MOST: usize = 400;

/// The most calls of a run that a page lists.
const MOST_CALLS: usize = 8;

/// A file of the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Name of the file.
    pub name: String,
    /// Markdown.
    pub text: String,
}

/// The results of one program, as one.
struct Program<'a> {
    /// The results, in the order in which they were made.
    runs: Vec<&'a SuiteResult>,
    /// The first result, with the checks of all.
    whole: SuiteResult,
    /// Ids of checks whose verdict differs between two results that reached it.
    unstable: Vec<String>,
}

/// Returns the pages: [`TABLES`], and one for each program. Several results
/// of a program are one: a check has the verdict of a result that reached it, and the worst one if they differ.
pub fn pages(results: &[SuiteResult]) -> Vec<Page> {
    let mut programs: Vec<Program<'_>> = Vec::new();
    for result in results {
        match programs.iter_mut().find(|one| name(one.runs[0]) == name(result)) {
            Some(program) => program.runs.push(result),
            None => programs.push(Program {
                runs: vec![result],
                whole: result.clone(),
                unstable: Vec::new(),
            }),
        }
    }
    programs.iter_mut().for_each(Program::join);
    let mut pages = vec![Page { name: TABLES.to_owned(), text: tables(&programs) }];
    pages.extend(programs.iter().map(|program| Page {
        name: format!("{}.md", name(&program.whole)),
        text: evidence(program),
    }));
    pages
}

/// The name of the file of a program, without its end. A result comes from anybody, so its profile chooses no other folder. The
/// profiles for any program say nothing about which one it is, and the command does.
fn name(result: &SuiteResult) -> String {
    let plain = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '-' };
    let name = format!("{} {}", result.profile, program(result));
    let name: String = name.trim().chars().take(100).map(plain).collect();
    format!("{name}{}", if result.guarded { "-guarded" } else { "" })
}

/// Returns the words of a program that no profile describes, without their folders; otherwise an empty text.
fn program(result: &SuiteResult) -> String {
    if !profile::ANY.contains(&result.profile.as_str()) {
        return String::new();
    }
    let words = result.command.iter().map(|word| word.rsplit('/').next().unwrap_or_default());
    words.collect::<Vec<_>>().join(" ")
}

fn title(result: &SuiteResult) -> String {
    let program = program(result);
    let end = if program.is_empty() { &result.version } else { &program };
    cell(format!("{} {end}", result.title).trim())
}

impl Program<'_> {
    /// Joins the checks of the results.
    fn join(&mut self) {
        let mut joined: Vec<CheckResult> = Vec::new();
        for check in CHECKS {
            let of_runs =
                |run: &&SuiteResult| run.checks.iter().find(|one| one.id == check.id).cloned();
            let all: Vec<CheckResult> = self.runs.iter().filter_map(of_runs).collect();
            let reached = all.iter().filter(|one| one.verdict != Verdict::NotReached);
            let worst = reached.clone().max_by_key(|one| one.verdict).or_else(|| all.last());
            let Some(worst) = worst else { continue };
            if reached.clone().any(|one| one.verdict != worst.verdict) {
                self.unstable.push(check.id.to_owned());
            }
            joined.push(worst.clone());
        }
        self.whole.level = suite::level(&joined, self.runs.iter().any(|run| run.works()));
        self.whole.checks = joined;
    }

    /// The sign of a check, and ± if its verdict was not the same in each result.
    fn sign(&self, check: &CheckResult) -> String {
        let sign = match check.verdict {
            Verdict::Pass => "✓",
            Verdict::Fail => "✗",
            Verdict::Warn => "!",
            Verdict::NotReached => "?",
            Verdict::NotApplicable => "·",
        };
        let unstable = if self.unstable.contains(&check.id) { "±" } else { "" };
        format!("{sign}{unstable}")
    }
}

fn tables(programs: &[Program<'_>]) -> String {
    let mut text = String::from(
        "# Tables\n\n| program | level | pass | fail | warn | not reached | not applicable |\n|---|---|--:|--:|--:|--:|--:|\n",
    );
    for program in programs {
        let whole = &program.whole;
        let number =
            |verdict: Verdict| whole.checks.iter().filter(|one| one.verdict == verdict).count();
        let _ = writeln!(
            text,
            "| [{}]({}.md) | {} | {} | {} | {} | {} | {} |",
            title(whole),
            name(whole),
            whole.level.map_or_else(|| "–".to_owned(), |level| level.to_string()),
            number(Verdict::Pass),
            number(Verdict::Fail),
            number(Verdict::Warn),
            number(Verdict::NotReached),
            number(Verdict::NotApplicable),
        );
    }
    for of in Level::ALL {
        let checks: Vec<_> = CHECKS.iter().filter(|check| check.level == of).collect();
        let _ = write!(text, "\n## Level {}: {}\n\n| program |", u8::from(of), of.name());
        for check in &checks {
            let mark = if check.must { "" } else { "\\*" };
            let _ = write!(text, " {}{mark} |", check.id);
        }
        let _ = writeln!(text, "\n|---|{}", ":-:|".repeat(checks.len()));
        for program in programs {
            let _ = write!(text, "| {} |", title(&program.whole));
            for check in &checks {
                let found = program.whole.checks.iter().find(|one| one.id == check.id);
                let _ = match found {
                    Some(found) => write!(
                        text,
                        " [{}]({}.md#{}) |",
                        program.sign(found),
                        name(&program.whole),
                        check.id.to_lowercase()
                    ),
                    None => write!(text, " |"),
                };
            }
            text.push('\n');
        }
    }
    text
}

fn evidence(program: &Program<'_>) -> String {
    let whole = &program.whole;
    let (passed, applicable) = passed(whole);
    let mut text = format!(
        "# {}\n\n{}: {passed} of {applicable} checks pass. Edition {}, suite {}, profile `{}`.\n",
        title(whole),
        level(whole),
        cell(&whole.edition),
        cell(&whole.suite),
        code(&whole.profile)
    );
    for run in &program.runs {
        for problem in &run.problems {
            let _ = writeln!(text, "\n> {}", cell(problem));
        }
    }
    text.push_str("\n| id | verdict | expected | observed |\n|---|---|---|---|\n");
    for check in &whole.checks {
        let _ = writeln!(
            text,
            "| <a id=\"{}\"></a>{} | {} {} | {}: {} | {} |",
            check.id.to_lowercase(),
            check.id,
            program.sign(check),
            check.verdict,
            if check.must { "MUST" } else { "SHOULD" },
            cell(&check.text),
            observed(program, check),
        );
    }
    text.push_str("\n## Runs\n");
    let mut of_case: BTreeMap<&str, Vec<(&SuiteResult, &suite::CaseResult)>> = BTreeMap::new();
    for run in &program.runs {
        for case in &run.cases {
            of_case.entry(&case.name).or_default().push((run, case));
        }
    }
    for (case, runs) in of_case {
        let (case, title) = (cell(case), cell(&runs[0].1.title));
        let _ = write!(text, "\n<a id=\"case-{case}\"></a>**{case}**: {title}.\n\n");
        for (run, result) in runs {
            let of_case = run.checks.iter().filter_map(|check| check.cases.get(&result.name));
            let is_bad = of_case.clone().any(|one| {
                matches!(one.verdict, Verdict::Fail | Verdict::Warn | Verdict::NotReached)
            });
            let _ = writeln!(text, "- {}", of_run(&result.evidence, run.patience));
            if is_bad {
                for (stream, output) in [
                    ("standard output", &result.evidence.stdout),
                    ("standard error", &result.evidence.stderr),
                ] {
                    let tail = tail(output);
                    if !tail.is_empty() {
                        let _ = writeln!(text, "  - {stream}, its end: `{tail}`");
                    }
                }
            }
        }
    }
    text
}

/// Returns what was observed for a check: the reason of its verdict, those of the results that differ, and links to the runs.
fn observed(program: &Program<'_>, check: &CheckResult) -> String {
    let mut text = cell(&check.why);
    if program.unstable.contains(&check.id) {
        let others = program.runs.iter().flat_map(|run| &run.checks);
        for other in others.filter(|one| one.id == check.id && one.verdict != check.verdict) {
            let _ = write!(text, "; in another run {}: {}", other.verdict, cell(&other.why));
        }
    }
    // A check of every case names its case.
    if check.cases.len() <= 6 && check.verdict != Verdict::NotApplicable {
        for case in check.cases.keys().map(|case| cell(case)) {
            let _ = write!(text, " [{case}](#case-{case})");
        }
    }
    text
}

/// Describes a run in a line.
fn of_run(evidence: &Evidence, patience: u64) -> String {
    let how = match evidence.exit {
        Some(Exit::Status(status)) => format!("exit status {status}"),
        Some(Exit::Stopped(why)) => format!("ended by the suite ({why:?})").to_lowercase(),
        None => "not started".to_owned(),
    };
    let mut text = format!("{how} after {:.1} s", evidence.seconds);
    if let Some(acted) = evidence.acted {
        let _ = write!(text, ", signal at {acted:.1} s");
    }
    let _ = write!(text, ", patience {patience} s; {} calls", evidence.calls.len());
    if !evidence.calls.is_empty() {
        let call = |call: &Call| format!("{:.1} s `{}`", call.at, code(&call.answer));
        let calls: Vec<String> = evidence.calls.iter().take(MOST_CALLS).map(call).collect();
        let more = if evidence.calls.len() > MOST_CALLS { " …" } else { "" };
        let _ = write!(text, " ({}{more})", calls.join(", "));
    }
    let started: Vec<String> =
        evidence.started.iter().take(MOST_CALLS).map(|one| cell(&one.name)).collect();
    if !started.is_empty() {
        let more = if evidence.started.len() > MOST_CALLS { " …" } else { "" };
        let _ = write!(
            text,
            "; started bodies {}: {}{more}",
            evidence.started.len(),
            started.join(", ")
        );
    }
    if let Some(reason) = &evidence.record.reason {
        let _ = write!(text, "; reason `{}`", code(reason));
    }
    for left in evidence.left.iter().flatten() {
        let _ = write!(text, "; left `{}`", code(left));
    }
    text
}

/// Returns the end of an output as the text of a code span.
fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = code(&lines.join(" ⏎ "));
    let from = text.chars().count().saturating_sub(MOST);
    text.chars().skip(from).collect()
}

/// Makes text of a program harmless in a code span.
fn code(text: &str) -> String {
    let mut harmless = String::new();
    for c in text.chars() {
        match c {
            '`' => harmless.push(' '),
            c if c.is_control() => harmless.push(' '),
            // Two of them are a command to the book's preprocessor, for example to include a file.
            '{' => harmless.push_str("{ "),
            c => harmless.push(c),
        }
    }
    harmless.trim().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::{code, name, tail};
    use crate::suite::SuiteResult;
    use serde_json::json;

    #[test]
    fn text_of_programs_is_no_command_of_the_book() {
        for text in ["{{#include /etc/passwd}}", "{{{#include x}}}", "`{{{{#include x}}"] {
            for shown in [code(text), tail(text)] {
                assert!(!shown.contains("{{") && !shown.contains('`'), "{shown}");
            }
        }
    }

    #[test]
    fn profile_of_a_result_chooses_no_folder() {
        let of = |profile: &str| -> SuiteResult {
            let counts = json!({});
            serde_json::from_value(json!({
                "type": "conformance", "edition": "e", "profile": profile, "title": "t", "version": "1", "guarded": false,
                "command": [], "suite": "s", "patience": 1, "seed": 1, "level": null, "counts": counts, "checks": [],
                "cases": [], "problems": [], "network": "", "elsewhere": [],
            }))
            .unwrap()
        };
        assert_eq!(name(&of("claude")), "claude");
        assert_eq!(name(&of("../../.bashrc")), "-------bashrc");
        assert_eq!(name(&of("/etc/x")), "-etc-x");
        let mut any = of("generic");
        any.command = ["/usr/bin/python3", "/home/a/agent.py"].map(str::to_owned).into();
        assert_eq!(name(&any), "generic-python3-agent-py");
    }
}
