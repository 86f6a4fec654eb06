//! Records a run (`--record`) or replays a recording (`--replay`).

use crate::config::settings::Settings;
use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::run_args::RunArgs;
use endstop::provider::http::HttpProvider;
use endstop::provider::record::Recorder;
use endstop::provider::recording::Recording;
use endstop::provider::replay::{RecordingReplay, Warning};
use endstop::wire::redact::KnownKeys;
use endstop::{Outcome, Termination};
use std::path::Path;

/// The recording that a run writes, or the recording that it replays. At most one of them is set.
#[derive(Default)]
pub(crate) struct Cassette {
    /// The file that the run is recorded to, and its recorder once the provider exists.
    record: Option<(NewFile, Option<Recorder>)>,
    replay: Option<RecordingReplay>,
}

impl Cassette {
    /// Checks the flags and reads the recording to replay. A new recording is only created together
    /// with the provider, so that a wrong setting leaves no file behind.
    pub(crate) fn of(args: &RunArgs, settings: &Settings) -> Result<Cassette> {
        for (flag, file) in [("--record", &args.record), ("--replay", &args.settings.replay)] {
            if let (Some(file), Some(events)) = (file, &args.output.events)
                && same_file(file, events)
            {
                return Err(Failure::usage(format!(
                    "--events {0}: {flag} uses the same file, which would be overwritten; set another file",
                    events.display()
                )));
            }
        }
        let record = args.record.as_deref();
        let record = record
            .map(|path| NewFile::of("--record", path, args.output.overwrite))
            .transpose()?
            .map(|file| (file, None));
        let Some(path) = &args.settings.replay else {
            return Ok(Cassette { record, replay: None });
        };
        for (flag, given, why) in [
            ("--model", args.settings.model.is_some(), "the recording sets the model"),
            ("--api", args.settings.api.is_some(), "the recording sets the wire format"),
            ("--base-url", args.settings.base_url.is_some(), "a replay contacts no server"),
            ("--proxy", args.settings.http.proxy.is_some(), "a replay contacts no server"),
            ("--ca-file", args.settings.http.ca_file.is_some(), "a replay contacts no server"),
            ("--user-agent", args.settings.http.user_agent.is_some(), "a replay sends no request"),
            (
                "--connect-timeout",
                args.settings.http.connect_timeout.is_some(),
                "a replay contacts no server",
            ),
            ("--record", args.record.is_some(), "the new file would be a copy of the recording"),
        ] {
            if given {
                return Err(Failure::usage(format!(
                    "{flag} cannot be combined with --replay: {why}"
                )));
            }
        }
        let mut recording =
            Recording::read(path).map_err(|error| Failure::usage(format!("--replay {error}")))?;
        // Price and window in endstop.toml belong to the configured model, not to the recorded one,
        // so only flags override the recording.
        if args.settings.price.is_some() {
            recording.header.price = settings.price;
        }
        if args.settings.context_window.is_some() {
            recording.header.context_window = args.settings.context_window;
        }
        Ok(Cassette { record: None, replay: Some(RecordingReplay::new(recording)) })
    }

    /// `true` if the run is recorded.
    pub(crate) fn records(&self) -> bool {
        self.record.is_some()
    }

    /// The recording that is replayed.
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.replay.as_ref().map(RecordingReplay::recording)
    }

    /// Returns the provider, which contacts the server (and records) or replays. `live` creates the
    /// one that contacts the server.
    pub(crate) fn provider(
        &mut self,
        live: impl FnOnce() -> Result<HttpProvider>,
    ) -> Result<HttpProvider> {
        if let Some(replay) = &self.replay {
            return HttpProvider::replay(replay)
                .map_err(|problem| Failure::usage(format!("--replay: line 1: {problem}")));
        }
        let provider = live()?;
        let Some((file, recorder)) = &mut self.record else { return Ok(provider) };
        let made = recorder.insert(Recorder::new(file.create()?));
        made.hide(&endstop::process::environment_secrets());
        provider.record(made).map_err(|error| Failure::fault(error.to_string()))
    }

    /// Keeps these values out of the recording.
    pub(crate) fn hide(&self, keys: &KnownKeys) {
        if let Some((_, Some(recorder))) = &self.record {
            recorder.hide(keys);
        }
    }

    /// Records the task; called before the run begins.
    pub(crate) fn task(&self, task: &str) {
        if let Some((_, Some(recorder))) = &self.record {
            recorder.task(task);
        }
    }

    /// Returns the differences from the recording since the last call.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.replay.as_ref().map(RecordingReplay::warnings).unwrap_or_default()
    }

    /// Returns the first difference from the recording.
    pub(crate) fn divergence(&self) -> Option<Warning> {
        self.replay.as_ref().and_then(RecordingReplay::divergence)
    }

    /// Waits until the replay reaches the point at which the recorded run was stopped. Returns how
    /// it was stopped, if it was.
    pub(crate) async fn hung_up(&self) -> Option<Termination> {
        match &self.replay {
            Some(replay) => replay.hung_up().await,
            None => std::future::pending().await,
        }
    }

    /// Records the outcome, or compares it with the recorded one.
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

/// `true` if two paths name the same file. A file that does not exist cannot be resolved, so only
/// equal paths match.
fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn incomplete(path: &Path, problem: &str) {
    output::note(&format!(
        "endstop: --record {}: {problem}; the recording is incomplete",
        path.display()
    ));
}
