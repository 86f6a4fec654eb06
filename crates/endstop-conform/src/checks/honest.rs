//! Level 2: the ending is honest.

use super::judging::{Observed, end, keeps_unknown, not_a_success, success, unended};
use super::results::results;
use super::verdict::{Finding, Verdict, fail, not_reached, pass, warn};

use crate::evidence::{Exit, Kind, Stopped};
use crate::provider::MARK;

/// T-02, T-03.
pub(super) fn cut_call(observed: &Observed<'_>) -> Finding {
    match observed.evidence.bodies("cut") {
        0 if matches!(
            observed.evidence.exit,
            Some(Exit::Stopped(Stopped::Calls | Stopped::Time))
        ) =>
        {
            // An agent that asks again for ever is judged by the checks of level 1.
            pass(format!("not run in {} calls", observed.evidence.main_calls()))
        }
        0 => not_a_success(observed),
        n => fail(format!("the body of the cut call has run {n} times")),
    }
}

/// T-05.
pub(super) fn refusal(observed: &Observed<'_>) -> Finding {
    match observed.evidence.main_calls() {
        calls @ 3.. => fail(format!("{calls} calls; at most one repetition is allowed")),
        _ => not_a_success(observed),
    }
}

/// T-06.
pub(super) fn pause(observed: &Observed<'_>) -> Finding {
    let finding = not_a_success(observed);
    if finding.verdict == Verdict::Pass && observed.evidence.main_calls() < 2 {
        return fail("the pause was not continued");
    }
    finding
}

/// T-07.
pub(super) fn unknown_finish(observed: &Observed<'_>) -> Finding {
    let finding = not_a_success(observed);
    if finding.verdict == Verdict::Pass && !keeps_unknown(observed.evidence) {
        return warn(format!("{}, but the provider's word is not in the output", finding.why));
    }
    finding
}

/// T-13.
pub(super) fn call_in_text(observed: &Observed<'_>) -> Finding {
    match observed.evidence.bodies("text") {
        0 => not_a_success(observed),
        _ => pass("the call was run"),
    }
}

/// S-01.
pub(super) fn lost_text(observed: &Observed<'_>) -> Finding {
    match observed.evidence.main_calls() {
        calls @ 7.. => fail(format!("{calls} calls; at most five repetitions are allowed")),
        _ => not_a_success(observed),
    }
}

/// Words about a part that could not be read. A file such as `session.json` in a banner says nothing about it.
const UNREADABLE: [&str; 22] = [
    "unreadable",
    "could not be read",
    "cannot read",
    "could not read",
    "not json",
    "not valid json",
    "invalid json",
    "bad json",
    "malformed",
    "parse error",
    "parsing error",
    "syntaxerror",
    "failed to parse",
    "not parse",
    "cannot parse",
    "jsondecodeerror",
    "json decod",
    "unexpected token",
    "expecting value",
    "skipped",
    "left out",
    "corrupt",
];

/// S-08.
pub(super) fn junk_chunk(observed: &Observed<'_>) -> Finding {
    if let Some(finding) = unended(observed) {
        return finding;
    }
    let evidence = observed.evidence;
    let is_said = [&evidence.stderr, &evidence.record.text].iter().any(|text| {
        let said = text.to_lowercase();
        UNREADABLE.iter().any(|words| said.contains(words))
    });
    match success(observed.evidence) {
        Some(_) if is_said => pass("a success, with a message about the part"),
        Some(how) => fail(format!("{how}, and the part is missing without a message")),
        None => pass(end(observed.evidence)),
    }
}

/// L-08.
pub(super) fn wrap_up(observed: &Observed<'_>) -> Finding {
    let most = observed.case.limits.turns.unwrap_or(0) as usize;
    let evidence = observed.evidence;
    // A call without tools within the cap is a summary, too.
    if evidence.main_calls() <= most && evidence.of_kind(Kind::Other).next().is_none() {
        return not_reached("the agent asked for no summary at the cap");
    }
    not_a_success(observed)
}

///
pub(super) fn error_text(observed: &Observed<'_>) -> Finding {
    if let Some(Exit::Stopped(Stopped::Calls)) = observed.evidence.exit {
        // judge the number of calls. The run has no verdict whose answer could be the text.
        let calls = observed.evidence.main_calls();
        return not_reached(format!("the suite ended the run after {calls} calls"));
    }
    if let Some(finding) = unended(observed) {
        return finding;
    }
    match success(observed.evidence) {
        Some(how) if observed.evidence.answer().contains(MARK) => {
            fail(format!("{how}, and the answer is the text of the error"))
        }
        Some(how) => pass(format!("{how}, without the text of the error")),
        None => pass(end(observed.evidence)),
    }
}

/// Words that say that work is not finished.
const UNFINISHED: [&str; 22] = [
    "limit",
    "turn cap",
    "max_turns",
    "max turns",
    "maximum number",
    "maximum of",
    "turns",
    "not finish",
    "not complete",
    "incomplete",
    "unfinished",
    "stopped",
    "truncated",
    "did not",
    "error:",
    "failed",
    "abort",
    "partial",
    "exhausted",
    "ran out",
    "out of steps",
    "more steps",
];

/// N-01.
pub(super) fn sub_agent_cap(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.of_kind(Kind::Sub).next().is_none() {
        return not_reached("no sub-agent made a call");
    }
    let Some(next) = evidence.of_kind(Kind::Main).nth(1) else {
        return unended(observed).unwrap_or_else(|| {
            not_reached(format!("the parent made no second call: {}", end(evidence)))
        });
    };
    let Some(result) = results(next).pop() else {
        return fail("the parent's model got no result of the sub-agent");
    };
    let said = result.to_lowercase();
    let shown: String = result.chars().take(120).collect();
    let named = &observed.profile.verdict.unfinished;
    if !named.is_empty() {
        return if named.iter().any(|word| said.contains(&word.to_lowercase())) {
            pass(format!("the result says it in the words of the profile: {shown:?}"))
        } else {
            fail(format!("the result has none of the words of the profile: {shown:?}"))
        };
    }
    // A list of words cannot decide what a sentence says.
    if UNFINISHED.iter().any(|word| said.contains(word)) {
        pass(format!("the result seems to say it: {shown:?}"))
    } else {
        warn(format!(
            "the result does not seem to say that the sub-agent did not finish; a profile can name the words in `verdict.unfinished`: {shown:?}"
        ))
    }
}

/// N-03.
pub(super) fn background(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.bodies("begins") == 0 {
        return not_reached("the background task was not started");
    }
    if let Some(finding) = unended(observed) {
        return finding;
    }
    let settled =
        evidence.started.iter().any(|body| body.name == "settled" && body.at <= evidence.seconds);
    let has = |text: &str, words: &[&str]| {
        let text = text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    };
    let words = ["background", "still running", "open_tasks", "unsettled"];
    let is_listed = has(&evidence.record.text, &words);
    // A transcript has the call itself, in which the word says nothing.
    let said = evidence.stdout.lines().chain(evidence.stderr.lines());
    let is_said = said.filter(|line| !line.contains(['{', '[', '='])).any(|line| {
        has(
            line,
            &["still running", "unsettled", "not finished", "unfinished", "in the background"],
        )
    });
    match success(evidence) {
        Some(_) if settled => pass("the task was waited for"),
        Some(_) if is_listed => pass("the record lists the task as open"),
        Some(how) if is_said => {
            warn(format!("{how}; the output seems to say that the task is open"))
        }
        Some(how) => fail(format!("{how}, while the background task was open")),
        None => pass(end(evidence)),
    }
}

/// O-02.
pub(super) fn agreement(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let (Some(Exit::Status(status)), Some(success)) = (evidence.exit, evidence.record.success)
    else {
        return not_reached("there is no exit status or no record");
    };
    if (status == 0) == success {
        return pass("exit status and record agree");
    }
    let says = if success { "success" } else { "no success" };
    fail(format!("exit status {status}, and the record says {says}"))
}
