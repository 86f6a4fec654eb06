//! Level 4: the ending is accountable.

use super::judging::{Observed, a_success, end, not_a_success, success, unended};
use super::verdict::{Finding, Verdict, fail, not_reached, pass, warn};
use crate::case::{PRICES, ReportedUsage};
use crate::evidence::{Call, Exit, Kind};
use crate::vocabulary::Capability;

/// The tokens of a reported usage: input, output, read from a cache, written to one.
fn tokens(usage: ReportedUsage) -> [f64; 4] {
    match usage {
        ReportedUsage::Small => [1_000.0, 20.0, 0.0, 0.0],
        ReportedUsage::Large => [20_000.0, 2_000.0, 0.0, 0.0],
        ReportedUsage::Cached => [1_000.0, 20.0, 400_000.0, 20_000.0],
        ReportedUsage::Absent | ReportedUsage::Zero => [0.0; 4],
    }
}

fn cost(usage: ReportedUsage) -> f64 {
    tokens(usage).iter().zip(PRICES).map(|(tokens, price)| tokens * price / 1e6).sum()
}

/// The number of the call in which the ceiling of a case is reached.
fn calls_of_budget(observed: &Observed<'_>) -> usize {
    let usage = observed.case.answers.first().map_or(ReportedUsage::Small, |one| one.usage);
    let ceiling = observed.case.limits.budget_usd.unwrap_or(0.0);
    (ceiling / cost(usage)).ceil().max(1.0) as usize
}

/// Fails if the profile has a place for a reason, and there is none.
fn typed(observed: &Observed<'_>) -> Option<Finding> {
    let is_missing =
        observed.profile.can(Capability::Json) && observed.evidence.record.reason.is_none();
    is_missing.then(|| fail(format!("there is no reason: {}", end(observed.evidence))))
}

/// L-01.
pub(super) fn turn_cap(observed: &Observed<'_>) -> Finding {
    let most = observed.case.limits.turns.unwrap_or(0) as usize;
    let calls = observed.evidence.main_calls();
    if calls > most || observed.evidence.has_ended() && calls != most {
        return fail(format!("{calls} calls with a cap of {most}"));
    }
    if let Some(finding) = unended(observed) {
        return finding;
    }
    match success(observed.evidence) {
        Some(how) => fail(format!("{how} at the cap")),
        None => typed(observed).unwrap_or_else(|| names_turns(observed)),
    }
}

/// Words of a reason that names a cap on turns.
const TURNS: [&str; 8] =
    ["turn", "step", "iteration", "cycle", "round", "request", "call", "recursion"];

/// Judges the reason of a run that has reached the cap on turns. Words alone cannot decide.
fn names_turns(observed: &Observed<'_>) -> Finding {
    let reason = observed.evidence.record.reason.as_deref().unwrap_or_default().to_lowercase();
    if reason.is_empty() || TURNS.iter().any(|word| reason.contains(word)) {
        return pass(end(observed.evidence));
    }
    warn(format!("the reason does not seem to name the cap on turns: {}", end(observed.evidence)))
}

/// Describes a reported cost that is not that of the calls. How a budget reserves the next call is left to the agent.
fn wrong_cost(observed: &Observed<'_>) -> Option<String> {
    let reported = observed.evidence.record.cost.as_ref()?.as_f64()?;
    let usage = observed.case.answers.first().map_or(ReportedUsage::Small, |one| one.usage);
    let main = observed.evidence.main_calls() as f64;
    let other = observed.evidence.calls.len() as f64 - main;
    let [_, _, _, written] = tokens(usage);
    // OpenAI has no price for tokens that are written to a cache: they are input there.
    let as_input = written * (PRICES[3] - PRICES[0]) / 1e6;
    let most = main * cost(usage) + other * cost(ReportedUsage::Small);
    let least = most - main * as_input;
    let is_right = reported >= least * 0.98 && reported <= most * 1.02;
    (!is_right).then(|| format!("a cost of ${reported:.4} is reported; the calls cost ${most:.4}"))
}

/// L-03, L-04.
pub(super) fn budget(observed: &Observed<'_>) -> Finding {
    let most = calls_of_budget(observed);
    let calls = observed.evidence.main_calls();
    let ceiling = observed.case.limits.budget_usd.unwrap_or(0.0);
    if calls > most {
        return fail(format!("{calls} calls; ${ceiling:.2} are reached in call {most}"));
    }
    let finding = not_a_success(observed);
    if finding.verdict != Verdict::Pass {
        return finding;
    }
    // The limit was kept; the report of the cost is a SHOULD.
    let wrong = || wrong_cost(observed).map(warn);
    typed(observed).or_else(wrong).unwrap_or(finding)
}

/// The most calls of a run whose usage is not reported. By its text, three of the case's answers cost more than its budget.
const UNREPORTED: usize = 20;

/// L-05.
pub(super) fn unreported(observed: &Observed<'_>) -> Finding {
    let calls = observed.evidence.main_calls();
    if calls > UNREPORTED {
        return fail(format!("{calls} calls under the budget, whose usage was not reported"));
    }
    let finding = not_a_success(observed);
    let is_zero =
        observed.evidence.record.cost.as_ref().and_then(serde_json::Value::as_f64) == Some(0.0);
    if finding.verdict == Verdict::Pass && is_zero {
        return fail("the cost that is not known is reported as zero");
    }
    finding
}

/// L-06.
pub(super) fn time_limit(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    if evidence.bodies("slow") == 0 {
        return not_reached("the tool was not started");
    }
    let limit = f64::from(observed.case.limits.seconds.unwrap_or(0));
    let took = evidence.seconds - evidence.first_call().unwrap_or(0.0);
    if took > limit + 2.0 {
        return fail(format!("{took:.1} s from the first call, with a limit of {limit:.0} s"));
    }
    let finding = not_a_success(observed);
    if finding.verdict != Verdict::Pass {
        return finding;
    }
    typed(observed).unwrap_or(finding)
}

/// L-07.
pub(super) fn two_limits(observed: &Observed<'_>) -> Finding {
    let finding = not_a_success(observed);
    if finding.verdict != Verdict::Pass {
        return finding;
    }
    if observed.evidence.record.number != 1 {
        return fail(format!("{} final records", observed.evidence.record.number));
    }
    typed(observed).unwrap_or(finding)
}

/// L-09.
pub(super) fn last_turn(observed: &Observed<'_>) -> Finding {
    let most = observed.case.limits.turns.unwrap_or(0) as usize;
    a_success(observed).err().unwrap_or_else(|| match observed.evidence.main_calls() {
        calls if calls == most => pass("a success in the last turn"),
        calls => not_reached(format!("{calls} calls with a cap of {most}")),
    })
}

/// S-05.
pub(super) fn late_answer(observed: &Observed<'_>) -> Finding {
    a_success(observed).err().unwrap_or_else(|| match observed.evidence.main_calls() {
        1 => pass("a success after the silence"),
        calls => fail(format!("{calls} calls: the silence was taken for a failure")),
    })
}

/// S-07.
pub(super) fn open_after_finish(observed: &Observed<'_>) -> Finding {
    let calls = observed.evidence.main_calls();
    if calls > 1 {
        return fail(format!("{calls} calls for an answer that was whole"));
    }
    a_success(observed).err().unwrap_or_else(|| pass("a success after one call"))
}

/// C-03.
pub(super) fn polls(observed: &Observed<'_>) -> Finding {
    let polls = observed.case.answers.len() - 1;
    let bodies = observed.evidence.bodies("poll");
    if let Err(finding) = a_success(observed) {
        return finding;
    }
    match bodies {
        0 => not_reached("no poll has run"),
        _ if bodies == polls => pass(format!("a success after {polls} polls")),
        _ => fail(format!("a success after {bodies} of {polls} polls")),
    }
}

///
pub(super) fn rate_limited(observed: &Observed<'_>) -> Finding {
    if let Err(finding) = a_success(observed) {
        return finding;
    }
    let calls: Vec<f64> = observed.evidence.of_kind(Kind::Main).map(|call| call.at).collect();
    match calls[..] {
        [first, second, ..] if second - first < 1.9 => fail(format!(
            "the second call came after {:.1} s; the provider asked for 2",
            second - first
        )),
        [first, second, ..] => pass(format!("a success, {:.1} s later", second - first)),
        _ => not_reached("there was no second call"),
    }
}

/// The last part in seconds of the silence before an answer, in which a call is not told from one that follows the answer.
const UNSURE: f64 = 0.1;

/// N-04.
pub(super) fn sub_agents(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let calls = evidence.calls.len();
    let subs = calls - evidence.main_calls();
    // The depth is bounded without the budget: a sub-agent then gets an error and asks again.
    let most = calls_of_budget(observed);
    // Agents that run at the same time may each have a call on its way when the answer that reaches the budget comes, which is
    // silent for a while first.
    let silence = observed.case.answers.first().map_or(0.0, |one| one.silence);
    let reached = evidence.calls.get(most - 1).map_or(f64::INFINITY, |call| call.at);
    let is_late = |call: &Call| call.at > reached + silence - UNSURE;
    if calls > 2 * most || evidence.calls.iter().any(is_late) {
        return fail(format!(
            "{calls} calls, {subs} of sub-agents; the parent's budget is reached in call {most}"
        ));
    }
    if subs == 0 {
        return not_reached("no sub-agent made a call");
    }
    not_a_success(observed)
}

/// O-01.
pub(super) fn one_record(observed: &Observed<'_>) -> Finding {
    let evidence = observed.evidence;
    let record = &evidence.record;
    match evidence.exit {
        // Nothing can be written after SIGKILL.
        Some(Exit::Status(137)) | None => return not_reached("the program was killed"),
        Some(Exit::Stopped(_)) => return not_reached("the suite ended the program"),
        Some(Exit::Status(_)) => {}
    }
    match record.number {
        0 => fail("there is no final record"),
        1 if !record.is_last => fail("other output follows the final record"),
        1 if record.reason.is_none() => fail("the final record has no reason"),
        1 if !record.has_usage => fail("the final record has no usage"),
        1 => pass("one final record"),
        n => fail(format!("{n} final records")),
    }
}
