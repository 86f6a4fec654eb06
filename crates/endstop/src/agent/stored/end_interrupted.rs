//! Ends a run whose process died and that cannot be resumed, so that its journal has an ending.
//!
//! ```text
//! let outcome = end_interrupted(&journal, "k3v9", "its agent no longer exists")?;
//! // error_during_execution: "its agent no longer exists"
//! ```

use crate::agent::recorder::Recorder;
use crate::journal::{Journal, JournalError, JournalErrorKind, RecordedRun};
use endstop_core::replay::{self, close};
use endstop_core::{Event, EventKind, Outcome, Replay, Resumption, RunSpec, Step};
use endstop_wire::redact::KnownKeys;

/// Ends a run whose process died, without resuming it. The outcome is `error_during_execution` with
/// `why` as its evidence, unless the process had decided on another ending before it died. Calls
/// that were in progress count as aborted; they may have run. Nothing is called or started.
///
/// ```
/// # #[cfg(feature = "journal")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use endstop::Agent;
/// # use endstop::agent::end_interrupted;
/// # use endstop::journal::SqliteJournal;
/// # use endstop::testkit::{ScriptedModel, Turn};
/// # let dir = tempfile::tempdir()?;
/// # let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
/// # let agent = Agent::builder(ScriptedModel::new([Turn::text("Paris.")])).journal(journal.clone()).build()?;
/// # let id = agent.run("What is the capital of France?")?.await.run_id.unwrap_or_default();
/// // Only a run without an ending can be ended.
/// assert!(end_interrupted(&journal, &id, "its agent no longer exists").is_err());
/// # Ok(()) }
/// # #[cfg(not(feature = "journal"))] fn main() {}
/// ```
///
/// # Errors
/// There is no such run, it has ended, another process drives it, or the ending cannot be stored.
pub fn end_interrupted(
    journal: &dyn Journal,
    id: &str,
    why: &str,
) -> Result<Outcome, JournalError> {
    let log = journal.resume(id)?;
    // Loaded after the journal was taken over, because the other process may have written more.
    let recorded = journal.load(id)?;
    let spec = || spec_of(&recorded, id);
    let (events, mut outcome) = match close(spec(), &recorded.events) {
        Some(decided) => decided,
        None => ended(&recorded, spec, why).ok_or_else(|| JournalError {
            journal: format!("run {id}"),
            problem: "its events cannot be replayed to an ending".to_owned(),
            kind: JournalErrorKind::Damaged,
        })?,
    };
    let mut recorder = Recorder::new(journal, log, KnownKeys::default());
    // Events after a damaged one would be stored in the wrong place.
    if recorded.damage.is_none() {
        record(&mut recorder, spec(), &recorded, &events);
    }
    recorder.ended(&mut outcome);
    match recorder.close() {
        None => Ok(*outcome),
        Some(problem) => {
            Err(JournalError { journal: format!("run {id}"), problem, kind: JournalErrorKind::Io })
        }
    }
}

/// Returns the settings of the run. Without the code of its policy it is replayed without one,
/// because a policy can only end a run earlier.
fn spec_of(recorded: &RecordedRun, id: &str) -> RunSpec {
    let spec = recorded.spec(None).unwrap_or_else(|_| recorded.header.spec.clone_with(None));
    RunSpec { run_id: Some(id.to_owned()), ..spec }
}

/// Returns the events that end the run, and the outcome. `None` if the kernel does not end.
fn ended(
    recorded: &RecordedRun,
    spec: impl Fn() -> RunSpec,
    why: &str,
) -> Option<(Vec<Event>, Box<Outcome>)> {
    let on = replay::resume(spec, recorded.events.clone(), Resumption::default()).ok()?;
    let at = on.events.last()?.at;
    let mut added = on.events.get(on.kept..)?.to_vec();
    let fault = EventKind::Fault { name: "driver".to_owned(), message: why.to_owned() };
    let mut step = on.step;
    // A run that still waits for something after the fault is terminated, which waits for nothing.
    for kind in [fault, EventKind::Terminate] {
        let Step::Continue(run) = step else { break };
        let event = Event::new(at, kind);
        added.push(event.clone());
        step = run.handle(event, &mut Vec::new());
    }
    match step {
        Step::Ended(outcome) => Some((added, outcome)),
        Step::Continue(_) => None,
    }
}

/// Journals the added events, with the effects that they requested.
pub(super) fn record(
    recorder: &mut Recorder,
    spec: RunSpec,
    recorded: &RecordedRun,
    added: &[Event],
) {
    let mut replay = Replay::new(spec);
    for event in &recorded.events {
        replay.feed(event.clone());
    }
    for event in added {
        let effects = replay.feed(event.clone());
        recorder.keep(event, effects, None);
    }
}
