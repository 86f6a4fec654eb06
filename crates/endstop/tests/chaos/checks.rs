//! Invariants of every run, however it was answered and stopped.
//!
//! ```text
//! for problem in checks::outcome(&outcome, &asked) { tally.broken(&problem); }
//! ```

use crate::rough::WORDS;
use endstop::event::{AgentEvent, AgentEventKind, CallId};
use endstop::{
    Category, Limits, Outcome, Part, Termination,
    core::{Decision, Layer},
};
use std::time::Duration;

/// The conditions of a run that its outcome is checked against.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// The limits that were in force, one after the other.
    pub(crate) limits: Vec<Limits>,
    /// `true` if the run was cancelled or its handle dropped.
    pub(crate) cancel: bool,
    pub(crate) terminate: bool,
    /// `true` if the run contains user code that refuses and panics.
    pub(crate) rough: bool,
    /// Time from before its start until after its end.
    pub(crate) took: Duration,
}

/// Returns the invariants that an outcome violates.
pub(crate) fn outcome(outcome: &Outcome, asked: &Asked) -> Vec<String> {
    let termination = outcome.termination;
    let mut problems = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            problems.push(format!("{termination}: {what}"));
        }
    };
    let written = serde_json::to_value(outcome).unwrap_or_default();
    must(written["termination"] == termination.as_str(), "the JSON has another termination");
    must(written["category"] == termination.category().as_str(), "the JSON has another category");
    // The definition of success is repeated here on purpose, to check `is_success` against it.
    let success = matches!(termination, Termination::Stop | Termination::Submitted);
    must(outcome.is_success() == success, "`is_success` is wrong");
    must((outcome.category() == Category::Success) == success, "the category is wrong");
    // Without a limit on empty turns a blank answer is accepted.
    let limits = &asked.limits;
    let any = |holds: fn(&Limits) -> bool| limits.iter().any(holds);
    let blank = any(|limits| limits.max_empty_turns.is_none());
    must(!success || blank || outcome.answer().is_some(), "a success without an answer");
    must(!outcome.also.contains(&termination), "`also` contains the termination itself");
    let decided = &outcome.decided_by;
    must(!decided.evidence.is_empty(), "`decided_by` is empty");

    // Only the panics that this program makes are allowed as faults.
    let faulty = decided.layer == Layer::Fault;
    let panicked =
        asked.rough && decided.evidence.ends_with(WORDS) && decided.decision != Decision::Driver;
    must(!faulty || panicked, &format!("a fault of {}: {}", decided.decision, decided.evidence));
    let halted = termination == Termination::ErrorHalted;
    must(!halted || asked.rough && outcome.halted_reason.is_some(), "it was not halted");
    must(termination != Termination::Cancelled || asked.cancel, "it was not cancelled");
    must(termination != Termination::Terminated || asked.terminate, "it was not terminated");
    let timeout = any(|limits| limits.timeout.is_some());
    must(termination != Termination::ErrorTimeout || timeout, "no time limit");
    // One of them is enough, because a limit may have been lowered after the last turn.
    let turns =
        limits.iter().any(|limits| limits.max_turns.is_none_or(|most| outcome.turns <= most));
    must(turns, "too many turns");
    must(outcome.model_calls >= outcome.turns, "a turn without a call");
    must(outcome.duration <= asked.took, "the reported duration is too long");
    let calls: u32 = outcome.models.iter().map(|model| model.calls).sum();
    must(outcome.models.is_empty() || calls == outcome.model_calls, "calls of no model");
    let open = termination == Termination::Stop && !outcome.background.is_empty();
    must(!open, "an answer in text did not wait for background work");

    let handed_over = outcome.hand_over.is_some();
    let wraps_up = any(|limits| limits.wrap_up);
    must(!handed_over || wraps_up && !success, "a hand-over that was not asked for");
    let verdicts = outcome.verify_rounds.iter().filter(|round| round.passed).count();
    let rounds = outcome.verify_rounds.len();
    let most = limits.iter().filter_map(|limits| limits.verify_rounds);
    let (least, most) = (most.clone().min(), most.max());
    if limits.iter().all(|limits| limits.verify_rounds.is_some()) {
        must(!success || outcome.verified == Some(true), "a success that was not accepted");
        must(success || verdicts == 0, "an accepted answer is not the ending");
    }
    if let (Some(least), Some(most)) = (least, most) {
        must(rounds <= most as usize, "too many rounds");
        let all = rounds >= least as usize && verdicts == 0;
        must(termination != Termination::ErrorNotVerified || all, "rounds were left");
    }

    // Providers reject a conversation in which a call has no result.
    let parts = || outcome.messages.iter().flat_map(|message| &message.parts);
    let calls = parts().filter(|part| matches!(part, Part::ToolCall(_))).count();
    let results = parts().filter(|part| matches!(part, Part::ToolResult(_))).count();
    must(calls == results, &format!("{calls} calls and {results} results"));
    problems
}

/// Returns the invariants that the events of a run violate which this process has parked.
pub(crate) fn parked(events: &[AgentEvent]) -> Vec<String> {
    let mut problems = Vec::new();
    if !matches!(events.last().map(|event| &event.kind), Some(AgentEventKind::Parked { .. })) {
        problems.push("the park is not the last event".to_owned());
    }
    if events.iter().any(|event| matches!(event.kind, AgentEventKind::Finished { .. })) {
        problems.push("a parked run has ended".to_owned());
    }
    problems
}

/// Returns the invariants that the events of a run violate, compared with its outcome. `whole` if they
/// are those of the whole run, and not of its last part.
pub(crate) fn events(events: &[AgentEvent], outcome: &Outcome, whole: bool) -> Vec<String> {
    let mut problems = Vec::new();
    let ended =
        events.iter().filter(|event| matches!(event.kind, AgentEventKind::Finished { .. })).count();
    if ended != 1 {
        problems.push(format!("{}: it ended {ended} times", outcome.termination));
    }
    match events.last().map(|event| &event.kind) {
        Some(AgentEventKind::Finished { outcome: told, .. }) if **told == *outcome => {}
        Some(AgentEventKind::Finished { outcome: told, .. }) => {
            problems.push(format!("the event has {told:?}, the outcome is {outcome:?}"));
        }
        _ => problems.push(format!("{}: the ending is not the last event", outcome.termination)),
    }
    // The events of nested runs pass through the same handle, with a path; their turns are in
    // their own outcomes.
    let own = events.iter().filter(|event| event.path().is_empty());
    let turns =
        own.filter(|event| matches!(event.kind, AgentEventKind::TurnFinished { .. })).count();
    if whole && turns != outcome.turns as usize {
        problems.push(format!("events of {turns} turns, the outcome has {}", outcome.turns));
    }
    let (mut started, mut ended) = (Vec::new(), Vec::new());
    for event in events {
        match &event.kind {
            AgentEventKind::ToolStarted { call_id, .. } => started.push(call_id),
            AgentEventKind::ToolFinished { call_id, .. } => ended.push(call_id),
            _ => {}
        }
    }
    for call in &started {
        // Compared by number, because providers may use an id again in a later turn.
        let times = |all: &[&CallId]| all.iter().filter(|other| other == &call).count();
        if times(&started) > times(&ended) {
            problems.push(format!("{}: the call {call} never ended", outcome.termination));
        }
    }
    problems
}
