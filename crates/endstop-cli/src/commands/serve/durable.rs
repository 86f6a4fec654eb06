//! `endstop serve --restate`: the runs of workers behind the same API and page.

use crate::args::ServeArgs;
use crate::commands::worker::TOKEN_VARIABLE;
use crate::config::settings::Settings;
use crate::config::trust::shown;
use crate::failure::{Failure, Result};
use crate::output;
use crate::visible::visible;
use endstop_restate::Store;
use endstop_restate::serve::{DurableRuns, RunsOptions};
use endstop_serve::backend::AgentInfo;
use std::path::Path;
use std::sync::Arc;

/// Returns the runs of the workers of the engine at this address.
pub(in crate::commands) fn runs(
    args: &ServeArgs,
    ingress: &str,
    store: &Path,
    settings: &Settings,
) -> Result<Arc<DurableRuns>> {
    let store = Store::open(store).map_err(|error| Failure::usage(format!("--store: {error}")))?;
    let agents = agents(settings)?;
    let mut options = RunsOptions::new(ingress);
    options.token = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    options.max_queued = args.max_queued.into();
    let report = |problem: &str| output::note(&format!("⚠ endstop serve: {}", visible(problem)));
    let runs = DurableRuns::open(store, agents, &options, report)
        .map_err(|error| Failure::usage(format!("--restate: {error}")))?;
    Ok(Arc::new(runs))
}

/// Returns the agents of the settings. The workers build them, so no key is read and no server is connected
/// here.
fn agents(settings: &Settings) -> Result<Vec<AgentInfo>> {
    let mut all = Vec::new();
    for name in settings.agents.keys() {
        let origin = settings.origins.get(&format!("agents.{name}"));
        let file = origin.map_or("endstop.toml", |origin| origin.place());
        let own = settings.of_agent(name, &shown(file))?;
        all.push(AgentInfo { name: name.clone(), model: own.model, limits: own.limits });
    }
    if all.is_empty() {
        return Err(Failure::usage(
            "no agent is configured; name the file of the workers' agents with --config",
        ));
    }
    Ok(all)
}
