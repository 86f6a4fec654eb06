//! The difference of two results.

use crate::checks::Verdict;
use crate::suite::SuiteResult;
use serde::Serialize;

/// A check whose verdict differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The id.
    pub id: String,
    /// The verdict of the first result; `None` if it lacks the check.
    pub before: Option<Verdict>,
    /// The verdict of the second one.
    pub after: Option<Verdict>,
    /// The reason of the second one, or of the first if the second lacks the check.
    pub why: String,
}

impl Change {
    /// `true` if the second result is worse: a check that passed does not.
    pub fn is_worse(&self) -> bool {
        self.before == Some(Verdict::Pass) && self.after != Some(Verdict::Pass)
            || self.after == Some(Verdict::Fail)
    }
}

/// Returns the checks whose verdicts differ, in the order of the second result.
pub fn compare(before: &SuiteResult, after: &SuiteResult) -> Vec<Change> {
    let mut changes = Vec::new();
    for check in &after.checks {
        let old = before.checks.iter().find(|one| one.id == check.id).map(|one| one.verdict);
        if old != Some(check.verdict) {
            let why = check.why.clone();
            changes.push(Change {
                id: check.id.clone(),
                before: old,
                after: Some(check.verdict),
                why,
            });
        }
    }
    let gone = before.checks.iter().filter(|old| !after.checks.iter().any(|one| one.id == old.id));
    changes.extend(gone.map(|old| Change {
        id: old.id.clone(),
        before: Some(old.verdict),
        after: None,
        why: old.why.clone(),
    }));
    changes
}
