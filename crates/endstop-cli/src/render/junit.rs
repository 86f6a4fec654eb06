//! JUnit XML, as CI servers read it: one suite for the run, one case for each expectation.

use super::assertion::{Assertion, difference};
use crate::visible::visible;
use jiff::Timestamp;
use std::fmt::Write as _;

/// Returns the document.
pub(crate) fn document(assertion: &Assertion) -> String {
    let failures = assertion.checks.iter().filter(|check| !check.passed).count();
    let tests = assertion.checks.len();
    let seconds = assertion.ending.as_ref().map_or(0.0, |ending| ending.duration_ms / 1e3);
    let run = attribute(&assertion.run);
    let began = assertion.started_ms.and_then(|ms| Timestamp::from_millisecond(ms as i64).ok());
    let began = began.map_or_else(String::new, |time| format!(" timestamp=\"{time:.0}\""));
    let counts = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<testsuites name=\"endstop assert\" {counts} time=\"{seconds:.3}\">");
    let _ = writeln!(
        out,
        "  <testsuite name=\"{run}\" {counts} skipped=\"0\" time=\"{seconds:.3}\"{began}>"
    );
    properties(&mut out, assertion);
    for check in &assertion.checks {
        let name = attribute(&check.name);
        // The checks take no time of their own; the time of the run is that of its suite.
        let _ =
            write!(out, "    <testcase classname=\"endstop.assert\" name=\"{name}\" time=\"0\"");
        if check.passed {
            out.push_str("/>\n");
            continue;
        }
        let found = attribute(&difference(check));
        let _ = write!(
            out,
            ">\n      <failure type=\"expectation\" message=\"{found}\">run {run}: {name}: {found}</failure>\n    </testcase>\n"
        );
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn properties(out: &mut String, assertion: &Assertion) {
    let Some(ending) = &assertion.ending else { return };
    let verified = ending.verified.map_or_else(|| "none".to_owned(), |yes| yes.to_string());
    let or_more = if ending.cost_unknown { " or more" } else { "" };
    let cost =
        ending.cost_usd.map_or_else(|| "unknown".to_owned(), |usd| format!("{usd}{or_more}"));
    out.push_str("    <properties>\n");
    for (name, value) in [
        ("termination", ending.termination.to_owned()),
        ("category", ending.category.to_owned()),
        ("turns", ending.turns.to_string()),
        ("tokens", ending.tokens.to_string()),
        ("cost_usd", cost),
        ("verified", verified),
    ] {
        let _ = writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", attribute(&value));
    }
    out.push_str("    </properties>\n");
}

/// Escapes text for an attribute or an element. XML 1.0 has no way to write most control characters,
/// and forbids U+FFFE and U+FFFF, so these are replaced.
fn attribute(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in visible(text).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // A parser turns a raw line break in an attribute into a space.
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            char if char.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::expectation::Check;

    #[test]
    fn hostile_text_stays_inside_its_element() {
        let check = Check {
            name: "final-contains \"]]></failure>\"".to_owned(),
            passed: false,
            expected: "an answer with <b>&".to_owned(),
            actual: "\"\u{1b}[2J\u{0}\u{ffff}\"".to_owned(),
            reason: None,
        };
        let assertion = Assertion {
            run: "a\"b".to_owned(),
            passed: false,
            state: "ended",
            ending: None,
            checks: vec![check],
            problems: Vec::new(),
            started_ms: Some(1_700_000_000_123),
        };
        let xml = document(&assertion);
        assert_eq!(xml.matches("<failure").count(), 1, "{xml}");
        assert_eq!(xml.matches("</failure>").count(), 1, "{xml}");
        assert!(xml.contains("timestamp=\"2023-11-14T22:13:20Z\""), "{xml}");
        assert!(xml.contains("name=\"a&quot;b\""), "{xml}");
        let odd = |c: char| c.is_control() && c != '\n' || c == '\u{ffff}';
        assert!(!xml.contains(odd), "{xml:?}");
    }
}
