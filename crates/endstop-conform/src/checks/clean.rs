//! Level 3: the ending is clean.

use super::judging::{Observed, a_success, end, success};
use super::results::{answered, results};
use super::verdict::{Finding, fail, not_reached, pass, warn};
use crate::evidence::{Call, Evidence, Exit, Kind};

/// Time in seconds that an interrupted run has to end.
const END: f64 = 5.0;

/// S-02.
pub(super) fn lost_arguments(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    match (evidence.bodies("lost"), evidence.main_calls()) {
        (bodies @ 2.., _) => fail(format!("the body has run {bodies} times")),
        // Nothing was repeated.
        (0, ..=1) if evidence.has_ended() && success(evidence).is_none() => {
            pass("the run has ended as failed, and the body has not run")
        }
        (_, ..=1) => not_reached("the lost response was not asked for again"),
        (1, _) => pass("the body has run once"),
        (_, _) => not_reached("the body was not started"),
    }
}

/// C-04.
pub(super) fn parallel_calls(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let Some(next) = evidence.of_kind(Kind::Main).nth(1) else {
        return a_success(observed)
            .err()
            .unwrap_or_else(|| fail("the run ended without a second call"));
    };
    if let Some(problem) = &next.invalid {
        return fail(format!("the next request is not valid: {problem}"));
    }
    let said = results(next);
    if said.len() < 2 || !said.iter().any(|result| result.contains("went-well")) {
        return fail(format!("the next request has {} of the two results", said.len().min(1)));
    }
    // The files of the started bodies have these names.
    let of = |body: &str| format!("/{body}.");
    let is_swapped = |(arguments, result): &(String, String)| {
        result.contains("went-well") && arguments.contains(&of("fails"))
            || result.contains("went-wrong") && arguments.contains(&of("works"))
    };
    if answered(next).iter().any(is_swapped) {
        return fail("a result stands under the id of the other call");
    }
    a_success(observed)
        .err()
        .unwrap_or_else(|| pass("both calls were answered, and the run continued"))
}

/// C-07.
pub(super) fn same_ids(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let Some(next) = evidence.of_kind(Kind::Main).nth(1) else {
        return match evidence.exit {
            Some(Exit::Status(status)) if status != 0 => pass("the run ended as failed"),
            _ => not_reached("there is no second call with the results"),
        };
    };
    if evidence.started.is_empty() {
        return not_reached("the calls were not run");
    }
    let said = results(next);
    let at = |text: &str| said.iter().position(|result| result.contains(text));
    match (at("result-first"), at("result-second")) {
        (Some(first), Some(second)) if first < second => {
            pass("both results, in the order of the calls")
        }
        (Some(_), Some(_)) => fail("the results are swapped"),
        (first, second) => {
            let missing = usize::from(first.is_none()) + usize::from(second.is_none());
            fail(format!("{missing} of the two results are lost"))
        }
    }
}

///
pub(super) fn interrupt(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let Some(acted) = evidence.acted else {
        return not_reached(format!("the run ended before the signal: {}", end(evidence)));
    };
    let took = evidence.seconds - acted;
    match evidence.exit {
        Some(Exit::Status(0)) => fail("exit status 0 after SIGINT"),
        Some(Exit::Status(_)) if took > END => fail(format!("ended {took:.1} s after SIGINT")),
        Some(Exit::Status(status)) => match call_after(evidence, acted) {
            Some(late) => fail(format!("a call {:.1} s after SIGINT", late - acted)),
            None if evidence.connection_left => fail("the connection to the model stayed open"),
            None => pass(format!("exit status {status} {took:.1} s after SIGINT")),
        },
        _ => fail(format!("still running {took:.0} s after SIGINT")),
    }
}

///
pub(super) fn interrupted_pause(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.acted.is_none() && evidence.has_ended() && success(evidence).is_none() {
        // Nothing demands a further attempt.
        return pass(format!("no pause: {}", end(evidence)));
    }
    interrupt(observed)
}

/// The time of the first call after another time. A call that was on its way then is not counted.
pub(super) fn call_after(evidence: &Evidence, time: f64) -> Option<f64> {
    let calls = &evidence.calls[..evidence.calls_of_first.min(evidence.calls.len())];
    calls.iter().map(|call| call.at).find(|at| *at > time + 0.5)
}

///
pub(super) fn stopped_tool(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.bodies("runs") == 0 {
        return not_reached("the tool was not started");
    }
    if evidence.acted.is_none() {
        return not_reached(format!("the run ended before the signal: {}", end(evidence)));
    }
    if !evidence.has_ended() {
        return fail("the program did not end after the signal");
    }
    match evidence.left_of_tool.as_deref() {
        None => not_reached("this system does not show the processes of a program"),
        Some([]) => pass("no process of the tool was left"),
        Some(left) => fail(format!("left after {} s: {}", observed.case.settle, left.join(", "))),
    }
}

///
pub(super) fn late_call(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let Some(acted) = evidence.acted else {
        return not_reached(format!("the run ended before the signal: {}", end(evidence)));
    };
    if evidence.started.iter().any(|body| body.name == "late" && body.at < acted) {
        return not_reached("the call arrived before the signal");
    }
    match evidence.bodies("late") {
        0 => pass("the call was not started"),
        _ => fail("the call that was streamed after SIGINT was started"),
    }
}

/// Returns the first call of the second start that continues the conversation of the first.
fn continued(evidence: &Evidence) -> Result<&Call, Finding> {
    if evidence.again.is_none() {
        return Err(not_reached("the program was not started again"));
    }
    let calls = evidence.calls.get(evidence.calls_of_first..).unwrap_or_default();
    let Some(call) = calls.iter().find(|call| call.kind == Kind::Main) else {
        return Err(not_reached("the second start made no call"));
    };
    // The first answer says it.
    if call.body.to_string().contains("I run it.") {
        Ok(call)
    } else {
        Err(not_reached("the second start did not continue the conversation"))
    }
}

///
pub(super) fn valid_history(observed: &Observed<'_>) -> Finding {
    if observed.evidence.bodies("runs") == 0 {
        return not_reached("the tool was not started");
    }
    match continued(observed.evidence) {
        Err(finding) => finding,
        Ok(call) => match &call.invalid {
            Some(problem) => fail(format!("a provider refuses the history: {problem}")),
            None => pass("the history is valid"),
        },
    }
}

/// Words of an output that tells that a call is run again.
const REPEATED: [&str; 7] =
    ["again", "repeat", "retry", "retried", "rerun", "re-run", "second time"];

/// Words of a result, or of an output, that tells that a call has no result that is known.
const NOT_KNOWN: [&str; 16] = [
    "not known",
    "unknown",
    "interrupt",
    "killed",
    "crash",
    "lost",
    "abort",
    "cancel",
    "not finish",
    "not complete",
    "incomplete",
    "did not",
    "no result",
    "no output",
    "error",
    "stopped",
];

/// D-01.
pub(super) fn resumed(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.bodies("runs") == 0 {
        return not_reached("the tool was not started");
    }
    let all = evidence.started.iter().filter(|body| body.name == "runs").count();
    let again = evidence.again.as_ref();
    let lines =
        again.map(|again| format!("{}\n{}", again.stdout, again.stderr)).unwrap_or_default();
    // The names of members of a record say nothing.
    let said: String = lines.lines().filter(|line| !line.trim_start().starts_with('{')).collect();
    let says = |text: &str, words: &[&str]| {
        let text = text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    };
    if all > 1 && says(&said, &REPEATED) {
        return warn(format!("the body has run {all} times, and the output seems to say so"));
    }
    if all > 1 {
        return fail(format!("the body has run {all} times, and the output does not say so"));
    }
    let next = match continued(evidence) {
        Err(finding) => return finding,
        Ok(next) => next,
    };
    let result = results(next).pop().unwrap_or_default();
    if says(&said, &NOT_KNOWN) || says(&result, &NOT_KNOWN) {
        return pass("the body was not repeated, and its result is not said to be known");
    }
    let shown: String = result.chars().take(120).collect();
    warn(format!(
        "not repeated, and neither the output nor the result says that it is not known: {shown:?}"
    ))
}
