//! `endstop worker`: runs of named agents on Restate.

use crate::config::journal_path::{self, JournalPath};
use crate::config::settings::Settings;
use crate::config::trust::{Layers, shown};
use crate::failure::{Failure, Result};
use crate::notify::Notifier;
use crate::open_files;
use crate::output;
use crate::run::durable::DurableAgent;
use crate::run::signals::{Signals, StopSignal};
use crate::telemetry::Telemetry;
use crate::visible::visible;
use crate::worker_args::WorkerArgs;
use endstop::NanoUsd;
use endstop_restate::engine::{Worker, WorkerOptions, listen};
use endstop_restate::{AgentSource, Agents, BudgetCeiling, Store, export_run};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The environment variable with the bearer token of the engine.
pub(super) const TOKEN_VARIABLE: &str = "ENDSTOP_RESTATE_TOKEN";

pub(crate) fn run(args: &WorkerArgs, json: bool) -> Result {
    let store =
        Store::open(&args.store).map_err(|error| Failure::usage(format!("--store: {error}")))?;
    if let Some(run) = &args.export {
        return export(run, &store, args, json);
    }
    let layers = Layers::find(args.config.as_deref(), Path::new("."))?;
    let mut settings = layers.settings(&args.settings)?;
    settings.above(&args.settings)?;
    layers.announce(&settings);
    let options = options(args)?;
    let budget = args.shared_budget.as_deref().map(shared_budget).transpose()?;
    // The threads of steps wait for the engine, and those of tools for processes.
    open_files::check()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::fault(format!("could not start the async runtime: {error}")))?;
    let report = Some(Notifier::on_stderr());
    let notifier = Notifier::begin(&settings.notify, settings.allow_http, report)?;
    let agents = agents(&settings, budget.as_ref(), &notifier, &runtime)?;
    let telemetry = Telemetry::begin(&output::keys(), settings.allow_http);
    let status = runtime.block_on(serve(args, options, store, agents, json));
    notifier.finish();
    // Attempts have ended with their requests; nothing else may delay the exit.
    runtime.shutdown_background();
    telemetry.end();
    status
}

/// Copies a run into the journal.
fn export(run: &str, store: &Store, args: &WorkerArgs, json: bool) -> Result {
    let place = JournalPath::of(args.journal.as_deref(), None)?;
    let journal = journal_path::to_write(&place)?.ok_or_else(|| {
        Failure::usage("--export: the journal cannot be written; set a file with --journal FILE")
    })?;
    export_run(store, run, &journal).map_err(|error| Failure::usage(error.to_string()))?;
    if json {
        output::json(&json!({"type": "exported", "run_id": run, "journal": journal.path()}));
        return Ok(0);
    }
    output::note(&format!("{run} is in {}", journal.path().display()));
    Ok(0)
}

fn options(args: &WorkerArgs) -> Result<WorkerOptions> {
    if !args.listen.ip().is_loopback() && args.identity_key.is_none() && !args.unverified {
        return Err(Failure::usage(
            "--listen: any process that reaches this address could start the agents; set --identity-key KEY, or \
             --unverified on a private network",
        ));
    }
    let mut options = WorkerOptions::new(args.restate.clone().unwrap_or_default());
    options.admin.clone_from(&args.admin);
    options.advertised =
        args.advertise.clone().unwrap_or_else(|| format!("http://{}", args.listen));
    options.identity_key.clone_from(&args.identity_key);
    options.token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    options.grace = args.grace;
    Ok(options)
}

fn shared_budget(text: &str) -> Result<BudgetCeiling> {
    let wrong = || {
        Failure::usage(format!(
            "--shared-budget: invalid value `{}`; expected NAME=USD, for example team=100",
            visible(text)
        ))
    };
    let (name, usd) = text.split_once('=').ok_or_else(wrong)?;
    let usd: f64 = usd.parse().map_err(|_| wrong())?;
    endstop_restate::check_run_id(name).map_err(|_| wrong())?;
    if !usd.is_finite() || usd < 0.0 {
        return Err(wrong());
    }
    Ok(BudgetCeiling { name: name.to_owned(), usd: NanoUsd::from_usd(usd) })
}

/// Returns the agents of the settings.
fn agents(
    settings: &Settings,
    budget: Option<&BudgetCeiling>,
    notifier: &Notifier,
    runtime: &Runtime,
) -> Result<Agents> {
    let mut all: Vec<(String, Arc<dyn AgentSource>)> = Vec::new();
    let mut secrets = endstop::process::environment_secrets();
    for name in settings.agents.keys() {
        let origin = settings.origins.get(&format!("agents.{name}"));
        let file = origin.map_or("endstop.toml", |origin| origin.place());
        let own = settings.of_agent(name, &shown(file))?;
        let agent = runtime.block_on(DurableAgent::connect(
            name,
            own,
            budget.cloned(),
            notifier.clone(),
        ))?;
        secrets = secrets.and(agent.secrets());
        all.push((name.clone(), Arc::new(agent)));
    }
    if all.is_empty() {
        return Err(Failure::usage(
            "no agent is configured; add [agents.NAME] to endstop.toml, or name another file with --config",
        ));
    }
    output::hide(&secrets);
    Ok(Agents::new(all))
}

async fn serve(
    args: &WorkerArgs,
    options: WorkerOptions,
    store: Store,
    agents: Agents,
    json: bool,
) -> Result {
    let listener = listen(args.listen, args.share_address)
        .map_err(|error| Failure::usage(format!("--listen {}: {error}", args.listen)))?;
    // Registered before anything runs, because until then a signal kills the process.
    let mut signals = Signals::listen()?;
    let names: Vec<String> = agents.names().map(str::to_owned).collect();
    let report = |problem: &str| output::note(&format!("⚠ endstop worker: {}", visible(problem)));
    let worker = Worker::open(agents, store, options, report)
        .map_err(|error| Failure::usage(error.to_string()))?;
    if json {
        output::json(&json!({"type": "listening", "address": args.listen, "agents": names}));
    } else {
        let names = names.join(", ");
        output::note(&format!("endstop worker: http://{} (agents: {names})", args.listen));
    }
    let mut heard = StopSignal::Nothing;
    let stop = async { heard = signals.next().await };
    worker.serve(listener, stop).await.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(if heard == StopSignal::Interrupt { 130 } else { 143 })
}
