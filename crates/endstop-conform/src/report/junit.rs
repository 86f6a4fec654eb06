//! The result as JUnit XML: a test case for each check.

use super::summary::escaped;
use crate::checks::Verdict;
use crate::suite::{CheckResult, SuiteResult};
use std::fmt::Write as _;

/// Returns the document. A MUST that was not reached is an error, because it fails the level; a SHOULD that was not, and a check
/// that does not apply, are skipped; a warning passes, with its reason.
pub fn junit(result: &SuiteResult) -> String {
    let number =
        |so: &dyn Fn(&CheckResult) -> bool| result.checks.iter().filter(|one| so(one)).count();
    let is_error = |one: &CheckResult| one.must && one.verdict == Verdict::NotReached;
    let is_skipped = |one: &CheckResult| {
        matches!(one.verdict, Verdict::NotReached | Verdict::NotApplicable) && !is_error(one)
    };
    let failures = number(&|one| one.verdict == Verdict::Fail);
    let (errors, skipped) = (number(&is_error), number(&is_skipped));
    let (name, tests) = (escaped(&result.profile), result.checks.len());
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"endstop conform\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">\n<testsuite name=\"{name}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">\n"
    );
    for check in &result.checks {
        let (id, text, why) = (escaped(&check.id), escaped(&check.text), escaped(&check.why));
        let body = match check.verdict {
            Verdict::Fail => format!("<failure message=\"{why}\"/>"),
            Verdict::NotReached if is_error(check) => {
                format!("<error message=\"not reached: {why}\"/>")
            }
            Verdict::NotReached | Verdict::NotApplicable => {
                format!("<skipped message=\"{}: {why}\"/>", check.verdict)
            }
            Verdict::Warn => format!("<system-out>warning: {why}</system-out>"),
            Verdict::Pass => String::new(),
        };
        let level = check.level.name();
        let _ = writeln!(
            xml,
            "<testcase classname=\"{name}.{level}\" name=\"{id} {text}\">{body}</testcase>"
        );
    }
    xml.push_str("</testsuite>\n</testsuites>\n");
    xml
}
