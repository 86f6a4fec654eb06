//! `endstop guard --listen`: a standing proxy for many agents and machines.

use super::surroundings::{aws_keys, environment, guests, outgoing, salt};
use crate::args::GuardArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::config::price_file;
use crate::config::settings::Settings;
use crate::config::spend::SpendSettings;
use crate::config::trust::file::{name_of, named};
use crate::config::trust::journal::own_settings;
use crate::config::trust::owner;
use crate::control::Control;
use crate::failure::{Failure, Result};
use crate::notify::Notifier;
use crate::open_files;
use crate::output;
use crate::render::amounts::count;
use crate::run::agent::{budget_of_day, runtime};
use crate::run::retention::Retention;
use crate::run::signals::{Signals, StopSignal};
use crate::run_args::RetentionArgs;
use crate::telemetry::{self, Telemetry};
use crate::visible::visible;
use endstop::Outcome;
use endstop::agent::GuestJournal;
use endstop::journal::{JournalError, SqliteJournal};
use endstop_guard::exchange::Threads;
use endstop_guard::proxy::{Access, Proxy, ProxyOptions};
use endstop_guard::run::{GuardEvent, JournalSettings, Records, RunHandle};
use endstop_guard::standing::{
    Hour, Keeper, OpenBudget, Profile, Standing, StandingEvent, StandingFile, serve_metrics,
};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

/// Interval at which idle runs are looked for and the day's spending is stored.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the journal is bounded.
const PRUNED_EVERY: Duration = Duration::from_secs(3600);
/// Largest number of runs that are recorded at once.
const MOST_RECORDS: usize = 512;

/// A run that has ended: its profile, the run and its outcome.
type Ended = (Arc<str>, RunHandle, Arc<Outcome>);

pub(in crate::commands) fn run(args: &GuardArgs, address: &str, json: bool) -> Result {
    if !args.command.is_empty() {
        return Err(Failure::usage(
            "--listen serves programs that are started elsewhere; remove the program after `--`, or --listen",
        ));
    }
    if args.name.is_some() {
        return Err(Failure::usage(
            "--name: each client of a standing proxy names its run, in its address: see `endstop guard --print-env`",
        ));
    }
    if let Some((name, _)) = args.settings.limits.given().first() {
        return Err(Failure::usage(format!(
            "--{}: a standing proxy has its limits in its file; set `limits.{name}` under \
             [profile.default] in the file of --config",
            name.replace('_', "-")
        )));
    }
    if let Some(flag) = flag_of_profile(args) {
        return Err(Failure::usage(format!(
            "--{flag}: a standing proxy has the settings of its runs in its file; set `{}` under [profile.default] in \
             the file of --config",
            flag.replace('-', "_")
        )));
    }
    if args.settings.verify.is_some() {
        return Err(Failure::usage(
            "--verify: a standing proxy does not start the programs whose work it would check",
        ));
    }
    let mut file = match &args.config {
        Some(path) => read(path)?,
        None => StandingFile::default(),
    };
    output::hide(&file.secrets);
    let aws = aws_keys();
    for profile in &mut file.profiles {
        profile.settings.aws.clone_from(&aws);
        profile.settings.spans = telemetry::spans(Some(&profile.name));
    }
    let journal =
        journal_path::to_write(&JournalPath::of(args.settings.journal.as_deref(), None)?)?;
    if let Some(journal) = &journal {
        let many = Records::at_most(MOST_RECORDS);
        let guests = guests(journal)?;
        for profile in &mut file.profiles {
            profile.settings.journal = Some(recorded(&guests, profile, &many));
        }
    }
    let own = own_settings()?;
    let flagged = flagged(args, own.clone())?;
    let prices = Arc::new(price_file::price_book(&flagged)?);
    for profile in &mut file.profiles {
        profile.settings.prices = Arc::clone(&prices);
    }
    let report = Some(Notifier::on_stderr());
    let notifier = Notifier::begin(&flagged.notify, flagged.allow_http, report)?;
    let runtime = runtime()?;
    let telemetry = Telemetry::begin(&output::keys(), flagged.allow_http);
    let status = runtime.block_on(serve(args, file, journal, (address, &notifier, &own), json));
    notifier.finish();
    // Connections that are still open must not delay the exit.
    runtime.shutdown_background();
    telemetry.end();
    status
}

/// Returns the flag that a profile has as a setting, if one is given.
fn flag_of_profile(args: &GuardArgs) -> Option<&'static str> {
    let given = &args.settings;
    let flags = [
        ("price", given.price.is_some()),
        ("policy", given.policy.is_some()),
        ("watch", !given.watches.is_empty()),
        ("max-calls", !given.max_calls.is_empty()),
    ];
    flags.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
}

/// Returns the user's own settings with the flags, for prices, notices and telemetry. The file of `--config` is that of the
/// proxy.
fn flagged(args: &GuardArgs, mut settings: Settings) -> Result<Settings> {
    settings.above(&args.settings)?;
    Ok(settings)
}

fn read(path: &Path) -> Result<StandingFile> {
    let name = name_of(path);
    let wrong = |problem: &str| Failure::usage(format!("{name}: {}", visible(problem)));
    let (bytes, metadata) = named(path)?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8"))?;
    let file = StandingFile::parse(&text, |name| std::env::var(name).ok())
        .map_err(|error| wrong(&error))?;
    let readable = metadata.and_then(|metadata| owner::problem(&metadata, owner::ALL));
    if let Some(problem) = readable.filter(|_| file.has_literal_token) {
        output::note(&format!("⚠ --config {name}: it has a token, and {problem}"));
    }
    Ok(file)
}

/// Returns how the budget of a profile is opened: under the user's own ceilings, and those of the profile as the
/// project with its name.
fn budgets(own: SpendSettings, journal: Option<SqliteJournal>) -> OpenBudget {
    Box::new(move |profile: &Profile| {
        let mut spend = own.clone();
        spend.projects.entry(profile.name.clone()).or_default().extend(&profile.spend);
        let budget = budget_of_day(&spend, Some(&profile.name), false, journal.as_ref());
        budget.map_err(|failure| failure.message)
    })
}

async fn bind(flag: &str, address: &str) -> Result<(TcpListener, SocketAddr)> {
    let wrong = |error: std::io::Error| Failure::listening(flag, address, &error, "127.0.0.1:4000");
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let local = listener.local_addr().map_err(wrong)?;
    Ok((listener, local))
}

/// Returns how the journal records the runs of a profile.
fn recorded(guests: &GuestJournal, profile: &Profile, many: &Records) -> JournalSettings {
    let policy = profile.settings.policy.as_ref().map(|make| {
        let policy = make();
        policy.specification().unwrap_or_else(|| policy.name().into())
    });
    let failures = AtomicU64::new(0);
    let report = move |problem: String| {
        // A full disk fails for every run.
        let count = failures.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            output::note(&format!("⚠ endstop guard: {problem} ({count} in all)"));
        }
    };
    JournalSettings {
        journal: guests.clone(),
        task: format!("guard --listen, profile {}", profile.name),
        policy,
        settings: json!({"guard": true, "profile": profile.name, "project": profile.name}),
        keys: output::keys(),
        report: Arc::new(report),
        many: Some(many.clone()),
    }
}

async fn serve(
    args: &GuardArgs,
    file: StandingFile,
    journal: Option<SqliteJournal>,
    (address, notifier, own): (&str, &Notifier, &Settings),
    json: bool,
) -> Result {
    // Each connection of a client may have one to its provider.
    let connections = open_files::connections(ProxyOptions::default().connections, 2)?;
    let (listener, local) = bind("--listen", address).await?;
    if !local.ip().is_loopback() && file.tokens.is_empty() {
        return Err(Failure::usage(format!(
            "--listen {local}: other machines can reach this address, so the file must have a token: \
             [tokens] with for example `ci = \"$GUARD_TOKEN\"`"
        )));
    }
    let metrics = match &args.metrics {
        Some(address) => Some(bind("--metrics", address).await?),
        None => None,
    };
    if let Some((_, local)) = &metrics
        && !local.ip().is_loopback()
        && file.tokens.is_empty()
    {
        return Err(Failure::usage(format!(
            "--metrics {local}: other machines can reach this address, so the file must have a token"
        )));
    }
    let (started, runs) = mpsc::unbounded_channel();
    let refusals = AtomicU64::new(0);
    let watcher = Arc::new(move |event| told(event, &started, &refusals));
    let salt = kept_salt(journal.as_ref())?;
    let standing = Standing::new(file.tokens, file.profiles, &file.upstreams, salt, watcher);
    if let Some(journal) = &journal {
        for (profile, gate) in standing.gates() {
            gate.restore(
                &journal.kept(&responses_of(profile)).map_err(|error| unreadable(&error))?,
            );
        }
    }
    let open = budgets(own.spend.clone(), journal.clone());
    let keeper = Keeper::new(standing.clone(), file.idle_after, open, Hour::now());
    let keeper = keeper.map_err(|error| Failure::usage(error.to_string()))?;
    let signals = Signals::listen()?;
    let mut servers = JoinSet::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let access = if standing.tokens().is_empty() { Access::SameUser } else { Access::Gatekeeper };
    let options = ProxyOptions {
        access,
        connections,
        outgoing: outgoing(&environment()),
        ..ProxyOptions::default()
    };
    let proxy = Proxy::new(standing.clone(), options);
    servers.spawn(proxy.run(listener, async move { drop(stopped.await) }));
    let metrics = metrics.map(|(listener, local)| {
        servers.spawn(serve_metrics(standing.clone(), listener, !local.ip().is_loopback()));
        local
    });
    let _control = Control::open(Arc::new(standing.clone()));
    announce(local, metrics, json);
    let keeping = JoinSet::new();
    let pruning = Pruning { journal, last: None };
    let ended = JoinSet::new();
    let notifier = notifier.clone();
    let mut watch =
        Watch { standing, keeper, signals, runs, ended, pruning, keeping, notifier, json };
    let heard = watch.until_signal().await;
    drop(stop);
    watch.finish().await;
    // The proxy has its own grace period; the metrics' server has no end of its own.
    let _ = servers.join_next().await;
    servers.abort_all();
    Ok(if heard == StopSignal::Interrupt { 130 } else { 143 })
}

/// Returns the problem of a write to the journal.
fn not_kept(
    done: std::result::Result<std::result::Result<(), JournalError>, JoinError>,
) -> Option<String> {
    let problem = done
        .map_err(|error| error.to_string())
        .and_then(|done| done.map_err(|error| error.to_string()));
    Some(format!("conversations cannot be continued after a restart: {}", problem.err()?))
}

/// The owner of the responses of a profile in the journal.
fn responses_of(profile: &str) -> String {
    format!("guard responses {profile}")
}

fn unreadable(error: &JournalError) -> Failure {
    Failure::fault(error.to_string())
}

/// Returns the salt of the journal, so that what an earlier process has kept is known, or a new one.
fn kept_salt(journal: Option<&SqliteJournal>) -> Result<[u8; 16]> {
    const OWNER: &str = "guard";
    let Some(journal) = journal else { return Ok(salt()) };
    let known = || -> Result<Option<[u8; 16]>> {
        let kept = journal.kept(OWNER).map_err(|error| unreadable(&error))?;
        let hex = kept.iter().find(|(name, _)| name == "salt").map(|(_, value)| value);
        let number = hex.and_then(|hex| u128::from_str_radix(hex, 16).ok());
        Ok(number.map(u128::to_be_bytes))
    };
    if let Some(known) = known()? {
        return Ok(known);
    }
    let new = format!("{:032x}", u128::from_be_bytes(salt()));
    journal.keep(OWNER, &[("salt".to_owned(), new)], 1).map_err(|error| unreadable(&error))?;
    // Of two processes that begin at once, the last one has set it.
    Ok(known()?.unwrap_or_else(salt))
}

fn announce(local: SocketAddr, metrics: Option<SocketAddr>, json: bool) {
    if json {
        let line = json!({"type": "listening", "address": local, "metrics": metrics});
        output::json(&line);
        return;
    }
    output::note(&format!("endstop guard: listening on http://{local}"));
    if let Some(metrics) = metrics {
        output::note(&format!("endstop guard: metrics on http://{metrics}/metrics"));
    }
    if !local.ip().is_loopback() {
        output::note(
            "⚠ clients on other machines send their keys to this address without encryption; put a \
             TLS server or a private network in front of it",
        );
    }
}

/// The owner's view of a standing proxy.
struct Watch {
    standing: Standing,
    keeper: Keeper,
    signals: Signals,
    runs: mpsc::UnboundedReceiver<(Arc<str>, RunHandle)>,
    ended: JoinSet<Ended>,
    pruning: Pruning,
    /// Writes the ids of responses to the journal.
    keeping: JoinSet<std::result::Result<(), JournalError>>,
    notifier: Notifier,
    json: bool,
}

/// Bounds the journal while the proxy works.
struct Pruning {
    journal: Option<SqliteJournal>,
    last: Option<(Instant, Retention)>,
}

impl Pruning {
    fn tick(&mut self) {
        let is_due = |last: &(Instant, Retention)| last.0.elapsed() >= PRUNED_EVERY;
        if self.journal.is_some() && self.last.as_ref().is_none_or(is_due) {
            // The work of an hour ago has ended, so that dropping it does not wait.
            self.last = None;
            let retention = Retention::begin(self.journal.as_ref(), RetentionArgs::default());
            self.last = Some((Instant::now(), retention));
        }
    }
}

impl Watch {
    /// Keeps the proxy's time and reports its runs until a signal arrives.
    async fn until_signal(&mut self) -> StopSignal {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failed = false;
        loop {
            tokio::select! {
                signal = self.signals.next() => return signal,
                Some(run) = self.runs.recv() => self.started(run),
                Some(ended) = self.ended.join_next() => self.report(ended.ok()),
                _ = tick.tick() => {
                    self.pruning.tick();
                    let not_kept = self.keeping.try_join_next().and_then(not_kept);
                    self.keep();
                    let problem = self.keeper.tick(Hour::now()).err().map(|error| error.to_string());
                    let problem = problem.or(not_kept);
                    // Once, and again only after it had worked in between.
                    if let Some(problem) = problem.as_ref().filter(|_| !failed) {
                        output::note(&format!("⚠ endstop guard: {problem}"));
                    }
                    failed = problem.is_some();
                }
            }
        }
    }

    /// Ends the runs that are left, and reports them: those of which nothing is open by their last
    /// response, and the others as cancelled.
    async fn finish(&mut self) {
        let end = |run: &RunHandle| {
            if !run.close_if_settled("the proxy was stopped") {
                run.cancel();
            }
        };
        for (_, run) in self.standing.runs() {
            end(&run);
        }
        // Runs that started just before the signal are still in the channel.
        while let Ok(run) = self.runs.try_recv() {
            end(&run.1);
            self.started(run);
        }
        while let Some(ended) = self.ended.join_next().await {
            self.report(ended.ok());
        }
        // The write that is under way, and then what was learned since.
        loop {
            while let Some(done) = self.keeping.join_next().await {
                if let Some(problem) = not_kept(done) {
                    output::note(&format!("⚠ endstop guard: {problem}"));
                }
            }
            if !self.keep() {
                break;
            }
        }
    }

    /// Begins to write what was learned to the journal, unless it is still being written. `false` if there is
    /// nothing to write.
    fn keep(&mut self) -> bool {
        let Some(journal) = self.pruning.journal.clone().filter(|_| self.keeping.is_empty()) else {
            return false;
        };
        let learned = self.standing.gates();
        let learned = learned.map(|(name, gate)| (responses_of(name), gate.take_learned()));
        let learned: Vec<_> = learned.filter(|(_, values)| !values.is_empty()).collect();
        if learned.is_empty() {
            return false;
        }
        self.keeping.spawn_blocking(move || {
            let keep = |(owner, values): &(String, Vec<_>)| {
                journal.keep(owner, values, Threads::MOST_RESPONSES)
            };
            learned.iter().try_for_each(keep)
        });
        true
    }

    fn started(&mut self, (profile, run): (Arc<str>, RunHandle)) {
        if self.json {
            let line = json!({
                "type": "run_started", "profile": &*profile, "run_id": run.record_id(), "name": run.id(),
            });
            output::json_of(&line, &run.secrets());
        }
        let notifier = self.notifier.clone();
        self.ended.spawn(async move {
            notifier.follow(&run).await;
            let outcome = run.ended().await;
            notifier.ended(&outcome);
            run.recorded().await;
            (profile, run, outcome)
        });
    }

    fn report(&self, ended: Option<Ended>) {
        // `None` only if the task panicked, which it cannot.
        let Some((profile, run, outcome)) = ended else { return };
        if self.json {
            let mut line = json!({"type": "outcome", "profile": &*profile, "name": run.id()});
            if let (Some(line), Ok(Value::Object(fields))) =
                (line.as_object_mut(), serde_json::to_value(&*outcome))
            {
                line.extend(fields);
            }
            output::json_of(&line, &run.secrets());
            return;
        }
        output::note(&format!(
            "endstop guard: run {} of profile {profile} ended: {} ({}, {}): {}",
            outcome.run_id.as_deref().unwrap_or("?"),
            outcome.termination,
            count(outcome.turns.into(), "turn"),
            outcome.known_cost().map_or_else(|| "–".to_owned(), |cost| cost.to_string()),
            visible(&outcome.decided_by.evidence),
        ));
    }
}

fn told(
    event: StandingEvent,
    started: &mpsc::UnboundedSender<(Arc<str>, RunHandle)>,
    refusals: &AtomicU64,
) {
    let (what, target, reason) = match event {
        StandingEvent::Started { profile, run } => {
            // Fails only while the process ends.
            let _ = started.send((profile, run));
            return;
        }
        StandingEvent::Gate { event: GuardEvent::Passed { target, reason }, .. } => {
            ("passed without a check", target, reason)
        }
        StandingEvent::Gate { event: GuardEvent::Refused { target, reason }, .. }
        | StandingEvent::Refused { target, reason } => ("refused", target, reason),
        _ => return,
    };
    // A client that repeats a refused call must not fill the disk with lines about it.
    let count = refusals.fetch_add(1, Ordering::Relaxed) + 1;
    if count.is_power_of_two() {
        let target = visible(&target);
        output::note(&format!("endstop guard: {what}: {target}: {reason} ({count} in all)"));
    }
}
