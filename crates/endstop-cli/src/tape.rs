//! What a run is recorded to (`--record`) or played from (`--replay`).
//!
//! ```ignore
//! let tape = Tape::of(&args, &settings)?;
//! let provider = tape.provider(&options)?; // records, or plays
//! tape.ended(&outcome);
//! ```

use crate::args::RunArgs;
use crate::new_file::NewFile;
use crate::settings::Settings;
use crate::{Failure, Result, output};
use endstop::provider::http::{HttpOptions, HttpProvider};
use endstop::provider::record::Recorder;
use endstop::provider::recording::Recording;
use endstop::provider::replay::{Replay, Warning};
use endstop::wire::redact::KnownKeys;
use endstop::{Outcome, Termination};
use std::path::Path;

#[derive(Default)]
pub(crate) struct Tape {
    /// Where the run is recorded.
    record: Option<(NewFile, Option<Recorder>)>,
    replay: Option<Replay>,
}

impl Tape {
    /// The tape that the flags ask for. A recording that is to be played is read; one that is to be
    /// made is begun with the provider.
    pub(crate) fn of(args: &RunArgs, settings: &Settings) -> Result<Tape> {
        for (flag, file) in [("--record", &args.record), ("--replay", &args.replay)] {
            if let (Some(file), Some(events)) = (file, &args.events)
                && same_file(file, events)
            {
                return Err(Failure::usage(format!(
                    "--events {0}: it is the file of {flag}, and would be written over: give another name",
                    events.display()
                )));
            }
        }
        let record = args.record.as_deref();
        let record = record
            .map(|path| NewFile::of("--record", path, args.overwrite))
            .transpose()?
            .map(|file| (file, None));
        let Some(path) = &args.replay else { return Ok(Tape { record, replay: None }) };
        for (flag, given, why) in [
            ("--model", args.model.is_some(), "the model is that of the recording"),
            ("--api", args.api.is_some(), "the wire format is that of the recording"),
            ("--base-url", args.base_url.is_some(), "no server is asked"),
            ("--record", args.record.is_some(), "it would be a copy of the recording"),
        ] {
            if given {
                return Err(Failure::usage(format!("{flag} cannot be given with --replay: {why}")));
            }
        }
        let mut recording =
            Recording::read(path).map_err(|error| Failure::usage(format!("--replay {error}")))?;
        // What endstop.toml says of the model is meant for another run; a flag is meant for this one.
        if args.price.is_some() {
            recording.header.price = settings.price;
        }
        if args.context_window.is_some() {
            recording.header.context_window = args.context_window;
        }
        Ok(Tape { record: None, replay: Some(Replay::new(recording)) })
    }

    /// Whether anything is recorded.
    pub(crate) fn records(&self) -> bool {
        self.record.is_some()
    }

    /// The recording that is played.
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.replay.as_ref().map(Replay::recording)
    }

    /// The provider that records, or plays.
    pub(crate) fn provider(&mut self, options: &HttpOptions) -> Result<HttpProvider> {
        if let Some(replay) = &self.replay {
            return HttpProvider::replay(replay)
                .map_err(|problem| Failure::usage(format!("--replay: line 1: {problem}")));
        }
        let provider = HttpProvider::from_env(options).map_err(Failure::usage)?;
        let Some((file, recorder)) = &mut self.record else { return Ok(provider) };
        let made = recorder.insert(Recorder::new(file.create()?));
        made.hide(&endstop::process::environment_secrets());
        provider.record(made).map_err(Failure::fault)
    }

    /// These must not come to the recording.
    pub(crate) fn hide(&self, keys: &KnownKeys) {
        if let Some((_, Some(recorder))) = &self.record {
            recorder.hide(keys);
        }
    }

    /// The run is about to begin, with this task.
    pub(crate) fn task(&self, task: &str) {
        if let Some((_, Some(recorder))) = &self.record {
            recorder.task(task);
        }
    }

    /// What is not as it was recorded, since the last look.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.replay.as_ref().map(Replay::warnings).unwrap_or_default()
    }

    /// The first place where the run was not the recorded one.
    pub(crate) fn divergence(&self) -> Option<Warning> {
        self.replay.as_ref().and_then(Replay::divergence)
    }

    /// Waits for a place where the recorded run hung up; says how it was stopped, where it was.
    pub(crate) async fn hung_up(&self) -> Option<Termination> {
        match &self.replay {
            Some(replay) => replay.hung_up().await,
            None => std::future::pending().await,
        }
    }

    /// The run has ended.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        if let Some(replay) = &self.replay {
            replay.ended(outcome);
        }
        if let Some((file, Some(recorder))) = &self.record {
            recorder.ended(outcome);
            if let Some(problem) = recorder.problem() {
                incomplete(file.path(), &problem);
            }
        }
    }
}

/// Whether two names are those of one file; one that is not there yet has its name alone.
fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn incomplete(path: &Path, problem: &str) {
    output::note(&format!(
        "endstop: --record {}: {problem}; the recording is not whole",
        path.display()
    ));
}
