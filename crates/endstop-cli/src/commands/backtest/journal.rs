//! Runs of our own journal: as recorded runs for the detectors, and through the kernel by their own
//! events.
//!
//! ```ignore
//! journal::each(path, &mut |run| { test.run_by("journal", &run.trajectory, &|setting| journal::ends_after(&run.recorded, setting)); })?;
//! ```

use crate::{Failure, Result};
use endstop::core::replay::Replay;
use endstop::journal::{JournalError, RecordedRun, SqliteJournal};
use endstop::{
    Effect, Event, EventKind, ModelTurn, Part, Registry, RunEvent, RunSpec, Termination, Usage,
};
use endstop_trajectory as traj;
use endstop_trajectory::replay::{Setting, replay_events};
use serde_json::Value;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr as _;

/// How a file of SQLite begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The format, as a report calls it.
const FORMAT: &str = "endstop-journal";

/// A run of a journal.
pub(super) struct Run {
    pub(super) trajectory: traj::Trajectory<'static>,
    pub(super) recorded: RecordedRun,
}

/// Whether a file is one of SQLite.
pub(super) fn is_one(path: &Path) -> bool {
    let mut begin = [0; 16];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok()
        && begin == *MAGIC
}

/// The dataset of its runs: its file's name without the ending.
pub(super) fn dataset(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Each run of a journal, the oldest first.
pub(super) fn each(path: &Path, with: &mut dyn FnMut(Run)) -> Result<()> {
    let wrong = |error: JournalError| Failure::usage(error.to_string());
    let journal = SqliteJournal::read(path).map_err(wrong)?;
    let mut ids: Vec<String> =
        journal.runs(u32::MAX).map_err(wrong)?.into_iter().map(|run| run.id).collect();
    ids.reverse();
    for (id, at) in ids.iter().zip(1..) {
        let recorded = journal.load(id).map_err(wrong)?;
        let mut trajectory = trajectory(&recorded);
        trajectory.origin =
            traj::Origin { format: FORMAT, file: path.display().to_string(), at: Some(at) };
        with(Run { trajectory, recorded });
    }
    Ok(())
}

/// After which turn these limits, this policy and these rules would have ended the run, if they would.
pub(super) fn ends_after(run: &RecordedRun, setting: &Setting) -> Option<u32> {
    let policy = match &setting.policy {
        // It was built once before.
        Some(spec) => Some(Registry::new().build(spec).ok()?.into_inner()),
        None => None,
    };
    let spec = RunSpec {
        limits: setting.limits.clone(),
        watches: setting.watches.clone(),
        ..run.header.spec.again(policy)
    };
    let events: Vec<Event> = run.events.iter().map(under_those).collect();
    replay_events(spec, &events).map(|outcome| outcome.turns)
}

/// An event without the limits that a run went on with: others are tried.
fn under_those(event: &Event) -> Event {
    let mut event = event.clone();
    if let EventKind::Resumed(with) = &mut event.kind {
        with.limits = None;
    }
    event
}

/// The run as others are recorded.
fn trajectory(run: &RecordedRun) -> traj::Trajectory<'static> {
    let header = &run.header;
    let mut made = traj::Trajectory::new(header.id.clone());
    made.task_id = Some(header.spec.task.clone().into());
    made.model = header.spec.model.clone().map(|model| match &header.spec.provider {
        Some(provider) => format!("{provider}/{model}").into(),
        None => model.into(),
    });
    made.agent = Some("endstop".into());
    made.agent_version = Some(header.version.clone().into());
    made.steps.push(traj::Step {
        text: header.spec.task.clone().into(),
        ..traj::Step::new(traj::Role::User)
    });
    made.notes.extend(run.damage.iter().map(|what| format!("damaged: {what}")));
    // Without the policy's code its turns are told all the same.
    let spec = run.spec(None).unwrap_or_else(|_| header.spec.again(None));
    let mut replay = Replay::new(spec);
    let mut priced = false;
    let mut spent = 0.0;
    for event in &run.events {
        match &event.kind {
            EventKind::Start { price, .. } => priced = price.is_some(),
            EventKind::Resumed(with) => priced |= with.price.is_some(),
            _ => {}
        }
        let turn = match &event.kind {
            EventKind::TurnEnded { turn, .. } => Some(turn),
            _ => None,
        };
        let effects = replay.feed(event.clone());
        for told in effects.iter().filter_map(|effect| match effect {
            Effect::Emit(told) => Some(told),
            _ => None,
        }) {
            match (told, turn) {
                (RunEvent::TurnEnded { text, usage, cost, .. }, Some(turn)) => {
                    let cost = cost.to_usd();
                    let known = priced || turn.cost.is_some();
                    let mut step = step(turn, text, usage);
                    step.cost_usd = known.then_some((cost - spent).max(0.0));
                    spent = cost;
                    made.steps.push(step);
                }
                (RunEvent::ToolEnded { call_id, status, content, .. }, _) => {
                    if let Some(step) = made.steps.last_mut() {
                        step.results.push(traj::CallResult {
                            call_id: Some(call_id.clone().into()),
                            content: content.clone().into(),
                            is_error: status.is_error(),
                            ..traj::CallResult::default()
                        });
                    }
                }
                _ => {}
            }
        }
    }
    let followed = replay.outcome().and_then(|outcome| serde_json::to_value(outcome).ok());
    if let Some(outcome) = run.outcome.as_ref().or(followed.as_ref()) {
        ended(&mut made, outcome, run.verified);
    }
    made
}

fn step(turn: &ModelTurn, text: &str, usage: &Usage) -> traj::Step<'static> {
    let calls = turn.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(traj::Call {
            id: Some(call.id.clone().into()),
            name: call.name.clone().into(),
            arguments: as_json(&call.arguments).into(),
            ..traj::Call::default()
        }),
        _ => None,
    });
    traj::Step {
        text: text.to_owned().into(),
        calls: calls.collect(),
        usage: Some(Box::new(traj::Usage {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            cached_tokens: usage.cached_input_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            ..traj::Usage::default()
        })),
        finish_reason: Some(turn.signal.reason.to_string().into()),
        ..traj::Step::new(traj::Role::Agent)
    }
}

/// Arguments as the model wrote them; what is no JSON is a string of it.
fn as_json(arguments: &str) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(arguments) {
        Ok(_) => arguments.to_owned(),
        Err(_) => Value::String(arguments.to_owned()).to_string(),
    }
}

/// A success is one that no verifier found wrong.
fn ended(made: &mut traj::Trajectory<'static>, outcome: &Value, verified: Option<bool>) {
    let Some(name) = outcome["termination"].as_str() else { return };
    let verified = verified.or_else(|| outcome["verified"].as_bool());
    if let Ok(termination) = Termination::from_str(name) {
        made.recorded.success = Some(termination.is_success() && verified != Some(false));
    }
    made.ending = Some(traj::Ending { reason: name.to_owned().into(), ..traj::Ending::default() });
}
