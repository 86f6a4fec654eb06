//! `endstop branch`: starts a new run with the beginning of a stored one.

use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::{SettingArgs, Settings};
use crate::config::trust::{self, journal::Place};
use crate::failure::{Failure, Result};
use crate::render::advice::PLACEHOLDER;
use crate::run::agent::{build, runtime};
use crate::run::attach::Attached;
use crate::run::cassette::Cassette;
use crate::run::events::EventFile;
use crate::run::session::RunSession;
use crate::run::start::Begin;
use crate::run::steer::Steer;
use crate::run_args::BranchArgs;
use crate::visible::shorten;
use endstop::Branch;
use endstop::journal::{JournalError, RecordedRun};
use endstop::wire::catalog::providers::provider;
use std::io::{self, IsTerminal};

pub(crate) fn run(args: &BranchArgs, json: bool) -> Result {
    if args.output.answer_only && json {
        return Err(Failure::usage(
            "--answer-only cannot be combined with --json, whose last line already contains the answer",
        ));
    }
    // Printed commands have a placeholder, which would be sent and billed.
    let is_placeholder = |message: &str| [PLACEHOLDER, "…", "..."].contains(&message.trim());
    if let Some(message) = args.message.as_deref().filter(|message| is_placeholder(message)) {
        return Err(Failure::usage(format!(
            "--message {message}: it stands for your own words; write what is in the model's way, and what it can do about it"
        )));
    }
    let place = JournalPath::of(args.settings.journal.as_deref(), None)?;
    // Checked before the journal is opened, because opening removes the access of other users, which
    // the check looks for.
    let not_own = trust::journal::not_own(place.path()?);
    let journal = journal_path::to_change(&place, "branch")?;
    let wrong = |error: JournalError| Failure::usage(error.to_string());
    let id = journal.find(&args.run).map_err(wrong)?;
    let recorded = journal.load(&id).map_err(wrong)?;
    let found = Place { journal: place.path()?, not_own, is_trusted: args.trust_journal };
    let settings = Settings::of_kept(&recorded, &args.settings, &found);
    let settings = settings.map_err(|failure| in_own_words(&failure))?;
    let settings = for_other_model(settings, &args.settings, &recorded);
    // Checked before servers are started.
    recorded.prefix(args.at, None).map_err(|error| Failure::usage(error.to_string()))?;
    let mut cassette = Cassette::default();
    let events = EventFile::of(&args.output)?;
    let runtime = runtime()?;
    let built = build(settings, &Attached::default(), &mut cassette, Some(&journal), &runtime)?;
    let session = RunSession {
        built,
        events,
        cassette,
        journal: Some(journal),
        named_journal: args.settings.journal.clone(),
        demo: false,
        answer_only: args.output.answer_only,
        accept_divergence: false,
        steer: Steer {
            fifo: None,
            typed: io::stdin().is_terminal() && io::stderr().is_terminal() && !json,
        },
        json,
    };
    let words = format!(
        "▶ branching from run {id} after turn {}: {}",
        args.at,
        shorten(recorded.task(), 100)
    );
    let begin = Begin::Branch(Box::new(branch(args, &id)), words);
    session.perform(runtime, begin)
}

/// Returns the branch that the flags describe.
fn branch(args: &BranchArgs, id: &str) -> Branch {
    let mut branch = Branch::new(id, args.at);
    if let Some(message) = &args.message {
        branch = branch.message(message);
    }
    if args.accept_changes {
        branch = branch.accept_changes();
    }
    if args.accept_redacted {
        branch = branch.accept_redacted();
    }
    branch
}

/// Removes the settings that belong to the model of the stored run, if a flag names another one.
fn for_other_model(settings: Settings, args: &SettingArgs, recorded: &RecordedRun) -> Settings {
    let before = recorded.header.settings["model"].as_str();
    let Some(model) = args.model.as_deref().filter(|model| Some(*model) != before) else {
        return settings;
    };
    let mut settings = settings;
    if args.price.is_none() {
        settings.price = None;
    }
    if args.context_window.is_none() {
        settings.context_window = None;
    }
    // A custom server may serve several models; only the name of another provider leads elsewhere.
    let named =
        |model: &str| model.split_once('/').and_then(|(name, _)| provider(name)).map(|one| one.id);
    if named(model).is_some() && named(model) != before.and_then(named) {
        if args.api.is_none() {
            settings.api = None;
        }
        if args.base_url.is_none() {
            settings.base_url = None;
        }
    }
    settings
}

/// Returns an error of the stored settings without the flag of another command.
fn in_own_words(failure: &Failure) -> Failure {
    let message = failure.message.strip_prefix("--resume: ").unwrap_or(&failure.message);
    Failure { message: message.to_owned(), status: failure.status }
}
