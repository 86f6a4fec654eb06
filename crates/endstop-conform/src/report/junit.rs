//! The result as JUnit XML: a test case for each check.

use super::summary::escaped;
use crate::checks::Verdict;
use crate::suite::SuiteResult;
use std::fmt::Write as _;

/// Returns the document. A check that was not reached or does not apply is skipped; a warning passes, with its reason.
pub fn junit(result: &SuiteResult) -> String {
    let number = |verdicts: &[Verdict]| {
        result.checks.iter().filter(|one| verdicts.contains(&one.verdict)).count()
    };
    let failures = number(&[Verdict::Fail]);
    let skipped = number(&[Verdict::NotReached, Verdict::NotApplicable]);
    let (name, tests) = (escaped(&result.profile), result.checks.len());
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"endstop conform\" tests=\"{tests}\" \
         failures=\"{failures}\" skipped=\"{skipped}\">\n<testsuite name=\"{name}\" tests=\"{tests}\" \
         failures=\"{failures}\" skipped=\"{skipped}\">\n"
    );
    for check in &result.checks {
        let (id, text, why) = (escaped(&check.id), escaped(&check.text), escaped(&check.why));
        let body = match check.verdict {
            Verdict::Fail => format!("<failure message=\"{why}\"/>"),
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
