//! `endstop serve`: runs of named agents over HTTP, with a live page.

mod demo;
#[cfg(feature = "restate")]
mod durable;

use crate::args::ServeArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::Settings;
use crate::config::trust::{Layers, file, owner, shown};
use crate::control::Control;
use crate::failure::{Failure, Result};
use crate::notify::Notifier;
use crate::open_files;
use crate::output;
use crate::run::retention::Retention;
use crate::run::served::ServedAgent;
use crate::run::signals::{Signals, StopSignal};
use crate::run_args::RetentionArgs;
use crate::telemetry::Telemetry;
use crate::visible::visible;
use demo::{DemoAgent, NAME};
use endstop::core::limits::parse_duration;
use endstop::journal::SqliteJournal;
use endstop_serve::{AgentSource, Agents, ServeError, ServeOptions, Server, Tokens};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The environment variable with a token for all agents.
const TOKEN_VARIABLE: &str = "ENDSTOP_SERVE_TOKEN";

/// Interval at which the journal is bounded.
const PRUNED_EVERY: Duration = Duration::from_secs(3600);

pub(crate) fn run(args: &ServeArgs, json: bool) -> Result {
    let options = options(args)?;
    let tokens = tokens(args.token_file.as_deref())?;
    let layers = Layers::find(args.config.as_deref(), Path::new("."))?;
    let mut settings = layers.settings(&args.settings)?;
    settings.above(&args.settings)?;
    layers.announce(&settings);
    #[cfg(feature = "restate")]
    if let (Some(ingress), Some(store)) = (&args.restate, &args.store) {
        let runs = super::serve::durable::runs(args, ingress, store, &settings)?;
        return serve_durable(args, options, tokens, runs, json);
    }
    let place = JournalPath::of(args.journal.as_deref(), settings.folder_journal())?;
    // Runs must survive the process, so the journal cannot be left out here.
    place.path()?;
    let journal = journal_path::to_write(&place)?.ok_or_else(|| {
        Failure::usage(
            "the runs must be stored; set a file that can be written with --journal FILE",
        )
    })?;
    let runtime = runtime()?;
    let report = Some(Notifier::on_stderr());
    let notifier = Notifier::begin(&settings.notify, settings.allow_http, report)?;
    let agents = agents(&settings, &journal, &notifier, &runtime)?;
    let names: Vec<String> = agents.names().map(str::to_owned).collect();
    check_bound(&tokens, &names)?;
    let report = |problem: &str| output::note(&format!("⚠ endstop serve: {}", visible(problem)));
    let telemetry = Telemetry::begin(&output::keys(), settings.allow_http);
    let (stored, grace) = (journal.clone(), &args.grace);
    let served = Served {
        names,
        is_demo: settings.agents.is_empty(),
        journal: Some(stored),
        stopping: format!(
            "no new runs; running ones have {grace} to end; send the signal again to cancel them"
        ),
    };
    let open = |listener| Server::open(listener, journal, agents, tokens, options, report);
    let status = runtime.block_on(serve(&args.listen, served, open, json));
    notifier.finish();
    // Commands of tools have ended with their runs; nothing else may delay the exit.
    runtime.shutdown_background();
    telemetry.end();
    status
}

/// Serves the runs of workers.
#[cfg(feature = "restate")]
fn serve_durable(
    args: &ServeArgs,
    options: ServeOptions,
    tokens: Tokens,
    runs: Arc<endstop_restate::serve::DurableRuns>,
    json: bool,
) -> Result {
    use endstop_serve::backend::Backend as _;
    let names: Vec<String> = runs.agents().into_iter().map(|agent| agent.name).collect();
    check_bound(&tokens, &names)?;
    let stopping = "no new runs; those of the workers continue".to_owned();
    let served = Served { names, is_demo: false, journal: None, stopping };
    let open = |listener| Server::over(listener, runs, tokens, options);
    let runtime = runtime()?;
    let status = runtime.block_on(serve(&args.listen, served, open, json));
    runtime.shutdown_background();
    status
}

fn runtime() -> Result<Runtime> {
    open_files::check()?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("could not start the async runtime: {error}")))
}

/// Checks that the agents that tokens are bound to exist.
fn check_bound(tokens: &Tokens, names: &[String]) -> Result<()> {
    let unknown = tokens.agents().find(|bound| !names.iter().any(|name| name == bound));
    let Some(name) = unknown else { return Ok(()) };
    Err(Failure::usage(format!(
        "--token-file: a token names the agent `{}`, which is not configured; the agents are {}",
        visible(name),
        names.join(", ")
    )))
}

fn options(args: &ServeArgs) -> Result<ServeOptions> {
    let grace = time("--grace", &args.grace)?;
    let park_after = match args.park_after.as_str() {
        "off" => None,
        text => Some(time("--park-after", text)?),
    };
    let park_expiry = args.park_expiry.as_deref();
    let park_expiry = park_expiry.map(|text| time("--park-expiry", text)).transpose()?;
    if args.max_running == 0 {
        return Err(Failure::usage("--max-running: expected at least 1"));
    }
    Ok(ServeOptions {
        max_running: args.max_running.into(),
        max_queued: args.max_queued.into(),
        grace,
        park_after,
        park_expiry,
        hosts: args.hosts.clone(),
        max_connections: open_files::connections(ServeOptions::default().max_connections, 1)?,
        advice: Some(endstop_report::advice::advice),
        ..ServeOptions::default()
    })
}

fn time(flag: &str, text: &str) -> Result<Duration> {
    parse_duration(text).ok_or_else(|| {
        let text = visible(text);
        Failure::usage(format!("{flag}: `{text}` is not a time; expected for example 30s"))
    })
}

/// Reads the tokens of the file and of the environment.
fn tokens(path: Option<&Path>) -> Result<Tokens> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut tokens = Tokens::default();
    if let Some(path) = path {
        let name = file::name_of(path);
        let wrong =
            |problem: String| Failure::usage(format!("--token-file {name}: {}", shown(&problem)));
        let (bytes, metadata) = file::chosen(path).map_err(|error| wrong(error.to_string()))?;
        if let Some(problem) = owner::problem(&metadata, owner::ALL) {
            output::note(&format!("⚠ --token-file {name}: {problem}"));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8".to_owned()))?;
        tokens = Tokens::parse(&text, variable).map_err(|error| wrong(error.to_string()))?;
        if tokens.is_empty() {
            let problem = "it has no token; add [tokens.NAME] with `token` or `sha256`";
            return Err(wrong(problem.to_owned()));
        }
    }
    match variable(TOKEN_VARIABLE) {
        Some(token) => {
            tokens.with(TOKEN_VARIABLE, &token).map_err(|error| Failure::usage(error.to_string()))
        }
        None => Ok(tokens),
    }
}

/// Returns the agents of the settings or, without any, the built-in one.
fn agents(
    settings: &Settings,
    journal: &SqliteJournal,
    notifier: &Notifier,
    runtime: &Runtime,
) -> Result<Agents> {
    let mut all: Vec<(String, Arc<dyn AgentSource>)> = Vec::new();
    let mut secrets = endstop::process::environment_secrets();
    for name in settings.agents.keys() {
        let origin = settings.origins.get(&format!("agents.{name}"));
        let file = origin.map_or("endstop.toml", |origin| origin.place());
        let own = settings.of_agent(name, &shown(file))?;
        let agent =
            runtime.block_on(ServedAgent::connect(name, own, Some(journal), notifier.clone()))?;
        secrets = secrets.and(agent.secrets());
        all.push((name.clone(), Arc::new(agent)));
    }
    if all.is_empty() {
        all.push((NAME.to_owned(), Arc::new(DemoAgent::next_to(journal.path()))));
    }
    journal.hide(secrets.clone());
    output::hide(&secrets);
    Ok(Agents::new(all))
}

/// A server's agents, the journal of its own runs, and the message when it stops.
struct Served {
    names: Vec<String>,
    /// No agent is configured.
    is_demo: bool,
    journal: Option<SqliteJournal>,
    stopping: String,
}

async fn serve(
    listen: &str,
    served: Served,
    open: impl FnOnce(TcpListener) -> std::result::Result<Server, ServeError>,
    json: bool,
) -> Result {
    let Served { names, is_demo, journal, stopping } = served;
    let bound = TcpListener::bind(listen).await;
    let listener =
        bound.map_err(|error| Failure::listening("--listen", listen, &error, "127.0.0.1:4180"))?;
    if is_demo {
        output::note(
            "endstop: no agent is configured: serving the built-in agent `demo`; add [agents.NAME] to \
             endstop.toml",
        );
    }
    let local =
        listener.local_addr().map_err(|error| Failure::fault(format!("--listen: {error}")))?;
    // Registered before anything runs, because until then a signal kills the process.
    let mut signals = Signals::listen()?;
    let mut retention = None;
    let mut prune = tokio::time::interval(PRUNED_EVERY);
    let server = open(listener).map_err(|error| match error {
        ServeError::NoToken(_) => Failure::usage(format!("--listen {error}")),
        error => Failure::usage(error.to_string()),
    })?;
    // Dropped at the end, which removes the socket. Runs of other processes are not controlled here.
    let _control = journal.is_some().then(|| Control::open(Arc::new(server.operator())));
    announce(local, &names, json);
    let (stop, stopped) = oneshot::channel::<()>();
    let (hurry, hurried) = oneshot::channel::<()>();
    let mut channels = (Some(stop), Some(hurry));
    // A channel is closed by its drop, which counts as its signal.
    let serving = server.run(async { drop(stopped.await) }, async { drop(hurried.await) });
    let mut serving = std::pin::pin!(serving);
    let mut heard = StopSignal::Nothing;
    loop {
        tokio::select! {
            () = &mut serving => break,
            _ = prune.tick(), if journal.is_some() => {
                // The work of an hour ago has ended, so that dropping it does not wait.
                drop(retention.take());
                retention = Some(Retention::begin(journal.as_ref(), RetentionArgs::default()));
            }
            signal = signals.next() => {
                if heard == StopSignal::Nothing {
                    heard = signal;
                    channels.0 = None;
                    output::note(&format!("■ endstop serve: {stopping}"));
                } else {
                    channels.1 = None;
                }
            }
        }
    }
    Ok(if heard == StopSignal::Interrupt { 130 } else { 143 })
}

fn announce(local: SocketAddr, agents: &[String], json: bool) {
    if json {
        output::json(&json!({"type": "listening", "address": local, "agents": agents}));
        return;
    }
    output::note(&format!(
        "endstop serve: http://{local} (agents: {}); the page and the API are at this address",
        agents.join(", ")
    ));
    if !local.ip().is_loopback() {
        output::note(
            "⚠ tokens and tasks travel without encryption; put a TLS server or a private network in \
             front of this address",
        );
    }
}
