//! `endstop run`: runs an agent, or resumes a stored run, and reports why it ended.

use super::demo;
use crate::args::DemoArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::Settings;
use crate::config::trust::{self, journal::Place};
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::agent::{build, runtime};
use crate::run::attach::Attached;
use crate::run::cassette::Cassette;
use crate::run::earlier::Earlier;
use crate::run::events::EventFile;
use crate::run::retention::Retention;
use crate::run::session::RunSession;
use crate::run::start::Begin;
use crate::run::steer::Steer;
use crate::run_args::{RunArgs, with_task};
use endstop::Resume;
use endstop::journal::JournalError;
use std::io::{self, IsTerminal, Read};
use std::path::Path;

const NO_MODEL: &str = "no model is configured: showing the built-in `fix` demo instead.
Set one with --model PROVIDER/MODEL (`endstop providers` lists them), or in endstop.toml.";

const NO_TASK: &str = "no task: give it as an argument, or on standard input";

const EMPTY_TASK: &str = "the task is empty: give it as an argument, or on standard input";

pub(crate) fn run(args: &RunArgs, json: bool) -> Result {
    let args = &with_task(args)?;
    if args.output.answer_only && json {
        return Err(Failure::usage(
            "--answer-only cannot be combined with --json, whose last line already contains the answer",
        ));
    }
    if let Some(name) = &args.resume {
        return resume(args, name, json);
    }
    let mut settings = Settings::in_folder(&args.settings, args.config.as_deref(), Path::new("."))?;
    let mut cassette = Cassette::of(args, &settings)?;
    let events = EventFile::of(&args.output)?;
    let configured = settings.model.is_some() || settings.base_url.is_some();
    if !configured && cassette.recording().is_none() {
        // A job that lost its settings must not pass as a demo.
        let asks_for_work = args.task.is_some()
            || cassette.records()
            || !args.attachments.is_empty()
            || !settings.tools.is_empty()
            || !settings.mcp.is_empty()
            || settings.verify.is_some()
            || settings.policy.is_some()
            || !io::stdin().is_terminal();
        if asks_for_work {
            return Err(Failure::usage(
                "no model is configured; set one with --model PROVIDER/MODEL (`endstop providers` lists them) or `model = \"…\"` in endstop.toml; `endstop demo fix` shows a run without a model",
            ));
        }
        output::note(&format!("endstop: {NO_MODEL}\n"));
        let demo = DemoArgs { name: "fix".to_owned(), unfixable: false };
        return demo::run(&demo, json);
    }
    let place = JournalPath::of(args.settings.journal.as_deref(), settings.folder_journal())?;
    // Printed commands need `--journal` only for a file that a flag or a settings file named: the
    // variable and the default are found again without it.
    let named_journal =
        args.settings.journal.clone().or_else(|| settings.folder_journal().map(Path::to_owned));
    let journal = journal_path::to_write(&place)?;
    // The seal covers the journal's path, so the settings need it before they are stored.
    settings.stored_in = place.path().ok().map(Path::to_owned);
    // A missing task is reported before the servers start, because starting them may take long.
    check_task(args, &cassette)?;
    let attached = Attached::read(&args.attachments)?;
    // Bound to a name, because `_` alone would drop it at once and stop its work.
    let _retention = Retention::begin(journal.as_ref(), args.retention);
    let runtime = runtime()?;
    // The agent is built before standard input is read, so that a wrong setting is reported without
    // waiting for the input.
    let built = build(settings, &attached, &mut cassette, journal.as_ref(), &runtime)?;
    let task = task(args, &cassette)?;
    cassette.task(&task);
    let session = RunSession {
        built,
        events,
        cassette,
        journal,
        named_journal,
        demo: false,
        answer_only: args.output.answer_only,
        accept_divergence: args.accept_divergence,
        steer: steer(args, json),
        json,
    };
    let begin = Begin::Task(Box::new(attached.with(task)));
    session.perform(runtime, begin)
}

/// Resumes a stored run.
fn resume(args: &RunArgs, name: &str, json: bool) -> Result {
    let place = JournalPath::of(args.settings.journal.as_deref(), None)?;
    // Checked before the journal is opened, because opening removes the access of other users, which
    // the check looks for.
    let not_own = trust::journal::not_own(place.path()?);
    let journal = journal_path::to_resume(&place)?;
    let wrong = |error: JournalError| Failure::usage(format!("--resume: {error}"));
    let id = journal.find(name).map_err(wrong)?;
    let recorded = journal.load(&id).map_err(wrong)?;
    let found = Place { journal: place.path()?, not_own, is_trusted: args.trust_journal };
    let settings = Settings::of_kept(&recorded, &args.settings, &found)?;
    let mut cassette = Cassette::of(args, &settings)?;
    let events = EventFile::of(&args.output)?;
    let runtime = runtime()?;
    let built = build(settings, &Attached::default(), &mut cassette, Some(&journal), &runtime)?;
    let mut how = Resume::new(&id);
    if args.accept_changes {
        how = how.accept_changes();
    }
    if args.accept_redacted {
        how = how.accept_redacted();
    }
    if args.accept_redacted && recorded.redacted > 0 {
        output::note(&format!(
            "⚠ {} removed from the conversation when it was journalled; the model receives `[redacted]` instead",
            match recorded.redacted {
                1 => "one secret was".to_owned(),
                cuts => format!("{cuts} secrets were"),
            }
        ));
    }
    cassette.task(recorded.task());
    let session = RunSession {
        built,
        events,
        cassette,
        journal: Some(journal),
        named_journal: args.settings.journal.clone(),
        demo: false,
        answer_only: args.output.answer_only,
        accept_divergence: false,
        steer: steer(args, json),
        json,
    };
    let begin = Begin::Again(Box::new(how), Box::new(Earlier::of(&id, &recorded)));
    session.perform(runtime, begin)
}

/// Returns the sources of messages for the model while the run works.
fn steer(args: &RunArgs, json: bool) -> Steer {
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    Steer { fifo: args.steer.clone(), typed: terminal && !json }
}

/// Refuses a missing or blank task without reading standard input, so that no server is started for
/// it.
fn check_task(args: &RunArgs, cassette: &Cassette) -> Result<()> {
    let recorded = cassette.recording().and_then(|recording| recording.header.task.as_ref());
    match args.task.as_ref().or(recorded) {
        Some(task) if task.trim().is_empty() => Err(Failure::usage(EMPTY_TASK)),
        Some(task) if task != "-" => Ok(()),
        _ if io::stdin().is_terminal() => Err(Failure::usage(NO_TASK)),
        _ => Ok(()),
    }
}

/// Returns the task: the argument, the task of the replayed recording, or standard input.
fn task(args: &RunArgs, cassette: &Cassette) -> Result<String> {
    let recorded = cassette.recording().and_then(|recording| recording.header.task.as_ref());
    let task = match (&args.task, recorded) {
        (Some(task), _) if task != "-" => task.clone(),
        (None, Some(task)) => task.clone(),
        _ => {
            if io::stdin().is_terminal() {
                return Err(Failure::usage(NO_TASK));
            }
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::usage(format!("standard input: {error}")))?;
            text
        }
    };
    if task.trim().is_empty() {
        return Err(Failure::usage(EMPTY_TASK));
    }
    Ok(task)
}
