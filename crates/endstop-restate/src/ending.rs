//! Endings of runs that no worker can end: the engine has killed them, or their agent cannot be
//! built. The kernel decides them from the events that are stored.

use crate::step::{Past, Step, StepEnd, StoredRecord};
use endstop::core::replay::{self, close};
use endstop::core::{Event, EventKind, Resumption, Run, RunSpec, Step as RunStep};
use endstop::journal::{Record, RunHeader};
use endstop::{Message, MessageId, Outcome, Role};
use std::time::Duration;

/// The reason why a run is ended from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The run cannot continue. It ends as `error_during_execution`, with this evidence.
    Failed(String),
    /// The engine's administrator killed the run. It ends as `terminated`.
    Killed,
}

/// Ends a run after its stored steps: returns the step with its last events and its outcome. If its
/// ending was already decided, this is the ending, whatever the cause. Calls that were in progress
/// count as aborted, and what they may have cost is part of the outcome. Nothing is called.
///
/// ```
/// use endstop_restate::{Cause, Past, end_run};
/// let (step, outcome) = end_run(&Past::default(), "r1", "Say hello.", &Cause::Killed, 0);
/// assert_eq!(outcome.termination.as_str(), "terminated");
/// assert!(step.end.is_some());
/// ```
pub fn end_run(
    past: &Past,
    id: &str,
    task: &str,
    cause: &Cause,
    wall_ms: u64,
) -> (Step, Box<Outcome>) {
    let ended = from_events(past, id, cause);
    let ended = ended.unwrap_or_else(|| unstarted(id, task, cause, wall_ms));
    let Ended { header, events, outcome } = ended;
    let records = events.iter().map(|event| StoredRecord::from(&record(event, wall_ms))).collect();
    let text = serde_json::to_string(&*outcome).unwrap_or_default();
    let after = past.last().map(str::to_owned);
    let end = Some(StepEnd::Ended { outcome: text });
    (Step { after, header, records, steered: Vec::new(), end }, outcome)
}

/// The events that are added to a run, and its outcome.
struct Ended {
    header: Option<String>,
    events: Vec<Event>,
    outcome: Box<Outcome>,
}

/// Replays the stored events and ends the run. `None` if it has none, or they cannot be replayed.
fn from_events(past: &Past, id: &str, cause: &Cause) -> Option<Ended> {
    let recorded = past.recorded().ok().filter(|recorded| !recorded.events.is_empty())?;
    // A policy of code cannot be rebuilt here. It could only have ended the run earlier.
    let spec = || {
        let spec = recorded.spec(None).unwrap_or_else(|_| recorded.header.spec.clone_with(None));
        RunSpec { run_id: Some(id.to_owned()), ..spec }
    };
    if let Some((events, outcome)) = close(spec(), &recorded.events) {
        return Some(Ended { header: None, events, outcome });
    }
    let on = replay::resume(spec, recorded.events.clone(), Resumption::default()).ok()?;
    let at = on.events.last()?.at;
    let mut events = on.events.get(on.kept..)?.to_vec();
    let outcome = match on.step {
        RunStep::Continue(run) => fed(run, &mut events, at, cause),
        RunStep::Ended(outcome) => outcome,
    };
    Some(Ended { header: None, events, outcome })
}

/// Ends a run that has not begun. Returns its header, too, so that it can be replayed.
fn unstarted(id: &str, task: &str, cause: &Cause, wall_ms: u64) -> Ended {
    let input = Message::text(MessageId(1), Role::User, task);
    let spec = || RunSpec { run_id: Some(id.to_owned()), ..RunSpec::new(vec![input.clone()]) };
    let header = RunHeader {
        id: id.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_ms: wall_ms,
        spec: spec(),
        ..RunHeader::default()
    };
    let mut events = Vec::new();
    let outcome = fed(Run::new(spec()), &mut events, Duration::ZERO, cause);
    Ended { header: header.to_json().ok(), events, outcome }
}

/// Feeds the cause. A run that still waits for something after it is terminated, which waits for
/// nothing.
fn fed(run: Run, events: &mut Vec<Event>, at: Duration, cause: &Cause) -> Box<Outcome> {
    let mut next = |kind| {
        let event = Event::new(at, kind);
        events.push(event.clone());
        event
    };
    let first = match cause {
        Cause::Failed(why) => EventKind::Fault { name: "engine".to_owned(), message: why.clone() },
        Cause::Killed => EventKind::Terminate,
    };
    match run.handle(next(first), &mut Vec::new()) {
        RunStep::Ended(outcome) => outcome,
        RunStep::Continue(run) => run.finish(next(EventKind::Terminate), &mut Vec::new()),
    }
}

fn record(event: &Event, wall_ms: u64) -> Record {
    Record {
        at: event.at,
        wall_ms,
        name: event.kind.name().to_owned(),
        event: serde_json::to_string(&event.kind).unwrap_or_default(),
        effects: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Termination;

    #[test]
    fn unstarted_run_gets_typed_ending() {
        let cause = Cause::Failed("the agent \"a\" is not configured".to_owned());
        let (step, outcome) = end_run(&Past::default(), "r1", "task", &cause, 0);
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
        assert!(outcome.decided_by.evidence.contains("is not configured"), "{outcome:?}");
        assert_eq!(outcome.run_id.as_deref(), Some("r1"));
        let Some(StepEnd::Ended { outcome: text }) = step.end else { panic!("{step:?}") };
        let read: Outcome = serde_json::from_str(&text).unwrap();
        assert_eq!(read.termination, outcome.termination);
    }
}
