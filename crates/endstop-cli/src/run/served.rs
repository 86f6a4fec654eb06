//! The agents of `endstop serve` that settings files define.
//!
//! ```text
//! let agent = ServedAgent::connect("reviewer", settings, &journal, notifier).await?; // servers, key, tools
//! let built = agent.build(&plan)?;                                         // for each run
//! ```

use super::agent::{budget_of_day, http_provider, with_settings, with_tools};
use super::servers::Servers;
use crate::config::price_file;
use crate::config::settings::Settings;
use crate::failure::{Failure, Result};
use crate::notify::Notifier;
use crate::render::date::now_ms;
use crate::telemetry;
use endstop::agent::{Agent, AgentBuilder};
use endstop::budget::SharedBudget;
use endstop::journal::SqliteJournal;
use endstop::provider::Provider as _;
use endstop::provider::http::HttpProvider;
use endstop::wire::redact::KnownKeys;
use endstop::{Limits, ModelParams};
use endstop_serve::{AgentSource, BuiltAgent, RunPlan};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// An agent of a settings file. Its provider and its servers are shared by all of its runs.
pub(crate) struct ServedAgent {
    name: String,
    /// Copied for each run. Behind a lock, because a policy may not be used by two threads.
    settings: Mutex<Settings>,
    limits: Limits,
    model: Option<String>,
    saved: Value,
    params: ModelParams,
    provider: Arc<HttpProvider>,
    servers: Servers,
    secrets: KnownKeys,
    notifier: Notifier,
    /// The budget of the day (since 1970-01-01 UTC) that the runs of this process share.
    today: Mutex<Option<(u64, Option<SharedBudget>)>>,
}

impl ServedAgent {
    /// Connects the servers of an agent, and reads its key.
    pub(crate) async fn connect(
        name: &str,
        settings: Settings,
        journal: Option<&SqliteJournal>,
        notifier: Notifier,
    ) -> Result<ServedAgent> {
        let named = |failure: Failure| {
            let message = format!("[agents.{name}]: {}", failure.message);
            Failure { message, ..failure }
        };
        let stored_in = journal.map(|journal| journal.path().to_owned());
        let settings = Settings { stored_in, ..settings };
        let settings = price_file::with_own_price(settings).map_err(named)?;
        if settings.model.is_none() && settings.base_url.is_none() {
            let problem = "no model is configured; set `model = \"PROVIDER/MODEL\"`";
            return Err(named(Failure::usage(problem)));
        }
        if let Some(dir) = settings.dir.as_ref().filter(|dir| !dir.is_dir()) {
            let problem = format!("`dir`: {}: not a folder", dir.display());
            return Err(named(Failure::usage(problem)));
        }
        let provider = Arc::new(http_provider(&settings).map_err(named)?);
        let params = settings.params.built().map_err(named)?;
        let servers = settings.servers().map_err(named)?;
        let servers = Servers::connect(servers.into_iter()).await.map_err(named)?;
        let sent = KnownKeys::new(params.headers.iter().map(|(_, value)| value.expose()));
        let sent = sent.and(&settings.http.secrets()).and(servers.secrets());
        let secrets = endstop::process::environment_secrets().and(&sent);
        let secrets = provider.known_keys().and(&secrets);
        let saved = settings.saved();
        let (limits, model) = (settings.limits.clone(), settings.model.clone());
        let settings = Mutex::new(settings);
        let agent = ServedAgent {
            name: name.to_owned(),
            settings,
            limits,
            model,
            saved,
            params,
            provider,
            servers,
            secrets,
            notifier,
            today: Mutex::default(),
        };
        // Built once now, so that a setting that no run can use is reported at the start.
        let builder = agent.builder(agent.limits.clone());
        builder.and_then(|builder| built(builder.approval_events(true))).map_err(named)?;
        if let Some(journal) = journal {
            agent.budget_of_today(journal).map_err(named)?;
        }
        Ok(agent)
    }

    /// Returns the secrets that must not be stored or shown.
    pub(crate) fn secrets(&self) -> &KnownKeys {
        &self.secrets
    }

    /// Returns the agent with these limits, without a journal, and without a way to decide calls.
    pub(crate) fn builder(&self, limits: Limits) -> Result<AgentBuilder> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let settings = Settings { limits, ..settings };
        let mut builder = Agent::builder(Arc::clone(&self.provider))
            .params(self.params.clone())
            .streaming(!settings.no_stream)
            .journal_settings(self.saved.clone());
        builder = with_tools(builder, &settings, &self.servers)?;
        if settings.limits.verify_rounds.is_none() {
            // Part of the run, because no other process waits for it. Without rounds its verdict
            // does not change the ending.
            builder = settings.verified_by(builder);
        }
        let builder = with_settings(builder, &settings).spans(telemetry::spans(Some(&self.name)));
        Ok(self.notifier.follows(builder, &settings.limits, true))
    }
}

impl ServedAgent {
    /// Returns the budget of the day on which a run starts now.
    fn budget_of_today(&self, journal: &SqliteJournal) -> Result<Option<SharedBudget>> {
        let day = now_ms() / 86_400_000;
        let mut today = self.today.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, budget)) = today.as_ref().filter(|(known, _)| *known == day) {
            return Ok(budget.clone());
        }
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let budget =
            budget_of_day(&settings.spend, settings.project.as_deref(), false, Some(journal))?;
        *today = Some((day, budget.clone()));
        Ok(budget)
    }

    /// Returns the agent of a run.
    fn of_run(&self, plan: &RunPlan) -> Result<Agent> {
        let builder = self.builder(plan.limits.clone())?;
        let builder = builder.journal(plan.journal.clone()).approval_events(true);
        built(match self.budget_of_today(&plan.journal)? {
            Some(budget) => builder.shared_budget(budget),
            None => builder,
        })
    }
}

pub(crate) fn built(builder: AgentBuilder) -> Result<Agent> {
    builder.build().map_err(|error| Failure::usage(error.to_string()))
}

impl AgentSource for ServedAgent {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn model(&self) -> Option<String> {
        self.model.clone()
    }

    fn check(&self, limits: &Limits) -> std::result::Result<(), String> {
        match limits.bounds_cost_by().filter(|_| self.provider.price().is_none()) {
            Some(limit) => {
                Err(format!("limit `{limit}`: the price of the agent's model is not known"))
            }
            None => Ok(()),
        }
    }

    fn build(&self, plan: &RunPlan) -> std::result::Result<BuiltAgent, String> {
        let agent = self.of_run(plan);
        let agent = agent.map_err(|failure| failure.message)?;
        Ok(BuiltAgent {
            agent,
            secrets: self.secrets.clone(),
            resources: Box::new(()),
            at_end: None,
        })
    }
}
