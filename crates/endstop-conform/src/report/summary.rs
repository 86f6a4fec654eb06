//! The level and the numbers, which every form of the result has.

use crate::checks::Verdict;
use crate::suite::SuiteResult;

/// Describes the level: `level 2 (Honest)`.
pub fn level(result: &SuiteResult) -> String {
    match result.level {
        None => "no level, because not all checks of level 1 were chosen".to_owned(),
        Some(0) => "no level".to_owned(),
        Some(number) => {
            let name = crate::Level::try_from(number).map(crate::Level::name).unwrap_or_default();
            format!("level {number} ({name})")
        }
    }
}

/// Returns the number of passed checks, and of those that apply.
pub fn passed(result: &SuiteResult) -> (usize, usize) {
    let number =
        |verdict: Verdict| result.checks.iter().filter(|one| one.verdict == verdict).count();
    (number(Verdict::Pass), result.checks.len() - number(Verdict::NotApplicable))
}

/// Escapes text for XML and HTML, without characters that are not allowed there.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}
