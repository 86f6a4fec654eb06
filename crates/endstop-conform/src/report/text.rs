//! The result as text for a terminal.

use super::summary::{level, passed};
use crate::checks::{Level, Verdict};
use crate::suite::SuiteResult;

/// Returns the lines: the checks by level, those that are not as expected with their reason, and the level.
pub fn text(result: &SuiteResult) -> Vec<String> {
    let mut lines = Vec::new();
    for problem in &result.problems {
        lines.push(format!("⚠ {problem}"));
    }
    for of in Level::ALL {
        let checks: Vec<_> = result.checks.iter().filter(|one| one.level == of).collect();
        if checks.is_empty() {
            continue;
        }
        lines.push(format!("Level {}: {}", u8::from(of), of.name()));
        for check in checks {
            let strength = if check.must { "MUST" } else { "SHOULD" };
            lines.push(format!(
                "  {:<5} {:<14} {strength:<6} {}",
                check.id, check.verdict, check.text
            ));
            if check.verdict != Verdict::Pass {
                lines.push(format!("        {}", check.why));
            }
        }
    }
    let (passed, applicable) = passed(result);
    lines.push(format!(
        "{}; {passed} of {applicable} checks pass; edition {}, profile {}",
        level(result),
        result.edition,
        result.profile
    ));
    lines.push(format!("network: {}", result.network));
    lines
}
