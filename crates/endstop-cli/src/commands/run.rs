//! `endstop run`: run an agent and say why it ended.

use super::demo;
use crate::args::{DemoArgs, RunArgs};
use crate::card::{Kept, card, count, shorten, visible};
use crate::events::{EventFile, Keep};
use crate::kept::{self, Place};
use crate::screen::Screen;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::tape::Tape;
use crate::telemetry::Spans;
use crate::{Failure, Result, output};
use endstop::agent::{AgentEvent, AgentLoop, Lifecycle, RunHandle};
use endstop::hook::{Approver, HookFuture};
use endstop::journal::{Change, JournalError, SqliteJournal};
use endstop::process::{CommandLine, Stop};
use endstop::provider::Provider as _;
use endstop::provider::http::HttpOptions;
use endstop::wire::redact::KnownKeys;
use endstop::{Answer, Limits, Outcome, Permission, Resume, StartError, Termination, ToolCall};
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

const NO_MODEL: &str = "no model is configured: playing the built-in `fix` demo instead.
Give one with --model PROVIDER/MODEL (`endstop providers` lists them), or in endstop.toml.";

/// How long a verifier has to end once a signal came.
const VERIFIER_GRACE: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &RunArgs, json: bool) -> Result {
    if let Some(name) = &args.resume {
        return resume(args, name, json);
    }
    let settings = Settings::of(args)?;
    let mut tape = Tape::of(args, &settings)?;
    let configured = settings.model.is_some() || settings.base_url.is_some();
    if !configured && tape.recording().is_none() {
        if args.task.is_some() || tape.records() {
            return Err(Failure::usage(
                "no model is configured: give one with --model PROVIDER/MODEL (`endstop providers` lists them), or `model = \"…\"` in endstop.toml; `endstop run` without a task plays a demo",
            ));
        }
        output::note(&format!("endstop: {NO_MODEL}\n"));
        let demo = DemoArgs { name: "fix".to_owned(), unfixable: false };
        return demo::run(&demo, json);
    }
    let verify = settings.verify.clone();
    let dir = settings.dir.clone();
    let limits = settings.limits.clone();
    let journal = kept::to_write(&Place::of(args.journal.as_deref(), settings.journal.as_deref()))?;
    let runtime = runtime()?;
    // Before the task is read: what cannot run should not wait for its input.
    let (agent, servers, secrets) = build(settings, &mut tape, journal.as_ref(), &runtime)?;
    let task = task(args, &tape)?;
    tape.task(&task);
    let events = args.events.clone();
    let job = Job { events, verify, tape, journal, goes_on: true, servers, secrets, json };
    job.perform(runtime, &agent, Begin::Task(task), &limits, dir.as_deref())
}

/// Goes on with a run that was kept.
fn resume(args: &RunArgs, name: &str, json: bool) -> Result {
    let journal = kept::to_write(&Place::of(args.journal.as_deref(), None))?.ok_or_else(|| {
        Failure::usage(
            "--resume: there is no journal to find the run in: give its file with --journal FILE",
        )
    })?;
    let wrong = |error: JournalError| Failure::usage(format!("--resume: {error}"));
    let id = journal.find(name).map_err(wrong)?;
    let recorded = journal.load(&id).map_err(wrong)?;
    let settings = Settings::of_kept(&recorded, args)?;
    let mut tape = Tape::of(args, &settings)?;
    let (verify, dir, limits) =
        (settings.verify.clone(), settings.dir.clone(), settings.limits.clone());
    let runtime = runtime()?;
    let (agent, servers, secrets) = build(settings, &mut tape, Some(&journal), &runtime)?;
    let mut how = Resume::new(&id);
    if args.accept_changes {
        how = how.accept_changes();
    }
    let turns = recorded.events.iter().filter(|event| event.kind.name() == "turn_ended").count();
    output::note(&format!(
        "▶ going on with run {id} after {}: {}",
        count(turns as u64, "response"),
        shorten(recorded.task(), 100)
    ));
    tape.task(recorded.task());
    let (events, journal) = (args.events.clone(), Some(journal));
    let job = Job { events, verify, tape, journal, goes_on: true, servers, secrets, json };
    job.perform(runtime, &agent, Begin::Again(how), &limits, dir.as_deref())
}

/// Says what differs from the run as it began, and asks on the terminal whether to go on.
fn accepted(changes: &[Change]) -> Result<()> {
    output::note("the run was begun otherwise:");
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
            "the run was begun otherwise (above): give what it was begun with, or --accept-changes",
        ));
    }
    output::note("go on all the same? y or n:");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    match (read, line.trim()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Failure::usage("not gone on with: the run stays as it was")),
    }
}

/// The task: the argument, that of the recording which is played, or standard input.
fn task(args: &RunArgs, tape: &Tape) -> Result<String> {
    let recorded = tape.recording().and_then(|recording| recording.header.task.as_ref());
    let task = match (&args.task, recorded) {
        (Some(task), _) if task != "-" => task.clone(),
        (None, Some(task)) => task.clone(),
        _ => {
            if io::stdin().is_terminal() {
                return Err(Failure::usage(
                    "no task: give it as an argument, or on standard input",
                ));
            }
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::usage(format!("standard input: {error}")))?;
            text
        }
    };
    if task.trim().is_empty() {
        return Err(Failure::usage(
            "the task is empty: give it as an argument, or on standard input",
        ));
    }
    Ok(task)
}

fn build(
    settings: Settings,
    tape: &mut Tape,
    journal: Option<&SqliteJournal>,
    runtime: &Runtime,
) -> Result<(AgentLoop, Servers, KnownKeys)> {
    let saved = settings.saved();
    if let Some(dir) = settings.dir.as_ref().filter(|dir| !dir.is_dir()) {
        return Err(Failure::usage(format!("--dir {}: not a folder", dir.display())));
    }
    let has_tools = !settings.tools.is_empty() || !settings.mcp.is_empty();
    if settings.ask && has_tools && !io::stdin().is_terminal() {
        // Refused now: the model would otherwise be paid to be told so, call by call.
        return Err(Failure::usage(
            "--ask: standard input is no terminal to ask on; give the task as an argument, or leave `ask` out",
        ));
    }
    let options = HttpOptions {
        model: settings.model.unwrap_or_else(|| "default".to_owned()),
        api: settings.api,
        base_url: settings.base_url,
        price: settings.price,
        context_window: settings.context_window,
    };
    let provider = tape.provider(&options)?;
    // Before the model is paid: a server that cannot be used is an error.
    let connecting = Servers::connect(&settings.mcp, settings.dir.as_deref());
    let servers = runtime.block_on(connecting)?;
    let secrets = endstop::process::environment_secrets().and(servers.secrets());
    if let Some(journal) = journal {
        journal.hide(secrets.clone());
    }
    let secrets = provider.known_keys().and(&secrets);
    // A replay asks as the recorded run did, unless it is told otherwise.
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
        // `finish` comes with any tool; a tool that is asked for twice is there once.
        if name == "finish" || settings.tools[..at].contains(name) {
            continue;
        }
        let tool = endstop::tool::built_in(name).map_err(Failure::usage)?;
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
    // Without a tool there is nothing to finish: the answer is the answer.
    builder = builder.finish_tool(has_tools);
    if settings.ask {
        builder = builder.approver(AskOnTerminal);
    }
    let agent = builder.build().map_err(|error| Failure::usage(error.to_string()))?;
    Ok((agent, servers, secrets))
}

/// What everything of a run happens in.
pub(crate) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("the runtime did not start: {error}")))
}

/// Asks on the terminal before each tool call.
struct AskOnTerminal;

impl Approver for AskOnTerminal {
    fn approve(&self, call: ToolCall) -> HookFuture<'_> {
        Box::pin(async move {
            if !io::stdin().is_terminal() {
                return Answer::Deny("there is no terminal to ask on".to_owned());
            }
            output::note(&format!(
                "? run {} {} — y to allow, n to refuse, h to halt:",
                call.name,
                visible(&call.arguments)
            ));
            let (sender, answer) = tokio::sync::oneshot::channel();
            // A thread of its own: a read of the terminal cannot be taken back, and must not hold
            // up the end of the run.
            std::thread::spawn(move || {
                let mut line = String::new();
                let read = io::stdin().lock().read_line(&mut line);
                let _ = sender.send(read.map(|_| line));
            });
            match answer.await {
                Ok(Ok(line)) if matches!(line.trim(), "y" | "yes") => Answer::Proceed,
                Ok(Ok(line)) if matches!(line.trim(), "h" | "halt") => {
                    Answer::Halt("halted by the person who was asked".to_owned())
                }
                _ => Answer::Deny("the person who was asked refused it".to_owned()),
            }
        })
    }
}

/// What is done around a run: events written, signals heard, the ending shown.
pub(crate) struct Job {
    pub(crate) events: Option<PathBuf>,
    pub(crate) verify: Option<String>,
    pub(crate) tape: Tape,
    /// Where the run is kept.
    pub(crate) journal: Option<SqliteJournal>,
    /// Whether `--resume` can go on with it.
    pub(crate) goes_on: bool,
    /// Whose tools it has beside its own.
    pub(crate) servers: Servers,
    /// What must not come to a file or a screen.
    pub(crate) secrets: KnownKeys,
    pub(crate) json: bool,
}

/// How a run begins.
pub(crate) enum Begin {
    Task(String),
    Again(Resume),
}

/// What a signal asked for.
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
    /// What was heard, and what comes of it.
    fn words(self, lifecycle: Lifecycle) -> String {
        let what = match self {
            Heard::Nothing => "nothing",
            Heard::Interrupt => "SIGINT",
            Heard::Terminate => "SIGTERM or SIGHUP",
        };
        match lifecycle {
            Lifecycle::Terminated => format!("{what} again: terminating"),
            _ => format!("{what}: cancelling; once more terminates"),
        }
    }
}

impl Job {
    /// Runs the task to its end; gives the exit status.
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
        // A thread that still reads the terminal must not keep the process.
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
            Some(path) => Some(EventFile::create(path, self.secrets.clone())?),
            None => None,
        };
        let mut signals = Signals::listen()?;
        let mut screen = Screen::new(limits.clone());
        let refused = |error: StartError| match error {
            error @ (StartError::Ended(_) | StartError::Journal(_)) => {
                Failure::usage(format!("--resume: {error}"))
            }
            error => Failure::usage(error.to_string()),
        };
        let mut handle = match begin {
            Begin::Task(task) => agent.run(task).map_err(refused)?,
            Begin::Again(how) => match agent.resume(how.clone()) {
                Err(StartError::Changed(changes)) => {
                    accepted(&changes)?;
                    agent.resume(how.accept_changes()).map_err(refused)?
                }
                resumed => resumed.map_err(refused)?,
            },
        };
        let (outcome, mut heard) =
            self.follow(agent, &mut handle, &mut events, &mut screen, &mut signals).await?;
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
        if let Some(events) = &mut events {
            events.write(&AgentEvent::Ended(Arc::new(outcome.clone())), Keep::Now);
            events.finish();
        }
        let kept = self.kept(&outcome);
        if self.json {
            let _ = output::json_without(&outcome, &self.secrets);
        } else {
            show_answer(&outcome);
            output::note(&format!("\n{}", card(&outcome, limits, kept.as_ref(), screen.color())));
        }
        Ok(match heard {
            Heard::Terminate => 143,
            // The run was a success, but whether its work is right was not found out.
            Heard::Interrupt if unverified => 130,
            Heard::Nothing | Heard::Interrupt => outcome.exit_status(),
        })
    }

    /// The run's name in the journal, with what the verifier said of it.
    fn kept(&self, outcome: &Outcome) -> Option<Kept> {
        let (journal, id) = (self.journal.as_ref()?, outcome.run_id.as_deref()?);
        if let Some(verified) = outcome.verified
            && let Err(error) = journal.verified(id, verified)
        {
            output::note(&format!("endstop: what the verifier said is not kept: {error}"));
        }
        journal.find(id).ok().map(|run| Kept { run, goes_on: self.goes_on })
    }

    /// Tells what is not as it was recorded.
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

    /// Runs the verifier; what it prints goes to standard error. A signal stops it (a second one
    /// at once), and then there is no answer.
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
                output::note(&format!("endstop: --verify {command:?} could not be run: {error}"));
                return (Some(false), heard);
            }
        };
        for pid in &done.left {
            let told = "started by --verify, could not be killed and may go on";
            output::note(&format!("endstop: process {pid}, {told}"));
        }
        let text = done.output.text();
        let shown = !self.json || !done.success();
        if shown && !text.trim().is_empty() {
            output::note(&format!("verify: {}", text.trim_end().replace('\n', "\nverify: ")));
        }
        if heard != Heard::Nothing {
            output::note("endstop: --verify was stopped before it had an answer");
            return (None, heard);
        }
        if !done.success() {
            output::note(&format!("verify: {}", done.how()));
        }
        (Some(done.success()), heard)
    }

    /// Shows what happens until the run has ended; hears signals.
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
        let mut redraw = tokio::time::interval(Duration::from_millis(200));
        redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    if heard == Heard::Nothing {
                        heard = signal;
                        agent.cancel();
                    } else {
                        agent.terminate();
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
                        output::note(&format!("■ the recorded run was {how} here"));
                    }
                    self.warn(events, screen);
                }
                event = handle.next() => match event {
                    Some(AgentEvent::Ended(outcome)) => return Ok((outcome, heard)),
                    Some(event) => {
                        if let Some(events) = events {
                            // A crash loses text that was streaming, never a step of the run's life.
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
                                output::note("endstop: nobody reads standard output any more: the run is cancelled");
                            }
                            // Nobody reads any more: what is spent from here is spent for nobody.
                            agent.cancel();
                        }
                    }
                    None => return match handle.try_outcome() {
                        Some(outcome) => Ok((outcome, heard)),
                        None => Err(Failure::fault("the run ended without an outcome")),
                    },
                },
                _ = redraw.tick(), if screen.terminal && !self.json => screen.draw_status(),
            }
        }
    }
}

/// A declared answer that was not said as text goes to standard output.
fn show_answer(outcome: &Outcome) {
    if !outcome.is_success() {
        return;
    }
    let Some(answer) = outcome.answer() else { return };
    if outcome.last_text.as_deref() != Some(answer.as_str()) {
        let shown = if io::stdout().is_terminal() { visible(&answer) } else { answer };
        let _ = output::line(&shown);
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
                .map_err(|error| Failure::fault(format!("signals cannot be heard: {error}")))
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
