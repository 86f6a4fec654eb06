//! Reads runs of an Endstop journal for `audit` and `backtest`: as trajectories for the detectors,
//! and as recorded events, which the kernel replays under other limits.

use crate::failure::{Failure, Result};
use endstop::core::Event;
use endstop::core::replay::Replay;
use endstop::journal::{JournalError, JournalErrorKind, RecordedRun, SqliteJournal};
use endstop::{
    NanoUsd, Part, Usage,
    core::{Effect, EventKind, RunEvent, RunSpec},
    policy::Registry,
    provider::ModelTurn,
};
use endstop_trajectory as traj;
use endstop_trajectory::read::{Problem, ProblemKind, Walk, open_regular};
use endstop_trajectory::replay::{Setting, replay_events};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The first bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The name of the format in reports.
const FORMAT: &str = "endstop-journal";

/// A run of a journal.
pub(crate) struct Run {
    pub(crate) trajectory: traj::Trajectory<'static>,
    pub(crate) recorded: RecordedRun,
}

/// `true` if a file is an SQLite database, as a journal is.
pub(crate) fn is_one(path: &Path) -> bool {
    path.is_file() && application_id(path).is_some()
}

/// Returns the journals in a folder, ordered by name.
pub(crate) fn in_folder(path: &Path) -> impl Iterator<Item = PathBuf> {
    let walk = path.is_dir().then(|| Walk::new(path)).into_iter().flatten();
    walk.filter_map(|source| Some(source.ok()?.path().to_owned())).filter(|file| is_ours(file))
}

/// `true` if a file that was found in a folder is a journal.
pub(crate) fn is_ours(path: &Path) -> bool {
    match application_id(path) {
        Some(id) if SqliteJournal::has_id(id) => true,
        // The application id is 0 if the process was killed before the first checkpoint: all that
        // it wrote is still in the `-wal` file.
        Some(0) => {
            let mut beside = path.as_os_str().to_owned();
            beside.push("-wal");
            Path::new(&beside).is_file()
                && SqliteJournal::read(path)
                    .map_or_else(|error| error.kind == JournalErrorKind::Version, |_| true)
        }
        _ => false,
    }
}

/// Returns the application id of an SQLite file, or `None` for other files.
pub(crate) fn application_id(path: &Path) -> Option<i64> {
    // The application id is a big-endian number at offset 68 of the SQLite header.
    let mut begin = [0; 72];
    open_regular(path).and_then(|mut file| file.read_exact(&mut begin)).ok()?;
    let (application, _) = begin[68..].split_first_chunk()?;
    begin.starts_with(MAGIC).then(|| i64::from(u32::from_be_bytes(*application)))
}

/// Returns the name of the dataset for its runs: the file name without its extension.
pub(crate) fn dataset(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Calls `with` for each run of a journal that the user named, oldest first, or with the problem of
/// a run.
pub(crate) fn each(
    path: &Path,
    with: &mut dyn FnMut(std::result::Result<Run, Problem>),
) -> Result<()> {
    each_of(path, with).map_err(|error| Failure::usage(error.to_string()))
}

/// Does the same for a journal that was found. If it cannot be opened, this is reported as a
/// problem and not as an error.
pub(crate) fn each_found(path: &Path, with: &mut dyn FnMut(std::result::Result<Run, Problem>)) {
    if let Err(error) = each_of(path, with) {
        with(Err(Problem {
            file: path.display().to_string(),
            at: None,
            kind: ProblemKind::Unreadable,
            what: error.problem,
        }));
    }
}

fn each_of(
    path: &Path,
    with: &mut dyn FnMut(std::result::Result<Run, Problem>),
) -> std::result::Result<(), JournalError> {
    let journal = SqliteJournal::read(path)?;
    let runs = journal.runs(u32::MAX)?;
    // A run that continues another one has all of its turns. A branch is a session of its own.
    let resumed = runs.iter().filter(|run| run.branched_at.is_none());
    let continued: HashSet<String> = resumed.filter_map(|run| run.continues.clone()).collect();
    // Demos and replays are not sessions of the user: scripts that end badly on purpose, at prices that were not paid.
    let own =
        runs.into_iter().filter(|run| run.uncounted.is_none() && !continued.contains(&run.id));
    let mut ids: Vec<String> = own.map(|run| run.id).collect();
    // `runs` lists the newest run first.
    ids.reverse();
    for (id, at) in ids.iter().zip(1..) {
        let file = path.display().to_string();
        with(match journal.load(id) {
            Ok(recorded) => {
                let mut trajectory = trajectory(&recorded);
                trajectory.origin = traj::Origin { format: FORMAT, file, at: Some(at) };
                Ok(Run { trajectory, recorded })
            }
            Err(error) => Err(Problem {
                file,
                at: Some(at),
                kind: ProblemKind::Unreadable,
                what: format!("run {id}: {}", error.problem),
            }),
        });
    }
    Ok(())
}

/// Returns the turn after which these limits, this policy and these rules would have ended the run,
/// or `None` if they would not.
pub(crate) fn ends_after(run: &RecordedRun, setting: &Setting) -> Option<u32> {
    let policy = match &setting.policy {
        // The spec was built once before, so it cannot fail here.
        Some(spec) => Some(Registry::new().build(spec).ok()?.into_inner()),
        None => None,
    };
    let spec = RunSpec {
        limits: setting.limits.clone(),
        watches: setting.watches.clone(),
        ..run.header.spec.clone_with(policy)
    };
    let events: Vec<Event> = run.events.iter().map(under_those).collect();
    replay_events(spec, &events).map(|outcome| outcome.turns)
}

/// Returns the event without the limits of a resume, because they would replace those that are
/// tried.
fn under_those(event: &Event) -> Event {
    let mut event = event.clone();
    if let EventKind::Resumed(with) = &mut event.kind {
        with.limits = None;
    }
    event
}

/// Converts the run to a trajectory.
fn trajectory(run: &RecordedRun) -> traj::Trajectory<'static> {
    let header = &run.header;
    let mut made = traj::Trajectory::new(header.id.clone());
    made.task_id = Some(header.spec.task.clone().into());
    made.model = model_name(header.spec.provider.as_deref(), run.model()).map(Into::into);
    made.agent = Some("endstop".into());
    made.agent_version = Some(header.version.clone().into());
    made.steps.push(traj::Step {
        text: header.spec.task.clone().into(),
        at: iso_8601(header.started_ms),
        ..traj::Step::new(traj::Role::User)
    });
    made.notes.extend(run.damage.iter().map(|what| format!("damaged: {what}")));
    // Without the policy's code its turns can still be listed.
    let spec = run.spec(None).unwrap_or_else(|_| header.spec.clone_with(None));
    let mut replay = Replay::new(spec);
    let mut priced = false;
    let mut spent = 0.0;
    // The model of a turn, once the run has switched to another one.
    let mut switched: Option<String> = None;
    for (nth, event) in run.events.iter().enumerate() {
        match &event.kind {
            EventKind::Start { price, .. } => priced = price.is_some(),
            EventKind::Resumed(with) => priced |= with.price.is_some(),
            EventKind::Asked { call } => priced |= call.price.is_some(),
            _ => {}
        }
        let turn = match &event.kind {
            EventKind::TurnEnded { turn, .. } => Some(turn),
            _ => None,
        };
        let effects = replay.feed(event.clone()).to_vec();
        let price = replay.run().and_then(endstop::core::Run::price);
        for told in effects.iter().filter_map(|effect| match effect {
            Effect::Emit(told) => Some(told),
            _ => None,
        }) {
            match (told, turn) {
                (RunEvent::TurnFinished { text, usage, cost, .. }, Some(turn)) => {
                    // Without a price the reported cost is 0, which is not a known cost.
                    let known = priced || turn.cost.is_some();
                    let mut step = step(turn, text, usage);
                    step.model = switched.clone().map(Into::into);
                    step.at = run.wall_ms.get(nth).copied().and_then(iso_8601);
                    let cost = cost.map(NanoUsd::to_usd);
                    // The kernel reports the total cost, and a step needs its own.
                    step.cost_usd = cost.filter(|_| known).map(|cost| (cost - spent).max(0.0));
                    spent = cost.unwrap_or(spent);
                    made.steps.push(step);
                }
                (RunEvent::ModelSwitched { switch, .. }, _) => {
                    switched = model_name(switch.provider.as_deref(), switch.model.as_deref());
                    priced = price.is_some();
                }
                (RunEvent::ToolFinished { call_id, status, content, .. }, _) => {
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
        (made.recorded, made.ending) = traj::read::endstop_ending(outcome, run.verified);
    }
    made
}

/// Returns the name of a model, with its provider if that is known.
fn model_name(provider: Option<&str>, model: Option<&str>) -> Option<String> {
    let model = model?;
    Some(provider.map_or_else(|| model.to_owned(), |provider| format!("{provider}/{model}")))
}

/// The name of cache writes for an hour, which `traj::Usage` has no field for.
const HOUR: &str = "cache_write_1h_tokens";

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
    let for_hour = usage.cache_write_1h_tokens;
    traj::Step {
        text: text.to_owned().into(),
        calls: calls.collect(),
        usage: Some(Box::new(traj::Usage {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            cached_tokens: usage.cached_input_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            extra: for_hour.map(|tokens| (HOUR.to_owned(), tokens.into())).into_iter().collect(),
        })),
        finish_reason: Some(turn.signal.reason.to_string().into()),
        ..traj::Step::new(traj::Role::Agent)
    }
}

/// Returns the arguments as the model wrote them; invalid JSON becomes a JSON string.
fn as_json(arguments: &str) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(arguments) {
        Ok(_) => arguments.to_owned(),
        Err(_) => Value::String(arguments.to_owned()).to_string(),
    }
}

fn iso_8601(unix_ms: u64) -> Option<std::borrow::Cow<'static, str>> {
    let time = Timestamp::from_millisecond(i64::try_from(unix_ms).ok()?).ok()?;
    Some(time.to_string().into())
}
