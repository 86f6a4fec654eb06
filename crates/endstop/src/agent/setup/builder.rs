//! The builder of an [`Agent`]: collects the settings and validates them together.

use super::build_error::BuildError;
use super::config::{Config, Fallback};
use super::policy::PolicyTemplate;
use crate::agent::shared::{Agent, Shared};
use crate::budget::SharedBudget;
use crate::compaction::CompactionConfig;
use crate::event::AgentEvent;
use crate::hook::{Approver, Compactor, Hook};
use crate::journal::Journal;
use crate::provider::{Caching, ModelParams, Provider};
use crate::schema::{OutputSchema, OutputType};
use crate::telemetry::SpanSettings;
use crate::tool::{Permissions, Tool, ToolSet};
use crate::verifier::Verifier;
use endstop_core::{
    CompactionSpec, Limit, Limits, Permission, Price, ProactiveCompaction, TerminationPolicy,
    ToolPolicy, Watch,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds an [`Agent`]. Every setting except the provider has a default.
#[must_use]
pub struct AgentBuilder {
    config: Config,
    tools: Vec<Arc<dyn Tool>>,
    permissions: Permissions,
    /// Names of tools whose calls run in the background.
    background: Vec<String>,
    /// The most calls of tools, by their names.
    max_calls: BTreeMap<String, u32>,
    schema: Option<Value>,
    /// `None` enables the `finish` tool if the agent has other tools.
    finish_tool: Option<bool>,
}

impl Agent {
    /// Creates a builder for an agent that calls this provider.
    pub fn builder(provider: impl Provider + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(provider))
    }
}

impl AgentBuilder {
    fn new(provider: Arc<dyn Provider>) -> AgentBuilder {
        AgentBuilder {
            config: Config {
                price: provider.price(),
                context_window: provider.context_window(),
                provider,
                fallbacks: Vec::new(),
                policy: None,
                watches: Watch::defaults(),
                system: None,
                limits: Limits::default(),
                tools: ToolSet::default(),
                tool_specs: Arc::default(),
                finish_tool: false,
                hooks: Vec::new(),
                approver: None,
                approval_events: false,
                verifier: None,
                compactor: None,
                proactive: None,
                compaction: CompactionSpec::default(),
                schema: None,
                budget: None,
                output_cap: None,
                params: ModelParams::default(),
                streaming: true,
                nudge: true,
                strict_detection: false,
                seed: None,
                variables: Map::new(),
                working_dir: None,
                observers: Vec::new(),
                busy_observers: Vec::new(),
                journal: None,
                journal_settings: Value::Null,
                spans: SpanSettings::default(),
            },
            tools: Vec::new(),
            permissions: Permissions::default(),
            background: Vec::new(),
            max_calls: BTreeMap::new(),
            schema: None,
            finish_tool: None,
        }
    }

    /// Adds a model that a run calls after the models before it have failed: after all retries on a
    /// rate limit, an overloaded server or a server error, or at once if the model is not found. May
    /// be called several times; the models are tried in this order.
    ///
    /// The fallback gets the same conversation, without the parts that only the other model can read,
    /// such as signed reasoning. The run stays with it to its end; the next run begins with the
    /// agent's own model again. [`Outcome::models`](crate::Outcome::models) lists what was used of
    /// each model. Under a ceiling on cost, each fallback needs a price
    /// ([`Provider::price`](crate::provider::Provider::price)).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use endstop::testkit::{ScriptedModel, Turn};
    /// use endstop::Agent;
    /// let agent = Agent::builder(ScriptedModel::new([Turn::error(404, "no such model")]))
    ///     .fallback(ScriptedModel::new([Turn::text("Paris.")]))
    ///     .build()?;
    /// let outcome = agent.run("What is the capital of France?")?.outcome().await;
    /// assert!(outcome.is_success());
    /// assert_eq!(outcome.models.len(), 2);
    /// # Ok(()) }
    /// ```
    pub fn fallback(mut self, provider: impl Provider + 'static) -> Self {
        self.config.fallbacks.push(Fallback::new(Arc::new(provider)));
        self
    }

    /// Sets the system prompt.
    pub fn system(mut self, system: impl Into<String>) -> Self {
        self.config.system = Some(system.into());
        self
    }

    /// Sets the limits of each run.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Adds a tool that the model may call.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds several tools, for example a `Vec<Arc<dyn Tool>>`, an array of tools of one type, or the
    /// tools of a [`ToolSet`].
    pub fn tools<T: Tool + 'static>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.tools.extend(tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>));
        self
    }

    /// Adds a tool that the caller shares with other agents.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the permission of the tools that match a name; `*` matches any text. If several rules
    /// match, the strictest applies. The default is [`Permission::Allow`].
    pub fn permission(mut self, tools: impl Into<String>, permission: Permission) -> Self {
        self.permissions = self.permissions.rule(tools, permission);
        self
    }

    /// Replaces all permissions set so far.
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Runs the calls of the tool with this name in the background: see
    /// [`Tool::background`](crate::tool::Tool::background).
    pub fn background(mut self, tool: impl Into<String>) -> Self {
        self.background.push(tool.into());
        self
    }

    /// Limits the calls of the tool with this name that run (default: no limit). Another call is not started, and the run
    /// ends as `error_max_tool_calls`.
    pub fn max_calls(mut self, tool: impl Into<String>, calls: u32) -> Self {
        self.max_calls.insert(tool.into(), calls);
        self
    }

    /// Enables or disables the `finish` tool (default: enabled if the agent has other tools).
    /// Without other tools the model's text is the answer, because many small models refuse a
    /// request that offers any tool.
    pub fn finish_tool(mut self, on: bool) -> Self {
        self.finish_tool = Some(on);
        self
    }

    /// Sets the termination policy (default: none). Each run works on its own copy.
    pub fn policy(self, policy: impl TerminationPolicy + 'static) -> Self {
        self.boxed_policy(Box::new(policy))
    }

    /// Sets a boxed termination policy, for example one built by a registry.
    pub fn boxed_policy(mut self, policy: Box<dyn TerminationPolicy>) -> Self {
        let provider = Arc::clone(&self.config.provider);
        self.config.policy = Some(PolicyTemplate::new(policy, provider));
        self
    }

    /// Replaces the default rules ([`Watch::defaults`]) that monitor each run, with the action of
    /// each.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use endstop::testkit::ScriptedModel;
    /// use endstop::{Agent, Watch};
    /// let agent = Agent::builder(ScriptedModel::new([]))
    ///     .watches([Watch::parse("stop:stuck")?, Watch::parse("warn:chanting")?])
    ///     .build()?;
    /// # drop(agent); Ok(()) }
    /// ```
    pub fn watches(mut self, watches: impl IntoIterator<Item = Watch>) -> Self {
        self.config.watches = watches.into_iter().collect();
        self
    }

    /// Adds a hook. Hooks run in the order in which they were added.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.config.hooks.push(Arc::new(hook));
        self
    }

    /// Sets the approver, which decides about calls of tools with [`Permission::Ask`]. With
    /// [`approval_events`](Self::approval_events) the calls are reported as events as well, and the
    /// first answer counts.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.config.approver = Some(Arc::new(approver));
        self
    }

    /// Reports calls of tools with [`Permission::Ask`] as events
    /// ([`AgentEventKind::ApprovalRequested`](crate::event::AgentEventKind::ApprovalRequested)), to be answered with
    /// [`RunHandle::answer`](crate::RunHandle::answer) or
    /// [`RunHandle::approvals`](crate::RunHandle::approvals) (default: off). An
    /// [`approver`](Self::approver) is then optional.
    ///
    /// A request has no time limit of its own: without an answer the call waits until the run is
    /// stopped or reaches its `timeout`, and counts as not approved. An agent that runs as a tool
    /// of another needs an approver, because no caller has its handle.
    pub fn approval_events(mut self, on: bool) -> Self {
        self.config.approval_events = on;
        self
    }

    /// Sets the verifier, which judges the answer of each run that would end as a success. Its verdict
    /// is [`Outcome::verified`](crate::Outcome::verified). With
    /// [`Limits::verify_rounds`](crate::Limits::verify_rounds) the model receives the output of a
    /// verifier that rejects the answer, and continues; if no answer is accepted, the run ends as
    /// [`ErrorNotVerified`](crate::Termination::ErrorNotVerified).
    pub fn verifier(mut self, verifier: impl Verifier + 'static) -> Self {
        self.config.verifier = Some(Arc::new(verifier));
        self
    }

    /// Sets a custom compactor, which shortens the conversation. It runs after the provider refused
    /// a prompt as too long, and before a call if the context window is known and
    /// [`COMPACTION_SHARE`](crate::compaction::COMPACTION_SHARE) of it is in use.
    /// [`proactive_compaction`](Self::proactive_compaction)
    /// changes that share.
    pub fn compactor(mut self, compactor: impl Compactor + 'static) -> Self {
        self.config.compactor = Some(Arc::new(compactor));
        self
    }

    /// Shortens the conversation with the built-in strategies of a configuration: before the
    /// context window is full, if its size is known, and after the provider refused a prompt as too
    /// long.
    pub fn compaction(mut self, config: &CompactionConfig) -> Self {
        self.config.compactor = config.compactor().map(|compactor| Arc::new(compactor) as _);
        self.config.proactive =
            self.config.compactor.is_some().then_some(ProactiveCompaction::AtShare(config.at));
        self.least_compaction(config.least_gain).max_compaction_failures(config.max_failures)
    }

    /// Sets the least share (0 to 1) of its bytes that a conversation must lose for a compaction to
    /// count as successful (default: 0.1).
    pub fn least_compaction(mut self, gain: f64) -> Self {
        self.config.compaction.least_gain = gain;
        self
    }

    /// Sets the number of consecutive failed compactions after which proactive compaction stops
    /// (default: 3).
    pub fn max_compaction_failures(mut self, failures: u32) -> Self {
        self.config.compaction.max_failures = failures;
        self
    }

    /// Sets when the conversation is shortened before a call, without waiting for a refused prompt.
    pub fn proactive_compaction(mut self, when: ProactiveCompaction) -> Self {
        self.config.proactive = Some(when);
        self
    }

    /// Sets a JSON Schema that the answer must satisfy.
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// Requires that each answer is a value of this type. A single run can require another one with
    /// [`Agent::run_typed`], which also returns the value.
    ///
    /// A journalled run of `run_typed` can be resumed by an agent with the same output type.
    pub fn output_type<T: OutputType>(mut self) -> Self {
        self.config.schema = Some(Arc::new(OutputSchema::of::<T>()));
        self.schema = None;
        self
    }

    /// Sets a budget shared with other runs.
    pub fn shared_budget(mut self, budget: SharedBudget) -> Self {
        self.config.budget = Some(budget);
        self
    }

    /// Sets the model's price, overriding the one that the provider reports.
    pub fn price(mut self, price: Price) -> Self {
        self.config.price = Some(price);
        self
    }

    /// Sets the model's context window in tokens, overriding the one that the provider reports.
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.config.context_window = Some(tokens);
        self
    }

    /// Sets the maximum number of output tokens per call.
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.config.output_cap = Some(tokens);
        self
    }

    /// Sets the parameters of the requests, such as the temperature. A run can override them
    /// ([`RunInput::params`](crate::RunInput::params)). [`build`](Self::build) refuses a parameter
    /// that the provider's API does not take.
    pub fn params(mut self, params: ModelParams) -> Self {
        self.config.params = params;
        self
    }

    /// Sets the use of prompt caches (default: [`Caching::Auto`]), which is the parameter
    /// [`ModelParams::cache`]. [`build`](Self::build) refuses a lifetime that the provider does not
    /// offer.
    pub fn cache(mut self, caching: Caching) -> Self {
        self.config.params.cache = Some(caching);
        self
    }

    /// Enables or disables streamed responses (default: enabled).
    pub fn streaming(mut self, on: bool) -> Self {
        self.config.streaming = on;
        self
    }

    /// Enables or disables the one-time message that warns the model about its repetition before
    /// the run ends with `error_no_progress` (default: enabled).
    pub fn nudge(mut self, on: bool) -> Self {
        self.config.nudge = on;
        self
    }

    /// Treats a provider that only reports whether the model stopped as `unknown` instead of as a
    /// natural completion (default: off).
    pub fn strict_detection(mut self, on: bool) -> Self {
        self.config.strict_detection = on;
        self
    }

    /// Sets the seed of the backoff jitter, for reproducible runs.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// Sets a named value that policies can read.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.config.variables.insert(name.into(), value.into());
        self
    }

    /// Sets the folder that tools work in (default: the current directory of the process).
    pub fn working_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.config.working_dir = Some(dir.into());
        self
    }

    /// Adds an observer for every event. It is called on the run's task, so it should return
    /// quickly: the run cannot react to a stop in the meantime. If an observer panics, the run
    /// ends; the other observers still receive the event.
    pub fn on_event(mut self, observer: impl Fn(&AgentEvent) + Send + Sync + 'static) -> Self {
        self.config.observers.push(Box::new(observer));
        self
    }

    /// Adds an observer that receives `true` when a run starts and `false` when it ends,
    /// alternately. It is called on the thread that starts, ends or terminates the run, so it
    /// should return quickly. A panicking observer is ignored.
    pub fn on_busy(mut self, observer: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.config.busy_observers.push(Box::new(observer));
        self
    }

    /// Sets the journal that stores the runs. Stored runs can be explained and resumed
    /// ([`Agent::resume`]).
    pub fn journal(mut self, journal: impl Journal + 'static) -> Self {
        self.config.journal = Some(Arc::new(journal));
        self
    }

    /// Sets a JSON value that the journal stores next to each run for the application. Must not
    /// contain credentials.
    pub fn journal_settings(mut self, settings: Value) -> Self {
        self.config.journal_settings = settings;
        self
    }

    /// Sets what the spans of the agent's runs show. They need the feature `tracing`.
    pub fn spans(mut self, settings: SpanSettings) -> Self {
        self.config.spans = settings;
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// Two tools have the same name; a permission matches no tool; the schema is invalid; a cost
    /// ceiling is set without a price; a tool has the permission `ask` but there is no approver;
    /// `verify_rounds` is set but there is no verifier; a
    /// compaction share is out of range; or the provider does not take one of the parameters.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        let config = &mut self.config;
        config.finish_tool = self.finish_tool.unwrap_or(!self.tools.is_empty());
        for tool in self.tools {
            if config.finish_tool && tool.name() == "finish" {
                return Err(BuildError::TwoFinishTools);
            }
            config.tools.add_shared(tool)?;
        }
        let names: Vec<&str> = config.tools.names().collect();
        if let Some(pattern) = self.permissions.idle(&names).next() {
            let tools = names.iter().map(|&name| name.to_owned()).collect();
            return Err(BuildError::UnknownTool { pattern: pattern.to_owned(), tools });
        }
        let background = self.background.iter().map(|name| ("background", name));
        let mut named = background.chain(self.max_calls.keys().map(|name| ("max_calls", name)));
        if let Some((setting, tool)) = named.find(|(_, name)| !names.contains(&name.as_str())) {
            let tools = names.iter().map(|&name| name.to_owned()).collect();
            return Err(BuildError::UnknownToolOf { setting, tool: tool.clone(), tools });
        }
        let tool_specs = config
            .tools
            .iter()
            .map(|tool| ToolPolicy {
                name: tool.name().to_owned(),
                parallel_safe: tool.parallel_safe(),
                runs_code: tool.runs_code(),
                repeatable: tool.repeatable(),
                exempt_from_no_progress: tool.exempt_from_no_progress(),
                timeout: tool.timeout(),
                timeout_argument: tool.timeout_argument().map(str::to_owned),
                max_calls: self.max_calls.get(tool.name()).copied(),
                permission: self.permissions.of_tool(&**tool),
                background: tool.background()
                    || self.background.iter().any(|name| name == tool.name()),
            })
            .collect();
        config.tool_specs = Arc::new(tool_specs);
        let asks = config.tool_specs.iter().find(|tool| tool.permission == Permission::Ask);
        if let Some(tool) = asks.filter(|_| config.approver.is_none() && !config.approval_events) {
            return Err(BuildError::NoApprover { tool: tool.name.clone() });
        }
        if config.limits.verify_rounds.is_some() && config.verifier.is_none() {
            return Err(BuildError::NoVerifier);
        }
        if let Some(schema) = self.schema {
            config.schema = Some(Arc::new(OutputSchema::new(schema)?));
        }
        let least = config.compaction.least_gain;
        // Written so that NaN is refused as well.
        if !(least > 0.0 && least < 1.0) {
            return Err(BuildError::Share {
                setting: "least_compaction",
                share: least,
                expected: "a share of the conversation above 0 and below 1",
            });
        }
        if let Some(ProactiveCompaction::AtShare(share)) = config.proactive
            && !(share > 0.0 && share <= 1.0)
        {
            return Err(BuildError::Share {
                setting: "proactive_compaction",
                share,
                expected: "a share of the context window above 0 and at most 1",
            });
        }
        let shared = config.budget.as_ref().is_some_and(SharedBudget::bounds_cost);
        let ceiling = config.limits.bounds_cost_by().map(Limit::name);
        if let Some(ceiling) = ceiling.or(shared.then_some("the shared budget")) {
            config.check_prices(ceiling)?;
        }
        config.check_params(&config.params, config.schema.as_ref())?;
        Ok(Agent(Arc::new(Shared::new(self.config))))
    }
}
