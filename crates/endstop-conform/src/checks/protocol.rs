//! Runs behind a protocol: the words of the verdict, and a cancellation.

use super::clean::call_after;
use super::judging::{Observed, end, not_a_success, unended};
use super::verdict::{Finding, Verdict, fail, not_reached, pass};
use crate::case::Finish;
use crate::profile::Serves;

/// The words of the Agent Client Protocol for limits.
const LIMITS: [&str; 2] = ["max_turn_requests", "max_tokens"];

/// P-01.
pub(super) fn words(observed: &Observed<'_>) -> Finding {
    let finding = not_a_success(observed);
    if finding.verdict != Verdict::Pass {
        return finding;
    }
    let Some(reason) = observed.evidence.record.reason.as_deref() else {
        return fail(format!("there is no verdict: {}", end(observed.evidence)));
    };
    let mut finishes = observed.case.answers.iter().map(|answer| answer.finish);
    if reason == "refusal"
        && !finishes.any(|finish| matches!(finish, Finish::Refusal | Finish::Filter))
    {
        return fail("`refusal`, and the model did not refuse");
    }
    let names_limits = observed.profile.serves == Some(Serves::Acp);
    if names_limits && observed.case.limits.turns.is_some() && !LIMITS.contains(&reason) {
        return fail(format!("`{reason}` at a limit"));
    }
    if reason == "cancelled" {
        return fail("`cancelled`, and nothing was cancelled");
    }
    pass(format!("`{reason}`"))
}

/// P-02.
pub(super) fn cancelled(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let Some(acted) = evidence.acted else {
        return not_reached(format!("the run ended before it was cancelled: {}", end(evidence)));
    };
    if let Some(finding) = unended(observed) {
        return finding;
    }
    let record = &evidence.record;
    match record.reason.as_deref() {
        _ if record.number != 1 => fail(format!("{} verdicts", record.number)),
        Some("cancelled") if !record.is_last => fail("messages after the verdict"),
        Some("cancelled") => match call_after(evidence, acted) {
            Some(late) => fail(format!("a call {:.1} s after the cancellation", late - acted)),
            None => pass("`cancelled`, once"),
        },
        reason => fail(format!("`{}` after a cancellation", reason.unwrap_or("no word"))),
    }
}
