//! The result as a page: a matrix of the checks, and for each case what was sent, received and printed.

use super::summary::{level, passed};
use crate::checks::{Level, Verdict};
use crate::evidence::{Evidence, Exit};
use crate::suite::{CaseResult, SuiteResult};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}\
    table{border-collapse:collapse;width:100%;margin:1rem 0}td,th{border-bottom:1px solid #d8dee4;padding:.3rem .6rem;text-align:left;vertical-align:top}\
    pre{background:#f6f8fa;padding:.8rem;overflow:auto;max-height:30rem;white-space:pre-wrap;word-break:break-word}\
    .pass{color:#1a7f37}.fail{color:#cf222e;font-weight:600}.warn{color:#9a6700}.not-reached,.not-applicable{color:#57606a}\
    @media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}td,th{border-color:#30363d}pre{background:#161b22}a{color:#58a6ff}}";

/// The most bytes of a request that a page shows.
const MOST: usize = 20_000;

/// Returns a self-contained page. All text of the program is escaped.
pub fn page(result: &SuiteResult) -> String {
    let (passed, applicable) = passed(result);
    let title = format!("How the runs of {} end", result.profile);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p { strong { (level(result)) } ": " (passed) " of " (applicable) " checks pass. Edition " (result.edition) "." }
                p { "Command: " code { (result.command.join(" ")) } }
                p { "Network: " (result.network) "." }
                @for problem in &result.problems { p class="warn" { "⚠ " (problem) } }
                @for of in Level::ALL { (matrix(result, of)) }
                @for case in &result.cases { (cell(result, case)) }
            }
        }
    }
    .into_string()
}

fn class(verdict: Verdict) -> String {
    verdict.name().replace(' ', "-")
}

fn matrix(result: &SuiteResult, of: Level) -> Markup {
    let checks: Vec<_> = result.checks.iter().filter(|one| one.level == of).collect();
    html! {
        @if !checks.is_empty() {
            h2 { "Level " (u8::from(of)) ": " (of.name()) }
            table {
                thead { tr { th { "id" } th { "verdict" } th { "expected" } th { "observed" } th { "cases" } } }
                tbody {
                    @for check in checks {
                        tr id=(check.id) {
                            td { (check.id) }
                            td class=(class(check.verdict)) { (check.verdict) }
                            td { (if check.must { "MUST: " } else { "SHOULD: " }) (check.text) }
                            td { (check.why) }
                            td {
                                // A check of every case has its verdict on each page.
                                @for name in check.cases.keys().take(4) { a href={ "#case-" (name) } { (name) } " " }
                                @if check.cases.len() > 4 { "and " (check.cases.len() - 4) " more" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cell(result: &SuiteResult, case: &CaseResult) -> Markup {
    let evidence = &case.evidence;
    html! {
        section id={ "case-" (case.name) } {
            h2 { (case.title) }
            ul {
                @for check in &result.checks {
                    @if let Some(finding) = check.cases.get(&case.name) {
                        li { a href={ "#" (check.id) } { (check.id) } " "
                             span class=(class(finding.verdict)) { (finding.verdict) } ": " (finding.why) }
                    }
                }
            }
            p { (ended(evidence)) }
            details {
                summary { (evidence.calls.len()) " calls, standard output and standard error" }
                p { "Command: " code { (evidence.command.join(" ")) } }
                @for call in &evidence.calls {
                    h3 { (format!("{:.2} s: ", call.at)) (call.format) ", " (call.answer) }
                    @if let Some(invalid) = &call.invalid { p class="warn" { "A provider refuses the messages: " (invalid) } }
                    pre { (shortened(&serde_json::to_string_pretty(&call.body).unwrap_or_default())) }
                    pre { (shortened(&call.bytes)) }
                }
                h3 { "Standard output" }
                pre { (shortened(&evidence.stdout)) }
                h3 { "Standard error" }
                pre { (shortened(&evidence.stderr)) }
                @if !evidence.record.text.is_empty() && !evidence.stdout.contains(&evidence.record.text) {
                    h3 { "Final record" }
                    pre { (shortened(&evidence.record.text)) }
                }
            }
        }
    }
}

fn ended(evidence: &Evidence) -> String {
    let how = match evidence.exit {
        Some(Exit::Status(status)) => format!("exit status {status}"),
        Some(Exit::Stopped(why)) => format!("ended by the suite ({why:?})"),
        None => "not started".to_owned(),
    };
    let left = evidence.left.as_deref().unwrap_or_default();
    let left = if left.is_empty() { String::new() } else { format!("; left: {}", left.join(", ")) };
    format!("{how} after {:.2} s{left}", evidence.seconds)
}

fn shortened(text: &str) -> String {
    if text.len() <= MOST {
        return text.to_owned();
    }
    // The end of a text has the verdict, so both are shown.
    let head = (0..=MOST / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let from = (text.len() - MOST / 2..text.len()).find(|at| text.is_char_boundary(*at));
    let tail = from.map_or("", |at| &text[at..]);
    format!("{}\n… {} bytes …\n{tail}", &text[..head], text.len() - head - tail.len())
}
