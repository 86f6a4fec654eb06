//! `endstop guard`: runs another agent program under limits, and reports how its run ended.

mod lines;
mod listen;
mod print_env;
mod report;
mod surroundings;
mod terminal;

use crate::args::GuardArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::config::price_file;
use crate::config::settings::Settings as Configured;
use crate::config::trust::{Layers, Origin};
use crate::control::Control;
use crate::control::guarded::OneGuarded;
use crate::failure::{Failure, Result, Status};
use crate::new_file::NewFile;
use crate::notify::Notifier;
use crate::open_files;
use crate::output;
use crate::run::agent::{budget_of_day, runtime};
use crate::run::events::EventFile;
use crate::run::retention::Retention;
use crate::run::signals::{Signals as VerifierSignals, StopSignal};
use crate::run::verify::verified;
use crate::run_args::RetentionArgs;
use crate::telemetry::{self, Telemetry};
use crate::visible::shorten;
use endstop::agent::GuestJournal;
use endstop::core::limits::{TABLE, parse_duration};
use endstop::core::{LimitValue, TerminationPolicy, ToolPolicy};
use endstop::journal::SqliteJournal;
use endstop::telemetry::TraceParent;
use endstop::wire::redact::KnownKeys;
use endstop::{Limits, Outcome};
use endstop_guard::clients::{DiskFiles, Request, Source, Warning, Wiring, goes_around, wire};
use endstop_guard::exchange::RunName;
use endstop_guard::process::{
    GRACE, PrivateFolder, Reaction, Signals, command_lines, launch, supervise,
};
use endstop_guard::proxy::{Access, Proxy, ProxyOptions, SecretPath, Upstream, UpstreamMap};
use endstop_guard::run::{
    Gate, GuardEvent, JournalSettings, NO_CALLS_AFTER, OnLimit, RunHandle, Settings,
    warn_without_calls,
};
use endstop_report::advice::quoted;
use lines::GuardLines;
use report::{Done, ending, last_line, report, stored};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use surroundings::{aws_keys, environment, guests, outgoing, random, salt, secret};
use terminal::GuardTerminal;
use tokio::net::TcpListener;

/// Longest wait for responses that are still read after the program has ended.
const READ_ON: Duration = Duration::from_secs(3);

const NO_COMMAND: &str =
    "no program: give it after `--`, for example `endstop guard --max-turns 50 -- claude -p \"…\"`";

/// Where guard reports what happens while its program runs: the lines of events, and the notes for its user.
#[derive(Clone)]
struct Reports {
    lines: GuardLines,
    terminal: GuardTerminal,
}

impl Reports {
    fn say(&self, text: &str) {
        self.terminal.say(&format!("endstop guard: {text}"));
    }

    fn warn(&self, warning: &str) {
        self.lines.warning(warning);
        self.say(warning);
    }

    /// Notes what passed without a check, and what was refused.
    fn note_event(&self, event: &GuardEvent) {
        match event {
            GuardEvent::Passed { target, reason } => {
                self.say(&format!("passed without a check: {target}: {reason}"));
            }
            GuardEvent::Refused { target, reason } => {
                self.say(&format!("refused: {target}: {reason}"));
            }
            GuardEvent::Stranger { reason, count } => {
                self.say(&format!("refused: {reason} ({count} in all)"));
            }
            _ => {}
        }
    }
}

/// The conditions for stopping a program, and for its success.
#[derive(Clone, Copy)]
struct Stopping {
    /// The time that it has to end after its run has.
    grace: Duration,
    /// `true` if a run without a call fails, because limits were to hold.
    must_call: bool,
}

pub(crate) fn run(args: &GuardArgs, json: bool) -> Result<Status> {
    if let Some(shell) = &args.print_env {
        return print_env::run(args, shell).map(Status::OfCommand);
    }
    if let Some(address) = &args.listen {
        return listen::run(args, address, json).map(Status::OfCommand);
    }
    if args.command.is_empty() {
        return Err(Failure::usage(NO_COMMAND));
    }
    // The command line is the task of the run, and each list of runs shows it.
    output::hide(&KnownKeys::of_variables(named_values(&args.command)));
    let grace = parse_duration(&args.grace).ok_or_else(|| {
        Failure::usage(format!("--grace: `{}` is not a time; expected for example 10s", args.grace))
    })?;
    let layers = Layers::find(args.config.as_deref(), Path::new("."))?.for_guard();
    let configured = Configured::of_layers(&layers, &args.settings)?;
    let mut settings = settings(args, &configured)?;
    let file = args.events.as_deref();
    let file = file.map(|path| NewFile::of("--events", path, args.overwrite)).transpose()?;
    let place =
        args.settings.journal.clone().or_else(|| configured.folder_journal().map(Path::to_owned));
    let journal = journal_path::to_write(&JournalPath::of(place.as_deref(), None)?)?;
    let name = name(args, journal.as_ref())?;
    // Bound to a name, because `_` alone would drop it at once and stop its work.
    let _retention = Retention::begin(journal.as_ref(), RetentionArgs::default());
    let file = file.map(|file| EventFile::create(&file)).transpose()?;
    let (lines, writer) = GuardLines::begin(file, json);
    let reports = Reports { lines, terminal: GuardTerminal::begin() };
    if let Some(journal) = &journal {
        let journal = guests(journal)?;
        settings.journal = Some(recorded(args, &configured, journal, &reports));
    }
    let project = configured.project.as_deref();
    settings.budget = budget_of_day(&configured.spend, project, false, journal.as_ref())?;
    let must_call = !args.allow_no_calls && wants_calls(&configured, &settings.limits);
    let own = reports.clone();
    let say = Arc::new(move |problem: &str| own.say(problem));
    let notifier = Notifier::begin(&configured.notify, configured.allow_http, Some(say))?;
    let runtime = runtime()?;
    let telemetry = Telemetry::begin(&output::keys(), configured.allow_http);
    let stop = Stopping { grace, must_call };
    let done = runtime.block_on(guarded(args, settings, name, stop, &reports, &notifier));
    // Also if it was not started.
    reports.terminal.release();
    let done = done?;
    let color = output::shows_colours(&std::io::stderr());
    let run = match &journal {
        Some(journal) => stored(args, journal, &done.outcome),
        None => journal_path::not_stored(place.as_deref(), None),
    };
    let status = report(args, &done, run, (json, color));
    reports.lines.finish(last_line(&done), writer);
    notifier.ended(&done.outcome);
    notifier.finish();
    // Connections of the proxy that are still open must not delay the exit.
    runtime.shutdown_background();
    telemetry.end();
    Ok(status)
}

/// Returns the settings of the run. Guard observes unless the user sets a limit, because coding
/// agents need hundreds of turns: the defaults of `run` do not apply.
fn settings(args: &GuardArgs, configured: &Configured) -> Result<Settings> {
    let mut settings = Settings::default();
    for row in TABLE {
        if let Some(origin) = configured.origins.get(&format!("limits.{}", row.name)) {
            if let Some(obstacle) = settings.mode().obstacle(&row) {
                match origin {
                    Origin::Flag(flag) => return Err(Failure::usage(format!("{flag} {obstacle}"))),
                    // The file may be that of `endstop run` as well.
                    file => {
                        output::note(&format!(
                            "endstop guard: `{}` of {file} {obstacle}",
                            row.name
                        ));
                    }
                }
                continue;
            }
            let value = configured.limits.get(row.name).unwrap_or_default();
            settings.limits.set(row.name, &value).map_err(|error| {
                Failure::usage(format!("limit `{}`: {}", row.name, error.problem))
            })?;
        }
    }
    if let Some(watches) = &configured.watches {
        settings.watches.clone_from(watches);
    }
    if let Some(policy) = &configured.policy {
        let template = Mutex::new(policy.clone());
        settings.policy = Some(Arc::new(move || -> Box<dyn TerminationPolicy> {
            Box::new(template.lock().unwrap_or_else(PoisonError::into_inner).clone())
        }));
    }
    settings.on_limit = args.on_limit.parse::<OnLimit>().map_err(Failure::usage)?;
    settings.other = args.other.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
    settings.cap_output = args.cap_output;
    settings.tools = Arc::new(ToolPolicy::of_max_calls(&configured.max_calls));
    settings.price = configured.price;
    settings.prices = Arc::new(price_file::price_book(configured)?);
    settings.aws = aws_keys();
    Ok(settings)
}

/// `true` if the command line has a limit that only calls can meet. One of a settings file may be meant for other
/// commands, and a timeout holds without a call.
fn wants_calls(configured: &Configured, limits: &Limits) -> bool {
    TABLE.iter().any(|row| {
        let origin = configured.origins.get(&format!("limits.{}", row.name));
        let needs_call = match row.value(limits) {
            LimitValue::Count(_)
            | LimitValue::Usd(_)
            | LimitValue::Windows(_)
            | LimitValue::Rates(_) => true,
            LimitValue::Switch(_)
            | LimitValue::Tokens(_)
            | LimitValue::Time(_)
            | LimitValue::Off => false,
        };
        needs_call && matches!(origin, Some(Origin::Flag(_)))
    })
}

/// The values in a command line that have a name: `--api-key VALUE`, `--api-key=VALUE`, `NAME=VALUE`.
fn named_values(command: &[OsString]) -> Vec<(String, String)> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let glued = words.iter().filter_map(|word| word.split_once('='));
    let apart = words.windows(2).map(|pair| (&*pair[0], &*pair[1]));
    let apart = apart.filter(|(name, _)| name.starts_with('-'));
    let named = glued.chain(apart);
    named.map(|(name, value)| (name.trim_start_matches('-').to_owned(), value.to_owned())).collect()
}

/// Returns how the journal records the run.
fn recorded(
    args: &GuardArgs,
    configured: &Configured,
    journal: GuestJournal,
    reports: &Reports,
) -> JournalSettings {
    let words: Vec<_> = args.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    let reports = reports.clone();
    let report = move |problem: String| {
        reports.say(&format!("{problem}; the run continues without it"));
        reports.lines.warning(&problem);
    };
    JournalSettings {
        journal,
        task: shorten(&words.join(" "), 1000),
        policy: configured
            .policy
            .as_ref()
            .map(|policy| policy.specification().unwrap_or_else(|| policy.name().into())),
        settings: json!({"guard": true, "verify": args.settings.verify, "project": configured.project}),
        keys: output::keys(),
        report: Arc::new(report),
        many: None,
    }
}

/// Returns the name of the run. A name that the journal has already gets a random ending.
fn name(args: &GuardArgs, journal: Option<&SqliteJournal>) -> Result<RunName> {
    let given = match &args.name {
        Some(name) if journal.is_some_and(|journal| journal.is_running(name).is_ok()) => {
            format!("{name}-{:08x}", random() >> 32)
        }
        Some(name) => name.clone(),
        None => format!("g{:013x}", random() >> 12),
    };
    if *output::hidden(&given) != *given {
        // Lists, journals and events show it.
        return Err(Failure::usage(
            "--name: it contains a secret of the environment; choose a name that is not secret",
        ));
    }
    RunName::new(&given).map_err(|error| Failure::usage(format!("--name: {error}")))
}

async fn guarded(
    args: &GuardArgs,
    mut settings: Settings,
    name: RunName,
    Stopping { grace, must_call }: Stopping,
    reports: &Reports,
    notifier: &Notifier,
) -> Result<Done> {
    // Each connection of the program may have one to the provider.
    let connections = open_files::connections(ProxyOptions::default().connections, 2)?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io("the proxy cannot listen"))?;
    let address = listener.local_addr().map_err(io("the proxy has no address"))?;
    let private = PrivateFolder::create().map_err(io("no folder for temporary files"))?;
    let environment = environment();
    let path = SecretPath::new(secret()?, &format!("/run/{}", name.as_str()));
    let address = format!("http://{address}{}", path.as_str());
    let wiring = wired(args, &environment, settings.is_strict(), &address, &private)?;
    for warning in &wiring.warnings {
        output::note(&format!("endstop guard: {warning}"));
        reports.lines.warning(&warning.to_string());
    }
    let must_call = must_call && !wiring.makes_no_run;
    if must_call {
        refuse_unguarded(&wiring)?;
    }
    settings.is_agent = wiring.is_agent;
    settings.submits_with = wiring.submits_with;
    settings.attended = Some(reports.terminal.attended());
    if let Some(journal) = &mut settings.journal {
        // `explain` names the command that continues its session.
        journal.settings["client"] = json!(wiring.client);
    }
    settings.closing = Some(closing(wiring.resume));
    settings.spans = telemetry::spans(wiring.client);
    // All users can read the arguments of a program. With sudo, the program is that of another one.
    let is_visible = wiring.has_in_arguments(path.secret()) && !wiring.changes_user;
    let on_limit = settings.on_limit;
    let observed = reports.clone();
    let on_event = Arc::new(move |event: GuardEvent| {
        observed.lines.event(&event);
        observed.note_event(&event);
    });
    let gate = Gate::new(settings, upstreams(&wiring)?, salt(), on_event);
    // The run begins here, below the program that has started guard.
    let only = || gate.only(name.clone());
    let (gate, handle) = TraceParent::above(telemetry::parent().as_ref(), only);
    reports.lines.set_run(&handle);
    let _control = Control::open(Arc::new(OneGuarded(handle.clone())));
    let options = ProxyOptions {
        access: Access::Path { path, is_visible },
        connections,
        outgoing: outgoing(&environment),
        ..ProxyOptions::default()
    };
    let proxy = Proxy::new(gate, options);
    #[expect(clippy::disallowed_methods, reason = "aborted below, after the program has ended")]
    let proxy = tokio::spawn(proxy.run(listener, std::future::pending()));
    // Before the program starts: a signal that comes earlier would end this process.
    let mut signals = Signals::listen().map_err(io("signals cannot be received"))?;
    // Another guard with the same name must not take these processes for its own.
    let mark = format!("{}-{:x}", name.as_str(), random());
    let mut agent = launch(&wiring, &private, &mark).map_err(|error| not_started(args, &error))?;
    #[expect(clippy::disallowed_methods, reason = "aborted below, after the program has ended")]
    let warning = tokio::spawn(warn_of_no_calls(handle.clone(), reports.clone()));
    let mut seen = environment;
    seen.extend(wiring.env.iter().cloned());
    let around = warn_of_others(seen, address, wiring.client, reports.clone());
    #[expect(clippy::disallowed_methods, reason = "aborted below, after the program has ended")]
    let around = tokio::spawn(around);
    let (own, followed) = (notifier.clone(), handle.clone());
    #[expect(clippy::disallowed_methods, reason = "awaited below, after the run has ended")]
    let following = tokio::spawn(async move { own.follow(&followed).await });
    let limit = limit_reached(handle.clone(), on_limit, grace, reports.terminal.clone());
    // At a terminal the key reaches the program as well, which may only stop its current answer.
    let at_terminal = reports.terminal.exists();
    let on_interrupt = |reaction| {
        if !at_terminal || reaction != Reaction::Note {
            handle.cancel();
        }
    };
    // The keeper starts the program, so its failure to do so arrives here.
    let program = supervise(&mut agent, &mut signals, limit, GRACE, on_interrupt);
    let program = tokio::select! {
        program = program => program.map_err(|error| not_started(args, &error))?,
        never = reports.terminal.watch() => match never {},
    };
    // Before anything is written: the program may have left the terminal as it used it.
    reports.terminal.restore(program.stopped);
    warning.abort();
    around.abort();
    // Some clients close before the usage arrives; it is read to its end.
    let _ = tokio::time::timeout(READ_ON, handle.idle()).await;
    let is_known = |warning: &Warning| matches!(warning, Warning::Subscription { .. });
    if handle.is_subscription() && !wiring.warnings.iter().any(is_known) {
        reports.warn(&Warning::Subscription { service: "a subscription" }.to_string());
    }
    let cancelled = program.interrupted.is_some_and(|time| time <= grace);
    let (outcome, ended_by_us) = ending(&handle, &program, cancelled, must_call);
    proxy.abort();
    handle.recorded().await;
    // It ends with the run, whose outcome a panic in it must not change.
    let _ = following.await;
    // From here on the report quotes what the program sent and received.
    output::hide(&handle.secrets());
    let mut done = Done {
        outcome: Outcome::clone(&outcome),
        counts: handle.counts(),
        limits: handle.limits(),
        client: wiring.client,
        fired_elsewhere: handle.fired_elsewhere(),
        program,
        ended_by_us,
        verified: StopSignal::Nothing,
    };
    if let Some(command) = args.settings.verify.as_ref().filter(|_| done.outcome.is_success()) {
        drop(signals);
        let mut signals = VerifierSignals::listen()?;
        (done.outcome.verified, done.verified) = verified(command, None, false, &mut signals).await;
    }
    Ok(done)
}

/// Names the step that failed.
fn io(what: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::fault(format!("{what}: {error}"))
}

/// Points the program at the proxy.
fn wired(
    args: &GuardArgs,
    environment: &BTreeMap<String, String>,
    is_strict: bool,
    proxy: &str,
    private: &PrivateFolder,
) -> Result<Wiring> {
    let folder = std::env::current_dir().map_err(io("the working folder is not readable"))?;
    Ok(wire(&Request {
        command: &args.command,
        environment,
        folder: &folder,
        proxy,
        private: private.path(),
        is_strict,
        files: &DiskFiles,
    }))
}

/// Refuses to start a program under limits that would hold for none of its calls.
fn refuse_unguarded(wiring: &Wiring) -> Result<()> {
    match wiring.warnings.iter().find(|warning| warning.is_unguarded()) {
        None => Ok(()),
        Some(warning) => Err(Failure::usage(format!(
            "{warning}. It is not started, because the limits would hold for none of its calls; \
             --allow-no-calls starts it nevertheless"
        ))),
    }
}

/// Names the program that could not be started, with the status that a shell gives: 127 if it was not found, 126 if it
/// cannot be run.
fn not_started(args: &GuardArgs, error: &std::io::Error) -> Failure {
    let program = args.command.first().map_or(Path::new(""), Path::new);
    let name = shorten(&program.to_string_lossy(), 400).replace('\n', " ");
    // Without a number it is not the system that refused.
    if error.raw_os_error().is_none() {
        return Failure::fault(format!("`{name}` could not be started: {error}"));
    }
    let has_folder = program.components().count() > 1;
    let (problem, status) = match error.kind() {
        ErrorKind::NotFound if has_folder && program.is_file() => {
            ("the interpreter that its first line names does not exist".to_owned(), 126)
        }
        ErrorKind::NotFound if has_folder => ("no such file".to_owned(), 127),
        ErrorKind::NotFound => ("there is no such program in the folders of PATH".to_owned(), 127),
        ErrorKind::PermissionDenied if program.is_dir() => ("it is a folder".to_owned(), 126),
        ErrorKind::PermissionDenied => ("it is not executable".to_owned(), 126),
        _ => (error.to_string(), 126),
    };
    Failure { message: format!("`{name}` could not be started: {problem}"), status }
}

fn upstream(base: &str, source: &Source) -> Result<Upstream> {
    Upstream::parse(base).map_err(|error| Failure::usage(format!("{source}: {error}")))
}

/// Returns the upstream of each format and service.
fn upstreams(wiring: &Wiring) -> Result<UpstreamMap> {
    let mut map: Option<UpstreamMap> = None;
    for (format, base, source) in &wiring.upstreams {
        let upstream = upstream(base, source)?;
        map = Some(match map {
            None => UpstreamMap::new(upstream.clone()).with(*format, upstream),
            Some(map) => map.with(*format, upstream),
        });
    }
    let mut map = map.ok_or_else(|| Failure::fault("no upstream is known"))?;
    for (prefix, base, source) in &wiring.services {
        map = map.below(prefix, upstream(base, source)?);
    }
    Ok(map)
}

/// Warns once if no call comes from the program, because it may not use the proxy.
async fn warn_of_no_calls(handle: RunHandle, reports: Reports) {
    let Some(warning) = warn_without_calls(&handle, NO_CALLS_AFTER).await else {
        return;
    };
    reports.lines.warning(&warning.to_string());
    // Its user is in front of it and may not have asked anything yet. If that stays so, the card says it.
    if !reports.terminal.is_taken() {
        reports.say(&warning.to_string());
    }
}

/// Warns once of each client that the program has started if its calls may go around guard. Looks for processes, so one
/// that lives shortly is missed.
async fn warn_of_others(
    environment: BTreeMap<String, String>,
    proxy: String,
    own: Option<&'static str>,
    reports: Reports,
) {
    /// Interval between two looks.
    const LOOK_EVERY: Duration = Duration::from_millis(500);
    let folder = std::env::current_dir().unwrap_or_default();
    let mut known: Vec<&str> = own.into_iter().collect();
    loop {
        for command in command_lines() {
            let request = Request {
                command: &command,
                environment: &environment,
                folder: &folder,
                proxy: &proxy,
                private: Path::new(""),
                is_strict: false,
                files: &DiskFiles,
            };
            let Some(client) = goes_around(&request).filter(|name| !known.contains(name)) else {
                continue;
            };
            known.push(client);
            reports.warn(&format!(
                "the program has started {client}, whose calls may go to an address of its own: guard does not see \
                 them, and no limit holds for them"
            ));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Returns the sentence that tells the program's user what happens after the stop.
fn closing(resume: Option<&str>) -> String {
    let resume = resume.map_or_else(|| "start it".to_owned(), |command| format!("run `{command}`"));
    format!("endstop guard closes this program; to continue, {resume} under `endstop guard`")
}

/// Completes when the program must be stopped, because its run has ended and it continues.
async fn limit_reached(
    handle: RunHandle,
    on_limit: OnLimit,
    grace: Duration,
    terminal: GuardTerminal,
) {
    /// Refused calls after which a program does not understand that it should end.
    const PATIENCE: u64 = 3;
    let _ = handle.ended().await;
    if on_limit == OnLimit::Kill {
        return;
    }
    let patience = handle.until(|run| run.counts().refusals >= PATIENCE);
    // Either way the program has had its chance.
    let is_late = tokio::time::timeout(grace, patience).await.is_err();
    if !is_late || !terminal.was_taken() {
        return;
    }
    // A person reads, or writes the next message. That costs nothing until the program calls again.
    let before = handle.counts().refusals;
    let calls = handle.until(|run| run.counts().refusals > before);
    match handle.limits().timeout {
        None => calls.await,
        Some(timeout) => {
            let left = (timeout + grace).saturating_sub(handle.live().elapsed);
            let _ = tokio::time::timeout(left, calls).await;
        }
    }
}
