//! Compares a run with its journal: the outcome and the effects of its replay, the messages of the user,
//! and the calls that must not run.
//!
//! ```text
//! for problem in stored::check(&journal, &run, &expected) { tally.broken(&problem); }
//! ```

use endstop::core::{EffectId, EventKind, Replay};
use endstop::journal::{JournalError, Period, RecordedRun, SpendBooks, SqliteJournal, brief};
use endstop::{NanoUsd, Outcome};
use serde_json::Value;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// The time at which all ceilings of a day are used, in Unix milliseconds. It stands still, so that no
/// round reaches the next day.
pub(crate) const NOON_MS: u64 = 20_000 * DAY_MS + DAY_MS / 2;

/// The content that the journal of a run must have.
pub(crate) struct Expected<'a> {
    /// The outcome as the handle gave it.
    pub(crate) outcome: &'a Outcome,
    /// The messages that were accepted, in order.
    pub(crate) said: Vec<String>,
    /// The requests whose calls must not run.
    pub(crate) barred: &'a [EffectId],
    /// `true` if the run can be replayed: its policy is not in code.
    pub(crate) replays: bool,
    /// Has the replay lose the last event, as a planted fault.
    pub(crate) fault: bool,
}

/// Returns the differences between a run and its journal.
pub(crate) fn check(journal: &SqliteJournal, run: &str, expected: &Expected<'_>) -> Vec<String> {
    match compare(journal, run, expected) {
        Ok(problems) => problems,
        Err(error) => vec![error.to_string()],
    }
}

fn compare(
    journal: &SqliteJournal,
    id: &str,
    expected: &Expected<'_>,
) -> Result<Vec<String>, JournalError> {
    let mut run = journal.load(id)?;
    let mut problems = Vec::new();
    if let Some(damage) = &run.damage {
        problems.push(format!("the journal is damaged: {damage}"));
    }
    let live = serde_json::to_string(expected.outcome).unwrap_or_default();
    let stored = run.outcome.as_ref().map(Value::to_string);
    if stored.as_ref() != Some(&live) {
        problems.push(format!("the journal has {stored:?}, the outcome is {live}"));
    }
    if expected.fault {
        run.events.pop();
        run.effects.pop();
    }
    if expected.replays {
        problems.extend(replayed(&run, &live)?);
    }
    problems.extend(said(&run, &expected.said));
    for id in expected.barred {
        problems.extend(ran(&run, *id));
    }
    Ok(problems)
}

/// Replays the run, and compares each request of the kernel and the outcome.
fn replayed(run: &RecordedRun, live: &str) -> Result<Option<String>, JournalError> {
    let mut replay = Replay::new(run.spec(None)?);
    for (nth, (event, asked)) in run.events.iter().zip(&run.effects).enumerate() {
        let name = event.kind.name();
        let effects: Vec<Value> = replay.feed(event.clone()).iter().filter_map(brief).collect();
        if effects != *asked {
            let what = format!("event {nth}, {name}: asked {asked:?}, and the replay {effects:?}");
            return Ok(Some(what));
        }
    }
    let again = replay.outcome().and_then(|outcome| serde_json::to_string(outcome).ok());
    let differs = again.as_deref() != Some(live);
    Ok(differs.then(|| format!("the replay ends as {again:?}, the run as {live}")))
}

/// Each accepted message is an event, once and in order.
fn said(run: &RecordedRun, accepted: &[String]) -> Option<String> {
    let texts = run.events.iter().filter_map(|event| match &event.kind {
        EventKind::Said { text } => Some(text),
        _ => None,
    });
    let texts: Vec<&String> = texts.collect();
    let same = texts.iter().copied().eq(accepted);
    (!same).then(|| format!("the journal has the messages {texts:?}, accepted were {accepted:?}"))
}

/// Returns the call of a request that must not run, if it has started.
fn ran(run: &RecordedRun, request: EffectId) -> Option<String> {
    let parked = |kind: &EventKind| match kind {
        EventKind::Parked { request: parked } if parked.id == request => {
            Some(parked.call_id.clone())
        }
        _ => None,
    };
    let mut events = run.events.iter().zip(&run.effects);
    let call = events.find_map(|(event, _)| parked(&event.kind))??;
    // The ids of calls are those of the provider, which uses them again in a later turn.
    let turn = events.take_while(|(event, _)| event.kind.name() != "turn_ended");
    let mut started = turn
        .flat_map(|(_, effects)| effects)
        .filter(|effect| effect["effect"] == "start_tools")
        .filter_map(|effect| effect["calls"].as_array())
        .flatten();
    let starts = started.any(|start| start["call"] == call);
    starts.then(|| format!("the call {call} ran, although its request was denied or had expired"))
}

/// Returns the faults in the books of a project whose runs have all ended.
pub(crate) fn books(journal: &SqliteJournal, project: &str, ceiling: NanoUsd) -> Vec<String> {
    let all = match journal.books(Period::Day, NOON_MS, NOON_MS) {
        Ok(all) => all,
        Err(problem) => return vec![problem.to_string()],
    };
    let of_project = all.iter().filter(|books| books.project.as_deref() == Some(project));
    let wrong = of_project.filter_map(|SpendBooks { spent, reserved, lost, .. }| {
        let wrong = *reserved + *lost > NanoUsd::ZERO || *spent > ceiling;
        wrong.then(|| {
            format!("{project}: {spent} spent, {reserved} reserved and {lost} lost of {ceiling}")
        })
    });
    wrong.collect()
}
