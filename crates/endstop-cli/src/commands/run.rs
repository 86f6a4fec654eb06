//! `endstop run`: runs an agent, or resumes a stored run, and reports why it ended.

use super::demo;
use crate::advice::{Again, Facts, in_journal, of_demo};
use crate::approval::{self, AskOnTerminal, Question, Questions};
use crate::args::{DemoArgs, RunArgs};
use crate::card::{Beside, card, count, shorten, visible};
use crate::events::{EventFile, Keep};
use crate::kept::{self, Place};
use crate::new_file::NewFile;
use crate::retention::Retention;
use crate::screen::Screen;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::tape::Tape;
use crate::telemetry::Spans;
use crate::{Failure, Result, output, trust};
use endstop::agent::{AgentEvent, AgentLoop, Lifecycle, RunHandle};
use endstop::journal::{Change, JournalError, RecordedRun, SqliteJournal};
use endstop::process::{CommandLine, Stop};
use endstop::provider::Provider as _;
use endstop::provider::http::HttpOptions;
use endstop::provider::replay::Warning;
use endstop::wire::redact::KnownKeys;
use endstop::{
    Answer, Effect, Limits, Outcome, Permission, Replay, Resume, RunEvent, StartError, Termination,
};
use serde::Serialize;
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const NO_MODEL: &str = "no model is configured: showing the built-in `fix` demo instead.
Set one with --model PROVIDER/MODEL (`endstop providers` lists them), or in endstop.toml.";

const NO_TASK: &str = "no task: give it as an argument, or on standard input";

const EMPTY_TASK: &str = "the task is empty: give it as an argument, or on standard input";

/// Time that a verifier has to end after a signal.
const VERIFIER_GRACE: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &RunArgs, json: bool) -> Result {
    if args.answer_only && json {
        return Err(Failure::usage(
            "--answer-only cannot be combined with --json, whose last line already contains the answer",
        ));
    }
    if let Some(name) = &args.resume {
        return resume(args, name, json);
    }
    let mut settings = Settings::of(args)?;
    let mut tape = Tape::of(args, &settings)?;
    let events = EventFile::of(args)?;
    let configured = settings.model.is_some() || settings.base_url.is_some();
    if !configured && tape.recording().is_none() {
        if args.task.is_some() || tape.records() {
            return Err(Failure::usage(
                "no model is configured; set one with --model PROVIDER/MODEL (`endstop providers` lists them) or `model = \"…\"` in endstop.toml; `endstop run` without a task shows a demo",
            ));
        }
        output::note(&format!("endstop: {NO_MODEL}\n"));
        let demo = DemoArgs { name: "fix".to_owned(), unfixable: false };
        return demo::run(&demo, json);
    }
    let verify = settings.verify.clone();
    let dir = settings.dir.clone();
    let limits = settings.limits.clone();
    let place = Place::of(args.journal.as_deref(), settings.folder_journal())?;
    // Printed commands need `--journal` only for a file that a flag or a settings file named: the
    // variable and the default are found again without it.
    let named_journal =
        args.journal.clone().or_else(|| settings.folder_journal().map(Path::to_owned));
    let journal = kept::to_write(&place)?;
    // The seal covers the journal's path, so the settings need it before they are stored.
    settings.stored_in = place.path().ok().map(Path::to_owned);
    // A missing task is reported before the servers start, because starting them may take long.
    check_task(args, &tape)?;
    // Bound to a name, because `_` alone would drop it at once and stop its work.
    let _retention = Retention::begin(journal.as_ref(), args);
    let runtime = runtime()?;
    // The agent is built before standard input is read, so that a wrong setting is reported without
    // waiting for the input.
    let Built { agent, servers, secrets, questions } =
        build(settings, &mut tape, journal.as_ref(), &runtime)?;
    let task = task(args, &tape)?;
    tape.task(&task);
    let job = Job {
        events,
        verify,
        tape,
        journal,
        named_journal,
        demo: false,
        answer_only: args.answer_only,
        accept_divergence: args.accept_divergence,
        servers,
        secrets,
        questions,
        json,
    };
    job.perform(runtime, &agent, Begin::Task(task), &limits, dir.as_deref())
}

/// Resumes a stored run.
fn resume(args: &RunArgs, name: &str, json: bool) -> Result {
    let place = Place::of(args.journal.as_deref(), None)?;
    // Checked before the journal is opened, because opening removes the access of other users, which
    // the check looks for.
    let not_own = trust::journal::not_own(place.path()?);
    let journal = kept::to_write(&place)?.ok_or_else(|| {
        Failure::usage(
            "--resume: the journal could not be opened; set its file with --journal FILE",
        )
    })?;
    let wrong = |error: JournalError| Failure::usage(format!("--resume: {error}"));
    let id = journal.find(name).map_err(wrong)?;
    let recorded = journal.load(&id).map_err(wrong)?;
    let settings = Settings::of_kept(&recorded, args, place.path()?, not_own)?;
    let mut tape = Tape::of(args, &settings)?;
    let events = EventFile::of(args)?;
    let (verify, dir, limits) =
        (settings.verify.clone(), settings.dir.clone(), settings.limits.clone());
    let runtime = runtime()?;
    let Built { agent, servers, secrets, questions } =
        build(settings, &mut tape, Some(&journal), &runtime)?;
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
    tape.task(recorded.task());
    let job = Job {
        events,
        verify,
        tape,
        journal: Some(journal),
        named_journal: args.journal.clone(),
        demo: false,
        answer_only: args.answer_only,
        accept_divergence: false,
        servers,
        secrets,
        questions,
        json,
    };
    let begin = Begin::Again(how, Box::new(Earlier::of(&id, &recorded)));
    job.perform(runtime, &agent, begin, &limits, dir.as_deref())
}

/// The part of a resumed run that happened before the resume.
pub(crate) struct Earlier {
    /// The message shown once the run continues.
    words: String,
    /// The calls that the run made, by their ids: name and arguments.
    calls: HashMap<String, (String, String)>,
}

impl Earlier {
    fn of(id: &str, recorded: &RecordedRun) -> Earlier {
        let turns =
            recorded.events.iter().filter(|event| event.kind.name() == "turn_ended").count();
        let words = format!(
            "▶ resuming run {id} after {}: {}",
            count(turns as u64, "response"),
            shorten(recorded.task(), 100)
        );
        // A custom policy cannot be rebuilt here. The replay without it only affects this display.
        let spec = recorded.spec(None).unwrap_or_else(|_| recorded.header.spec.again(None));
        // The recorded events hold inputs only. The kernel is replayed on them to learn which tool
        // call each id belongs to.
        let mut replay = Replay::new(spec);
        let mut calls = HashMap::new();
        for event in &recorded.events {
            for effect in replay.feed(event.clone()) {
                if let Effect::Emit(RunEvent::ToolStarted { call_id, name, arguments }) = effect {
                    calls.insert(call_id.clone(), (name.clone(), arguments.clone()));
                }
            }
        }
        Earlier { words, calls }
    }
}

/// Prints the differences from the original run, and asks on the terminal whether to continue.
fn accepted(changes: &[Change]) -> Result<()> {
    output::note("the configuration differs from the original run:");
    for change in changes {
        let shown = |text: &str| shorten(text, 200).replace('\n', " ");
        let (was, is) = (shown(&change.was), shown(&change.is));
        output::note(&format!(
            "  {}: was {was}\n  {:>width$}  is {is}",
            change.what,
            "",
            width = change.what.chars().count()
        ));
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "the configuration differs from the original run (see above); restore it or pass --accept-changes",
        ));
    }
    match approval::line("continue with these changes? y or n: ").as_deref() {
        Some("y" | "yes") => Ok(()),
        _ => Err(Failure::usage("not resumed: the stored run is unchanged")),
    }
}

/// Refuses a missing or blank task without reading standard input, so that no server is started for
/// it.
fn check_task(args: &RunArgs, tape: &Tape) -> Result<()> {
    let recorded = tape.recording().and_then(|recording| recording.header.task.as_ref());
    match args.task.as_ref().or(recorded) {
        Some(task) if task.trim().is_empty() => Err(Failure::usage(EMPTY_TASK)),
        Some(task) if task != "-" => Ok(()),
        _ if io::stdin().is_terminal() => Err(Failure::usage(NO_TASK)),
        _ => Ok(()),
    }
}

/// Returns the task: the argument, the task of the replayed recording, or standard input.
fn task(args: &RunArgs, tape: &Tape) -> Result<String> {
    let recorded = tape.recording().and_then(|recording| recording.header.task.as_ref());
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

/// An agent, and the resources that it runs with.
struct Built {
    agent: AgentLoop,
    servers: Servers,
    secrets: KnownKeys,
    questions: Cell<Option<Questions>>,
}

fn build(
    settings: Settings,
    tape: &mut Tape,
    journal: Option<&SqliteJournal>,
    runtime: &Runtime,
) -> Result<Built> {
    let saved = settings.saved();
    if let Some(dir) = settings.dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(Failure::usage(format!("--dir {}: not a folder", dir.display())));
    }
    let has_tools = !settings.tools.is_empty() || !settings.mcp.is_empty();
    if settings.ask && has_tools && !io::stdin().is_terminal() {
        // Refused here, because otherwise the model would be paid for calls that are all denied.
        return Err(Failure::usage(
            "--ask: standard input is not a terminal; give the task as an argument, or remove `ask`",
        ));
    }
    let options = HttpOptions {
        model: settings.model.unwrap_or_else(|| "default".to_owned()),
        api: settings.api,
        base_url: settings.base_url,
        price: settings.price,
        context_window: settings.context_window,
        allow_http: settings.allow_http,
    };
    let provider = tape.provider(&options)?;
    // Connected before the first model call, so that a server that cannot be used is an error that
    // costs nothing.
    let connecting = Servers::connect(&settings.mcp, settings.dir.as_deref(), settings.allow_http);
    let servers = runtime.block_on(connecting)?;
    let secrets = endstop::process::environment_secrets().and(servers.secrets());
    if let Some(journal) = journal {
        // The journal opened before the servers were read, so their header values are added here.
        journal.hide(secrets.clone());
    }
    tape.hide(servers.secrets());
    let secrets = provider.known_keys().and(&secrets);
    // By default a replay streams as the recorded run did, because a stream and a whole response
    // differ in the recorded bytes.
    let whole = settings.no_stream || tape.recording().is_some_and(|played| !played.streamed());
    let mut builder = AgentLoop::builder(provider)
        .limits(settings.limits)
        .compaction(&settings.compaction)
        .streaming(!whole);
    if let Some(journal) = journal {
        builder = builder.journal(journal.clone()).journal_settings(saved);
    }
    if let Some(system) = settings.system {
        builder = builder.system(system);
    }
    if let Some(policy) = settings.policy {
        builder = builder.policy(policy);
    }
    if let Some(watches) = settings.watches {
        builder = builder.watches(watches);
    }
    if let Some(schema) = settings.output_schema {
        builder = builder.output_schema(schema);
    }
    if let Some(tokens) = settings.max_output_tokens {
        builder = builder.max_output_tokens(tokens);
    }
    if let Some(dir) = settings.dir {
        builder = builder.working_dir(dir);
    }
    for (at, name) in settings.tools.iter().enumerate() {
        // `finish` is added with any tool, and a tool that is named twice must be registered once.
        if name == "finish" || settings.tools[..at].contains(name) {
            continue;
        }
        let tool =
            endstop::tool::built_in(name).map_err(|error| Failure::usage(error.to_string()))?;
        builder = builder.shared_tool(tool);
        if settings.ask {
            builder = builder.permission(name, Permission::Ask);
        }
    }
    for tool in servers.tools() {
        if settings.ask {
            builder = builder.permission(tool.name(), Permission::Ask);
        }
        builder = builder.shared_tool(tool);
    }
    // Without tools the model has no work to finish, and its text is the answer.
    builder = builder.finish_tool(has_tools);
    let questions = Cell::default();
    if settings.ask {
        let (approver, asked) = AskOnTerminal::new();
        questions.set(Some(asked));
        builder = builder.approver(approver);
    }
    let agent = builder.build().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Built { agent, servers, secrets, questions })
}

/// Builds the async runtime of a run. A single thread suffices, because a run mostly waits for the
/// network and for child processes.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("could not start the async runtime: {error}")))
}

/// The last line of a run's events: its outcome, and the first difference if a replay diverged.
#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    diverged: Option<&'a Warning>,
}

/// A run with everything around it: event file, signals, screen, verifier and card.
pub(crate) struct Job {
    pub(crate) events: Option<NewFile>,
    pub(crate) verify: Option<String>,
    pub(crate) tape: Tape,
    /// The journal that stores the run.
    pub(crate) journal: Option<SqliteJournal>,
    /// The journal's file, if commands need `--journal` to find it.
    pub(crate) named_journal: Option<PathBuf>,
    /// `true` for a demo, whose advice cannot name flags because it has none.
    pub(crate) demo: bool,
    /// `true` if only the answer goes to standard output.
    pub(crate) answer_only: bool,
    /// `true` if a diverged replay exits with the status of its run.
    pub(crate) accept_divergence: bool,
    /// The MCP servers, which provide tools in addition to the built-in ones.
    pub(crate) servers: Servers,
    /// The values that must not appear in a file or on the screen.
    pub(crate) secrets: KnownKeys,
    /// The approval questions, if calls need approval; taken when the run starts.
    pub(crate) questions: Cell<Option<Questions>>,
    pub(crate) json: bool,
}

/// The start of a run: a new task, or a resume.
pub(crate) enum Begin {
    Task(String),
    Again(Resume, Box<Earlier>),
}

/// The first stop signal that arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// SIGINT: the exit status is the outcome's (130).
    Interrupt,
    /// SIGTERM or SIGHUP: the exit status is 143.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no such signals"))]
    Terminate,
}

impl Heard {
    /// Describes the signal and its effect.
    fn words(self, lifecycle: Lifecycle) -> String {
        let what = match self {
            Heard::Nothing => "nothing",
            Heard::Interrupt => "SIGINT",
            Heard::Terminate => "SIGTERM or SIGHUP",
        };
        match lifecycle {
            Lifecycle::Terminated => format!("{what} again: terminating"),
            _ => format!("{what}: cancelling; send it again to terminate"),
        }
    }
}

impl Job {
    /// Runs the task to its end and returns the exit status.
    pub(crate) fn perform(
        &self,
        runtime: Runtime,
        agent: &AgentLoop,
        begin: Begin,
        limits: &Limits,
        dir: Option<&Path>,
    ) -> Result {
        output::hide(&self.secrets);
        let spans = Spans::begin(&self.secrets);
        let status = runtime.block_on(self.drive(agent, begin, limits, dir));
        // Not a plain drop: a thread that still reads the terminal would block the exit until a
        // line is typed.
        runtime.shutdown_background();
        spans.end();
        status
    }

    async fn drive(
        &self,
        agent: &AgentLoop,
        begin: Begin,
        limits: &Limits,
        dir: Option<&Path>,
    ) -> Result {
        let mut events = match &self.events {
            Some(file) => Some(EventFile::create(file, self.secrets.clone())?),
            None => None,
        };
        // Registered before the run starts, because until then a signal kills the process.
        let mut signals = Signals::listen()?;
        let mut screen = Screen::new(limits.clone());
        screen.answer_only = self.answer_only;
        let refused = |error: StartError| match error {
            error @ (StartError::Ended(_) | StartError::Journal(_)) => {
                Failure::usage(format!("--resume: {error}"))
            }
            error @ StartError::Redacted(_) => Failure::usage(format!(
                "--resume: {error} (pass --accept-redacted to resume anyway)"
            )),
            error => Failure::usage(error.to_string()),
        };
        let mut handle = match begin {
            Begin::Task(task) => agent.run(task).map_err(refused)?,
            Begin::Again(how, earlier) => {
                let handle = match agent.resume(how.clone()) {
                    Err(StartError::Changed(changes)) => {
                        accepted(&changes)?;
                        agent.resume(how.accept_changes()).map_err(refused)?
                    }
                    resumed => resumed.map_err(refused)?,
                };
                output::note(&earlier.words);
                screen.run_resumed(earlier.calls);
                handle
            }
        };
        let (outcome, mut heard) =
            self.follow(agent, &mut handle, &mut events, &mut screen, &mut signals).await?;
        // Tools may outlive the outcome by their grace time; servers close only when no tool uses
        // them.
        agent.settled().await;
        self.servers.close().await;
        let mut outcome = Arc::unwrap_or_clone(outcome);
        screen.end_line();
        let mut unverified = false;
        if let Some(command) = self.verify.as_ref().filter(|_| outcome.is_success()) {
            if heard == Heard::Nothing {
                (outcome.verified, heard) = self.verified(command, dir, &mut signals).await;
            }
            unverified = heard != Heard::Nothing;
        }
        self.tape.ended(&outcome);
        self.warn(&mut events, &mut screen);
        let diverged = self.tape.divergence();
        let ended = Ended { outcome: &outcome, diverged: diverged.as_ref() };
        if let Some(events) = &mut events {
            // Before the card: a reader of the file must find the outcome as soon as the terminal
            // shows it.
            events.write(&ended, Keep::Now);
            events.finish();
        }
        let beside = self.beside(&outcome, diverged.as_ref(), unverified);
        if self.json {
            let _ = output::json_without(&ended, &self.secrets);
        } else {
            show_answer(&outcome, self.answer_only);
            let card = card(&outcome, limits, &beside, screen.color());
            output::painted_note(&format!("\n{card}"));
        }
        Ok(match heard {
            Heard::Terminate => 143,
            // The run succeeded, but the verifier gave no result, so the status must not be 0.
            Heard::Interrupt if unverified => 130,
            // The replay differs from the recorded run, so its ending does not show how the
            // recorded run ends.
            Heard::Nothing if diverged.is_some() && !self.accept_divergence => 2,
            Heard::Nothing | Heard::Interrupt => outcome.exit_status(),
        })
    }

    /// Builds the additional rows of the card, and stores the verifier's result in the journal.
    fn beside(&self, outcome: &Outcome, diverged: Option<&Warning>, unverified: bool) -> Beside {
        let mut beside = Beside { unverified, ..Beside::default() };
        let facts = Facts::of(outcome);
        let mut again = None;
        if let (Some(journal), Some(id)) = (&self.journal, outcome.run_id.as_deref()) {
            if let Some(verified) = outcome.verified
                && let Err(error) = journal.verified(id, verified)
            {
                output::note(&format!(
                    "endstop: the verifier's result could not be stored: {error}"
                ));
            }
            if let Ok(id) = journal.find(id) {
                let named = self.named_journal.as_deref();
                if facts.asks_for_resume()
                    && let Ok(recorded) = journal.load(&id)
                {
                    again = Again::of(&facts, &recorded, &id, named);
                }
                let explain = in_journal(&format!("endstop explain {id}"), named);
                beside.run = Some(format!("{id} ({explain})"));
            }
        }
        beside.next = match diverged {
            Some(_) => "give the task, the tools and the limits of the recorded run, or record the run again; --accept-divergence exits with the status of the replayed run".to_owned(),
            None => facts.next(again.as_ref()),
        };
        if self.demo && facts.is_failure() {
            beside.next = of_demo(&beside.next);
        }
        beside.diverged = diverged.map(|diverged| diverged.message.clone());
        beside
    }

    /// Reports each difference from the recording.
    fn warn(&self, events: &mut Option<EventFile>, screen: &mut Screen) {
        for warning in self.tape.warnings() {
            if let Some(events) = events {
                events.write(&warning, Keep::Now);
            }
            if self.json {
                screen.closed |= output::json_without(&warning, &self.secrets).is_err();
            }
            screen.end_line();
            output::note(&format!("⚠ {}", visible(&warning.message)));
        }
    }

    /// Runs the verifier and prints its output to standard error. The first signal asks it to stop,
    /// a second one kills it; in both cases there is no result.
    async fn verified(
        &self,
        command: &str,
        dir: Option<&Path>,
        signals: &mut Signals,
    ) -> (Option<bool>, Heard) {
        let mut line = CommandLine::new(command).whole_environment();
        if let Some(dir) = dir {
            line = line.in_dir(dir);
        }
        let stop = Stop { grace: VERIFIER_GRACE, ..Stop::never() };
        let mut running = std::pin::pin!(line.run(&stop));
        let mut heard = Heard::Nothing;
        let done = loop {
            tokio::select! {
                done = &mut running => break done,
                signal = signals.next() => {
                    if heard == Heard::Nothing {
                        heard = signal;
                        stop.ask.cancel();
                    } else {
                        stop.kill.cancel();
                    }
                }
            }
        };
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                output::note(&format!(
                    "endstop: --verify {command:?} could not be started: {error}"
                ));
                // A verifier that cannot start counts as a rejection, so that the run is not
                // reported as verified.
                return (Some(false), heard);
            }
        };
        for pid in &done.left {
            let told = "started by --verify, could not be killed and may still be running";
            output::note(&format!("endstop: process {pid}, {told}"));
        }
        let text = done.output.text();
        // With --json the output of a successful verifier is noise, but a failure needs its
        // explanation.
        let shown = !self.json || !done.success();
        if shown && !text.trim().is_empty() {
            output::note(&format!("verify: {}", text.trim_end().replace('\n', "\nverify: ")));
        }
        if heard != Heard::Nothing {
            output::note("endstop: --verify was stopped before it gave a result");
            return (None, heard);
        }
        if !done.success() {
            output::note(&format!("verify: {}", done.how()));
        }
        (Some(done.success()), heard)
    }

    /// Shows events until the run has ended, and reacts to signals.
    async fn follow(
        &self,
        agent: &AgentLoop,
        handle: &mut RunHandle,
        events: &mut Option<EventFile>,
        screen: &mut Screen,
        signals: &mut Signals,
    ) -> Result<(Arc<Outcome>, Heard)> {
        let mut heard = Heard::Nothing;
        let mut told = false;
        let mut questions = self.questions.take();
        let mut asked: Option<Asked> = None;
        let mut redraw = tokio::time::interval(Duration::from_millis(200));
        redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                // Biased, so that a signal is handled before a flood of events, and a question is
                // asked only after the events before it were shown.
                biased;
                signal = signals.next() => {
                    if heard == Heard::Nothing {
                        heard = signal;
                        agent.cancel();
                    } else {
                        agent.terminate();
                    }
                    if asked.is_some() {
                        // The cursor is after the question's prompt.
                        output::note("");
                    }
                    screen.end_line();
                    output::note(&format!("■ {}", signal.words(agent.lifecycle())));
                }
                stopped = self.tape.hung_up() => {
                    match stopped {
                        Some(Termination::Terminated) => agent.terminate(),
                        Some(_) => agent.cancel(),
                        None => {}
                    }
                    if let Some(how) = stopped {
                        screen.end_line();
                        output::note(&format!("■ the recorded run was {how} at this point"));
                    }
                    self.warn(events, screen);
                }
                event = handle.next() => match event {
                    Some(AgentEvent::Ended(outcome)) => {
                        screen.resume();
                        return Ok((outcome, heard));
                    }
                    Some(event) => {
                        if let Some(events) = events {
                            // Deltas are flushed later: a crash may lose streamed text, but never
                            // an event of the run.
                            let delta = matches!(event, AgentEvent::Delta(_));
                            events.write(&event, if delta { Keep::Soon } else { Keep::Now });
                        }
                        if self.json {
                            screen.closed |= output::json_without(&event, &self.secrets).is_err();
                        } else {
                            screen.show(&event);
                        }
                        self.warn(events, screen);
                        if screen.closed {
                            if !std::mem::replace(&mut told, true) {
                                output::note("endstop: standard output was closed; the run is cancelled");
                            }
                            // The rest of the run would be paid for without a reader.
                            agent.cancel();
                        }
                    }
                    None => return match handle.try_outcome() {
                        Some(outcome) => Ok((outcome, heard)),
                        None => Err(Failure::fault("the run ended without an outcome")),
                    },
                },
                question = next(&mut questions), if asked.is_none() => {
                    screen.pause();
                    let Question { call, answer } = question;
                    // One question at a time: the others wait in the channel until this one is
                    // answered.
                    asked = Some(Asked { typed: approval::ask(call), answer });
                }
                typed = answered(&mut asked), if asked.is_some() => {
                    match (typed, asked.take()) {
                        // The run may have stopped waiting for the answer.
                        (Some(typed), Some(asked)) => drop(asked.answer.send(typed)),
                        _ => output::note("\n? the question was withdrawn"),
                    }
                    screen.resume();
                }
                _ = redraw.tick(), if screen.terminal && !self.json => screen.draw_status(),
            }
        }
    }
}

/// A question that waits for its answer.
struct Asked {
    typed: oneshot::Receiver<Answer>,
    answer: oneshot::Sender<Answer>,
}

/// Waits for the next question; pending forever if there are no questions.
async fn next(questions: &mut Option<Questions>) -> Question {
    if let Some(questions) = questions
        && let Some(question) = questions.recv().await
    {
        return question;
    }
    std::future::pending().await
}

/// Waits for the typed answer. Returns `None` if the run stopped waiting for it.
async fn answered(asked: &mut Option<Asked>) -> Option<Answer> {
    let Some(Asked { typed, answer }) = asked else { return std::future::pending().await };
    tokio::select! {
        typed = typed => typed.ok(),
        () = answer.closed() => None,
    }
}

/// Prints the answer to standard output, unless its text was streamed there already; `alone` means
/// that no text was.
fn show_answer(outcome: &Outcome, alone: bool) {
    if !outcome.is_success() {
        return;
    }
    let Some(answer) = outcome.answer() else { return };
    if alone || outcome.last_text.as_deref() != Some(answer.as_str()) {
        // A pipe gets the answer unchanged, because a program reads it.
        let shown = if io::stdout().is_terminal() { visible(&answer) } else { answer };
        let _ = output::raw_line(&shown);
    }
}

/// The signals that stop a run.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::fault(format!("could not listen for signals: {error}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.interrupt.recv() => Heard::Interrupt,
            _ = self.terminate.recv() => Heard::Terminate,
            // A hangup ends the run like SIGTERM, because its terminal is gone.
            _ = self.hangup.recv() => Heard::Terminate,
        }
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, reason = "the shape of the other platforms")]
    fn listen() -> Result<Signals> {
        Ok(Signals {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> Heard {
        let _ = tokio::signal::ctrl_c().await;
        Heard::Interrupt
    }
}
