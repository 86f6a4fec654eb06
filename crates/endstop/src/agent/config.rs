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
pub(super) struct Fallback {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) price: Option<Price>,
    pub(super) context_window: Option<u64>,
}

impl Fallback {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Fallback {
        let (price, context_window) = (provider.price(), provider.context_window());
        Fallback { provider, price, context_window }
    }
}

pub(super) struct Config {
    pub(super) provider: Arc<dyn Provider>,
    /// The models that a run calls after that one has failed, in this order.
    pub(super) fallbacks: Vec<Fallback>,
    pub(super) policy: Option<PolicyTemplate>,
    pub(super) watches: Vec<Watch>,
    pub(super) system: Option<String>,
    pub(super) limits: Limits,
    pub(super) tools: ToolSet,
    pub(super) tool_specs: Arc<Vec<ToolPolicy>>,
    pub(super) finish_tool: bool,
    pub(super) hooks: Vec<Arc<dyn Hook>>,
    pub(super) approver: Option<Arc<dyn Approver>>,
    /// `true` if calls that need approval are reported as events, and answered through the handle.
    pub(super) approval_events: bool,
    pub(super) verifier: Option<Arc<dyn Verifier>>,
    pub(super) compactor: Option<Arc<dyn Compactor>>,
    /// `None` selects the default: at [`COMPACTION_SHARE`](crate::compaction::COMPACTION_SHARE) if there is a compactor, otherwise
    /// never.
    pub(super) proactive: Option<ProactiveCompaction>,
    /// The rules for when a compaction counts as successful.
    pub(super) compaction: CompactionSpec,
    pub(super) schema: Option<Arc<OutputSchema>>,
    pub(super) budget: Option<SharedBudget>,
    pub(super) price: Option<Price>,
    pub(super) context_window: Option<u64>,
    pub(super) output_cap: Option<u64>,
    pub(super) params: ModelParams,
    pub(super) streaming: bool,
    pub(super) nudge: bool,
    pub(super) strict_detection: bool,
    pub(super) seed: Option<u64>,
    pub(super) variables: Map<String, Value>,
    pub(super) working_dir: Option<std::path::PathBuf>,
    pub(super) observers: Vec<Observer>,
    pub(super) busy_observers: Vec<BusyObserver>,
    pub(super) journal: Option<Arc<dyn Journal>>,
    pub(super) journal_settings: Value,
}

impl Config {
    /// Returns the provider of a model of a run: 0 is the agent's own, and n its n-th fallback.
    pub(super) fn provider_of(&self, fallback: u32) -> &Arc<dyn Provider> {
        self.fallback(fallback).map_or(&self.provider, |fallback| &fallback.provider)
    }

    /// Returns the context window of a model of a run, in the same order.
    pub(super) fn context_window_of(&self, fallback: u32) -> Option<u64> {
        self.fallback(fallback).map_or(self.context_window, |fallback| fallback.context_window)
    }

    fn fallback(&self, fallback: u32) -> Option<&Fallback> {
        let at = (fallback as usize).checked_sub(1)?;
        self.fallbacks.get(at)
    }

    /// Returns the credentials of all providers, which are secrets.
    pub(super) fn known_keys(&self) -> KnownKeys {
        let others = self.fallbacks.iter().map(|fallback| fallback.provider.known_keys());
        others.fold(self.provider.known_keys(), |all, keys| all.and(&keys))
    }

    /// Refuses a ceiling on cost if a model has no price. `ceiling` names it.
    pub(super) fn check_prices(&self, ceiling: &'static str) -> Result<(), BuildError> {
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

    /// Returns the price of the calls of a run with these parameters.
    pub(super) fn price_with(&self, params: &ModelParams) -> Option<Price> {
        with_hour(self.price, params)
    }

    /// Returns the call that is about to be reported as waiting for approval, if the caller answers
    /// by events.
    pub(super) fn approved_by_events(&self, point: &ConsultPoint) -> Option<ToolCall> {
        match point {
            ConsultPoint::Approval { call } if self.approval_events => Some(call.clone()),
            _ => None,
        }
    }

    /// Refuses parameters, and a schema of the answer, that the provider does not take, or that
    /// contradict other settings.
    pub(super) fn check_params(
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
pub(super) fn with_hour(price: Option<Price>, params: &ModelParams) -> Option<Price> {
    // Only then can a call write entries for an hour, so only then is that its worst case.
    let hour = params.may_cache_for_hour();
    price.map(|price| if hour { price.with_hour_writes() } else { price })
}
