//! The settings of an agent.
//!
//! ```text
//! let Config { provider, limits, tools, .. } = &shared.config;
//! ```

use super::build_error::BuildError;
use super::policy::PolicyTemplate;
use crate::budget::SharedBudget;
use crate::event::AgentEvent;
use crate::hook::{Approver, Compactor, Hook};
use crate::journal::Journal;
use crate::provider::{ModelParams, ParamError, Provider, SessionSpec, ToolDefinition};
use crate::schema::OutputSchema;
use crate::telemetry::SpanSettings;
use crate::tool::ToolSet;
use crate::verifier::Verifier;
use endstop_core::{
    CompactionSpec, ConsultPoint, Limits, Price, ProactiveCompaction, ToolCall, ToolPolicy, Watch,
};
use endstop_wire::redact::KnownKeys;
use serde_json::{Map, Value};
use std::sync::Arc;

type Observer = Box<dyn Fn(&AgentEvent) + Send + Sync>;
type BusyObserver = Box<dyn Fn(bool) + Send + Sync>;

/// A model that a run calls after those before it have failed.
pub(in crate::agent) struct Fallback {
    pub(in crate::agent) provider: Arc<dyn Provider>,
    pub(in crate::agent) price: Option<Price>,
    pub(in crate::agent) context_window: Option<u64>,
}

impl Fallback {
    pub(in crate::agent) fn new(provider: Arc<dyn Provider>) -> Fallback {
        let (price, context_window) = (provider.price(), provider.context_window());
        Fallback { provider, price, context_window }
    }
}

pub(in crate::agent) struct Config {
    pub(in crate::agent) provider: Arc<dyn Provider>,
    /// The models that a run calls after that one has failed, in this order.
    pub(in crate::agent) fallbacks: Vec<Fallback>,
    pub(in crate::agent) policy: Option<PolicyTemplate>,
    pub(in crate::agent) watches: Vec<Watch>,
    pub(in crate::agent) system: Option<String>,
    pub(in crate::agent) limits: Limits,
    pub(in crate::agent) tools: ToolSet,
    pub(in crate::agent) tool_specs: Arc<Vec<ToolPolicy>>,
    pub(in crate::agent) finish_tool: bool,
    pub(in crate::agent) hooks: Vec<Arc<dyn Hook>>,
    pub(in crate::agent) approver: Option<Arc<dyn Approver>>,
    /// `true` if calls that need approval are reported as events, and answered through the handle.
    pub(in crate::agent) approval_events: bool,
    pub(in crate::agent) verifier: Option<Arc<dyn Verifier>>,
    pub(in crate::agent) compactor: Option<Arc<dyn Compactor>>,
    /// `None` selects the default: at [`COMPACTION_SHARE`](crate::compaction::COMPACTION_SHARE) if there is a compactor, otherwise
    /// never.
    pub(in crate::agent) proactive: Option<ProactiveCompaction>,
    /// The rules for when a compaction counts as successful.
    pub(in crate::agent) compaction: CompactionSpec,
    pub(in crate::agent) schema: Option<Arc<OutputSchema>>,
    pub(in crate::agent) budget: Option<SharedBudget>,
    pub(in crate::agent) price: Option<Price>,
    pub(in crate::agent) context_window: Option<u64>,
    pub(in crate::agent) output_cap: Option<u64>,
    pub(in crate::agent) params: ModelParams,
    pub(in crate::agent) streaming: bool,
    pub(in crate::agent) nudge: bool,
    pub(in crate::agent) strict_detection: bool,
    pub(in crate::agent) seed: Option<u64>,
    pub(in crate::agent) variables: Map<String, Value>,
    pub(in crate::agent) working_dir: Option<std::path::PathBuf>,
    pub(in crate::agent) observers: Vec<Observer>,
    pub(in crate::agent) busy_observers: Vec<BusyObserver>,
    pub(in crate::agent) journal: Option<Arc<dyn Journal>>,
    pub(in crate::agent) journal_settings: Value,
    pub(in crate::agent) spans: SpanSettings,
}

impl Config {
    /// Returns the provider of a model of a run: 0 is the agent's own, and n its n-th fallback.
    pub(in crate::agent) fn provider_of(&self, fallback: u32) -> &Arc<dyn Provider> {
        self.fallback(fallback).map_or(&self.provider, |fallback| &fallback.provider)
    }

    /// Returns the context window of a model of a run, in the same order.
    pub(in crate::agent) fn context_window_of(&self, fallback: u32) -> Option<u64> {
        self.fallback(fallback).map_or(self.context_window, |fallback| fallback.context_window)
    }

    fn fallback(&self, fallback: u32) -> Option<&Fallback> {
        let at = (fallback as usize).checked_sub(1)?;
        self.fallbacks.get(at)
    }

    /// Returns the credentials of all providers, which are secrets.
    pub(in crate::agent) fn known_keys(&self) -> KnownKeys {
        let others = self.fallbacks.iter().map(|fallback| fallback.provider.known_keys());
        others.fold(self.provider.known_keys(), |all, keys| all.and(&keys))
    }

    /// Refuses a ceiling on cost if a model has no price. `ceiling` names it.
    pub(in crate::agent) fn check_prices(&self, ceiling: &'static str) -> Result<(), BuildError> {
        if self.price.is_none() {
            let model = self.provider.model().to_owned();
            return Err(BuildError::NoPrice { ceiling, model });
        }
        match self.fallbacks.iter().find(|fallback| fallback.price.is_none()) {
            Some(fallback) => {
                let model = fallback.provider.model().to_owned();
                Err(BuildError::NoFallbackPrice { ceiling, model })
            }
            None => Ok(()),
        }
    }

    /// Returns the price of the calls of a model of a run, in the same order, with these parameters.
    pub(in crate::agent) fn price_of(&self, fallback: u32, params: &ModelParams) -> Option<Price> {
        let price = self.fallback(fallback).map_or(self.price, |fallback| fallback.price);
        with_hour(price, params)
    }

    /// Returns the price of the calls of a run with these parameters.
    pub(in crate::agent) fn price_with(&self, params: &ModelParams) -> Option<Price> {
        with_hour(self.price, params)
    }

    /// Returns the call that is about to be reported as waiting for approval, if the caller answers
    /// by events.
    pub(in crate::agent) fn approved_by_events(&self, point: &ConsultPoint) -> Option<ToolCall> {
        match point {
            ConsultPoint::Approval { call } if self.approval_events => Some(call.clone()),
            _ => None,
        }
    }

    /// Refuses parameters, and a schema of the answer, that the provider does not take, or that
    /// contradict other settings.
    pub(in crate::agent) fn check_params(
        &self,
        params: &ModelParams,
        schema: Option<&Arc<OutputSchema>>,
    ) -> Result<(), ParamError> {
        if params.is_empty() && schema.is_none() {
            return Ok(());
        }
        let mut names: Vec<String> = self.tools.names().map(str::to_owned).collect();
        if self.finish_tool {
            names.push("finish".to_owned());
        }
        let tools =
            names.into_iter().map(|name| ToolDefinition { name, ..ToolDefinition::default() });
        let spec = SessionSpec {
            tools: tools.collect(),
            output_schema: schema.map(|schema| schema.as_value().clone()),
            params: params.clone(),
            ..SessionSpec::default()
        };
        self.provider.check_params(&spec)?;
        for fallback in &self.fallbacks {
            fallback.provider.check_params(&spec)?;
        }
        if let (Some(budget), Some(cap)) = (params.thinking_budget(), self.output_cap)
            && budget >= cap
        {
            return Err(ParamError::Conflict(format!(
                "the thinking budget of {budget} tokens leaves nothing of the output cap of {cap}; raise `max_output_tokens`, or lower `thinking`"
            )));
        }
        Ok(())
    }
}

/// Returns the price of the calls of a model with these parameters.
pub(in crate::agent) fn with_hour(price: Option<Price>, params: &ModelParams) -> Option<Price> {
    // Only then can a call write entries for an hour, so only then is that its worst case.
    let hour = params.may_cache_for_hour();
    price.map(|price| if hour { price.with_hour_writes() } else { price })
}
