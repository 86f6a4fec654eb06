//! Level 1: a run ends.

use super::judging::{Observed, not_a_success, unended};
use super::results::results;
use super::verdict::{Finding, fail, not_reached, pass, warn};
use crate::evidence::Kind;

/// T-10.
pub(super) fn blank(observed: &Observed<'_>) -> Finding {
    at_most(observed, 5)
}

///
pub(super) fn at_most_20_calls(observed: &Observed<'_>) -> Finding {
    at_most(observed, 20)
}

///
pub(super) fn at_most_two_calls(observed: &Observed<'_>) -> Finding {
    at_most(observed, 2)
}

fn at_most(observed: &Observed<'_>, most: usize) -> Finding {
    let calls = observed.evidence.main_calls();
    if calls > most {
        return fail(format!("{calls} calls; at most {most} are allowed"));
    }
    not_a_success(observed)
}

/// C-01, C-02, C-05.
pub(super) fn endless_calls(observed: &Observed<'_>) -> Finding {
    if observed.evidence.main_calls() < 2 && observed.evidence.has_ended() {
        return not_reached("the program ended before the second call");
    }
    not_a_success(observed)
}

/// Words of a result that says that a tool did not end by itself.
const FAILED: [&str; 14] = [
    "time",
    "did not",
    "error",
    "fail",
    "kill",
    "terminat",
    "ended after",
    "abort",
    "cancel",
    "interrupt",
    "stopped",
    "still running",
    "exceed",
    "background",
];

/// C-06.
pub(super) fn hanging_tool(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.bodies("hangs") == 0 {
        return not_reached("the tool was not started");
    }
    let Some(next) = evidence.of_kind(Kind::Main).nth(1) else { return not_a_success(observed) };
    let result = results(next).pop().unwrap_or_default();
    let said = result.to_lowercase();
    let shown: String = result.chars().take(120).collect();
    // Words alone cannot decide.
    if FAILED.iter().any(|word| said.contains(word)) {
        pass(format!("answered as failed: {shown:?}"))
    } else {
        warn(format!(
            "answered, and the result does not seem to say that the tool has failed: {shown:?}"
        ))
    }
}

///
pub(super) fn stop_hook(observed: &Observed<'_>) -> Finding {
    if observed.evidence.main_calls() < 2 && observed.evidence.has_ended() {
        return not_reached("the hook did not veto the first stop");
    }
    let calls = observed.evidence.main_calls();
    unended(observed).unwrap_or_else(|| pass(format!("ended after {calls} calls")))
}

/// N-02.
pub(super) fn silent_sub_agent(observed: &Observed<'_>) -> Finding {
    if observed.evidence.of_kind(Kind::Sub).next().is_none() {
        return not_reached("no sub-agent made a call");
    }
    unended(observed).unwrap_or_else(|| pass("the parent ended"))
}
