//! What must hold of every run, however it was answered and stopped.
//!
//! ```text
//! for problem in checks::outcome(&outcome, &asked) { tally.broken(&problem); }
//! ```

use crate::rough::WORDS;
use endstop::agent::AgentEvent;
use endstop::{Category, Limits, Outcome, Part, RunEvent, Termination};
use std::time::Duration;

/// What was asked of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) limits: Limits,
    /// It was cancelled, or its handle dropped.
    pub(crate) cancel: bool,
    pub(crate) terminate: bool,
    /// There is user code in it that says no, and panics.
    pub(crate) rough: bool,
    /// From before its start until after its end.
    pub(crate) took: Duration,
}

/// What does not hold of an outcome.
pub(crate) fn outcome(outcome: &Outcome, asked: &Asked) -> Vec<String> {
    let termination = outcome.termination;
    let mut problems = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            problems.push(format!("{termination}: {what}"));
        }
    };
    let written = serde_json::to_value(outcome).unwrap_or_default();
    must(written["termination"] == termination.as_str(), "it is written as another");
    must(written["category"] == termination.category().as_str(), "its category is another's");
    let success = matches!(termination, Termination::Stop | Termination::Submitted);
    must(outcome.is_success() == success, "a success or not");
    must((outcome.category() == Category::Success) == success, "the category of another");
    // Where a blank answer is one, there may be none.
    let blank = asked.limits.max_empty_turns.is_none();
    must(!success || blank || outcome.answer().is_some(), "a success without an answer");
    must(!outcome.also.contains(&termination), "it is also itself");
    let decided = &outcome.decided_by;
    must(!decided.layer.is_empty() && !decided.evidence.is_empty(), "nobody decided it");

    let faulty = decided.layer == "fault";
    let panicked = asked.rough && decided.evidence.ends_with(WORDS) && decided.name != "driver";
    must(!faulty || panicked, &format!("a fault of {}: {}", decided.name, decided.evidence));
    let halted = termination == Termination::ErrorHalted;
    must(!halted || asked.rough && outcome.halted_reason.is_some(), "nobody halted it");
    must(termination != Termination::Cancelled || asked.cancel, "nobody cancelled it");
    must(termination != Termination::Terminated || asked.terminate, "nobody terminated it");
    let limits = &asked.limits;
    must(termination != Termination::ErrorTimeout || limits.timeout.is_some(), "no time limit");
    must(limits.max_turns.is_none_or(|most| outcome.turns <= most), "too many turns");
    must(outcome.model_calls >= outcome.turns, "a turn without a call");
    must(outcome.duration <= asked.took, "it says that it took longer than it did");

    let parts = || outcome.messages.iter().flat_map(|message| &message.parts);
    let calls = parts().filter(|part| matches!(part, Part::ToolCall(_))).count();
    let results = parts().filter(|part| matches!(part, Part::ToolResult(_))).count();
    must(calls == results, &format!("{calls} calls and {results} results"));
    problems
}

/// What does not hold of the events of a run, all of them, and its outcome.
pub(crate) fn events(events: &[AgentEvent], outcome: &Outcome) -> Vec<String> {
    let mut problems = Vec::new();
    let ended = events.iter().filter(|event| matches!(event, AgentEvent::Ended(_))).count();
    if ended != 1 {
        problems.push(format!("{}: it ended {ended} times", outcome.termination));
    }
    match events.last() {
        Some(AgentEvent::Ended(told)) if **told == *outcome => {}
        Some(AgentEvent::Ended(told)) => {
            problems.push(format!("told {told:?}, and the outcome is {outcome:?}"));
        }
        _ => problems.push(format!("{}: the ending is not the last event", outcome.termination)),
    }
    let turns =
        events.iter().filter(|event| matches!(event, AgentEvent::Run(RunEvent::TurnEnded { .. })));
    let turns = turns.count();
    if turns != outcome.turns as usize {
        problems.push(format!("{turns} turns told of {}", outcome.turns));
    }
    let (mut started, mut ended) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            AgentEvent::Run(RunEvent::ToolStarted { call_id, .. }) => started.push(call_id),
            AgentEvent::Run(RunEvent::ToolEnded { call_id, .. }) => ended.push(call_id),
            _ => {}
        }
    }
    for call in &started {
        let times = |all: &[&String]| all.iter().filter(|other| other == &call).count();
        if times(&started) > times(&ended) {
            problems.push(format!("{}: the call {call} never ended", outcome.termination));
        }
    }
    problems
}
