//! Builds an [`AgentLoop`].

use super::policy::SharedPolicy;
use super::{AgentEvent, AgentLoop, Config, Lifecycle, Shared, StartError, State, check_history};
use crate::budget::SharedBudget;
use crate::compaction::CompactionConfig;
use crate::hook::{Approver, Compactor, Hook};
use crate::journal::Journal;
use crate::provider::Provider;
use crate::schema::OutputSchema;
use crate::tool::{Permissions, Tool, ToolContext, ToolSet};
use endstop_core::{
    CompactionSpec, Limits, Message, Permission, Price, ProactiveCompaction, TerminationPolicy,
    ToolSpec, Watch,
};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Builds an [`AgentLoop`]; every setting has a default but the provider.
#[must_use]
pub struct AgentBuilder {
    config: Config,
    tools: Vec<Arc<dyn Tool>>,
    permissions: Permissions,
    schema: Option<Value>,
    messages: Vec<Message>,
    /// `None`: if there are other tools.
    finish_tool: Option<bool>,
}

/// The share of the context window at which a loop with a compactor shortens its conversation.
pub const COMPACTION_SHARE: f64 = 0.6;

impl AgentBuilder {
    pub(super) fn new(provider: Arc<dyn Provider>) -> AgentBuilder {
        AgentBuilder {
            config: Config {
                price: provider.price(),
                context_window: provider.context_window(),
                provider,
                policy: None,
                watches: Watch::usual(),
                system: None,
                limits: Limits::default(),
                tools: ToolSet::default(),
                tool_specs: Vec::new(),
                finish_tool: false,
                hooks: Vec::new(),
                approver: None,
                compactor: None,
                proactive: None,
                compaction: CompactionSpec::default(),
                schema: None,
                budget: None,
                output_cap: None,
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
                outer: None,
            },
            tools: Vec::new(),
            permissions: Permissions::default(),
            schema: None,
            messages: Vec::new(),
            finish_tool: None,
        }
    }

    /// Instructions.
    pub fn system(mut self, system: impl Into<String>) -> Self {
        self.config.system = Some(system.into());
        self
    }

    /// The limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// A tool that the model may call.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// A tool that is shared.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Whether the tools of a name may be run; `*` stands for any text, and the strictest of
    /// several rules counts. The default is [`Permission::Allow`].
    pub fn permission(mut self, tools: impl Into<String>, permission: Permission) -> Self {
        self.permissions = self.permissions.rule(tools, permission);
        self
    }

    /// Which tools may be run, in the place of what was said before.
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }

    /// Whether the model has the `finish` tool (if the loop has other tools). Without other tools the
    /// answer is the model's text: many small models refuse a request that offers any tool.
    pub fn finish_tool(mut self, on: bool) -> Self {
        self.finish_tool = Some(on);
        self
    }

    /// The termination policy (none).
    pub fn policy(mut self, policy: impl TerminationPolicy + 'static) -> Self {
        self.config.policy =
            Some(SharedPolicy::new(Box::new(policy), Arc::clone(&self.config.provider)));
        self
    }

    /// The termination policy, boxed, as a registry builds it.
    pub fn boxed_policy(mut self, policy: Box<dyn TerminationPolicy>) -> Self {
        self.config.policy = Some(SharedPolicy::new(policy, Arc::clone(&self.config.provider)));
        self
    }

    /// The rules that watch each run, and what each does when it fires, in the place of the usual ones
    /// ([`Watch::usual`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use endstop::testkit::ScriptedModel;
    /// use endstop::{AgentLoop, Watch};
    /// let agent = AgentLoop::builder(ScriptedModel::new([]))
    ///     .watches([Watch::parse("stop:stuck")?, Watch::parse("warn:chanting")?])
    ///     .build()?;
    /// # drop(agent); Ok(()) }
    /// ```
    pub fn watches(mut self, watches: impl IntoIterator<Item = Watch>) -> Self {
        self.config.watches = watches.into_iter().collect();
        self
    }

    /// A hook.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.config.hooks.push(Arc::new(hook));
        self
    }

    /// Who is asked about tools whose permission is [`Permission::Ask`].
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.config.approver = Some(Arc::new(approver));
        self
    }

    /// What shortens the conversation: after the provider refused a prompt as too long, and before
    /// that where the context window is known and nearly full ([`COMPACTION_SHARE`] of it, unless
    /// [`proactive_compaction`](Self::proactive_compaction) says otherwise).
    pub fn compactor(mut self, compactor: impl Compactor + 'static) -> Self {
        self.config.compactor = Some(Arc::new(compactor));
        self
    }

    /// Shortens the conversation with the built-in strategies, as configuration says: where the
    /// context window is known before it is full, and after the provider refused a prompt.
    pub fn compaction(mut self, config: &CompactionConfig) -> Self {
        self.config.compactor = config.compactor().map(|compactor| Arc::new(compactor) as _);
        self.config.proactive =
            self.config.compactor.is_some().then_some(ProactiveCompaction::AtShare(config.at));
        self.least_compaction(config.least_gain).max_compaction_failures(config.max_failures)
    }

    /// The share (0 to 1) of its bytes that a conversation must lose for a compaction to count (a
    /// tenth).
    pub fn least_compaction(mut self, gain: f64) -> Self {
        self.config.compaction.least_gain = gain;
        self
    }

    /// After how many failed compactions in a row none is tried before a call any more (3).
    pub fn max_compaction_failures(mut self, failures: u32) -> Self {
        self.config.compaction.max_failures = failures;
        self
    }

    /// When the conversation is shortened before a call, without waiting for a refusal.
    pub fn proactive_compaction(mut self, when: ProactiveCompaction) -> Self {
        self.config.proactive = Some(when);
        self
    }

    /// A JSON Schema that the answer must satisfy.
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.schema = Some(schema);
        self
    }

    /// A budget shared with other runs.
    pub fn shared_budget(mut self, budget: SharedBudget) -> Self {
        self.config.budget = Some(budget);
        self
    }

    /// A loop that works for a tool call of another run: within that run's budget, stopped with it,
    /// and what it spends is reported to it.
    pub(crate) fn within(mut self, context: &ToolContext) -> Self {
        self.config.budget = match (self.config.budget, context.budget()) {
            (Some(own), Some(outer)) => Some(SharedBudget::both(&own, &outer)),
            (own, outer) => own.or(outer),
        };
        self.config.outer = Some(context.clone());
        self
    }

    /// What the model costs, above what the provider knows.
    pub fn price(mut self, price: Price) -> Self {
        self.config.price = Some(price);
        self
    }

    /// The model's context window in tokens, above what the provider knows.
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.config.context_window = Some(tokens);
        self
    }

    /// The output cap of each call in tokens.
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.config.output_cap = Some(tokens);
        self
    }

    /// Whether responses are streamed (they are).
    pub fn streaming(mut self, on: bool) -> Self {
        self.config.streaming = on;
        self
    }

    /// Whether the model is told once what it repeats before `error_no_progress` (it is).
    pub fn nudge(mut self, on: bool) -> Self {
        self.config.nudge = on;
        self
    }

    /// Whether a provider that only says yes or no reads as `unknown` instead of as a natural
    /// completion (it does not).
    pub fn strict_detection(mut self, on: bool) -> Self {
        self.config.strict_detection = on;
        self
    }

    /// Seeds the jitter of backoffs, for runs that repeat exactly.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// A named value for policies.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.config.variables.insert(name.into(), value.into());
        self
    }

    /// The folder that tools work in (the process's own).
    pub fn working_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.config.working_dir = Some(dir.into());
        self
    }

    /// Hears every event. It is called on the run's task: it should be quick, and while it holds that
    /// task the run hears of no stop. One that panics ends the run; the others hear the event.
    pub fn on_event(mut self, observer: impl Fn(&AgentEvent) + Send + Sync + 'static) -> Self {
        self.config.observers.push(Box::new(observer));
        self
    }

    /// Hears `true` when a run starts and `false` when it ends, in turn. It is called by whoever starts,
    /// ends or terminates: it should be quick. One that panics is left out.
    pub fn on_busy(mut self, observer: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.config.busy_observers.push(Box::new(observer));
        self
    }

    /// Where the runs are kept; then they can be explained, and gone on with
    /// ([`AgentLoop::resume`]).
    pub fn journal(mut self, journal: impl Journal + 'static) -> Self {
        self.config.journal = Some(Arc::new(journal));
        self
    }

    /// What a journal keeps beside a run for whoever started it: never a key.
    pub fn journal_settings(mut self, settings: Value) -> Self {
        self.config.journal_settings = settings;
        self
    }

    /// A conversation to continue. [`build`](Self::build) refuses one that providers would refuse.
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.messages = messages;
        self
    }

    /// Builds the loop.
    ///
    /// # Errors
    /// Two tools of one name, a permission for a tool that is not there, a schema that is none, a
    /// cost ceiling without a price, a tool that must be asked about with nobody to ask, a share of a
    /// compaction that is none, a history that providers would refuse.
    pub fn build(mut self) -> Result<AgentLoop, StartError> {
        let config = &mut self.config;
        let refuse = |what: String| Err(StartError::Config(what));
        check_history("history", &self.messages)?;
        config.finish_tool = self.finish_tool.unwrap_or(!self.tools.is_empty());
        for tool in self.tools {
            if config.finish_tool && tool.name() == "finish" {
                let problem = "there are two tools named `finish`: rename yours, or switch off the other with `finish_tool(false)`";
                return refuse(problem.to_owned());
            }
            if let Err(problem) = config.tools.add_shared(tool) {
                return refuse(problem.to_string());
            }
        }
        let names: Vec<&str> = config.tools.names().collect();
        if let Some(pattern) = self.permissions.idle(&names).next() {
            return refuse(format!(
                "a permission names the tool `{pattern}`, which is not there; there are: {}",
                names.join(", ")
            ));
        }
        config.tool_specs = config
            .tools
            .iter()
            .map(|tool| ToolSpec {
                name: tool.name().to_owned(),
                parallel_safe: tool.parallel_safe(),
                runs_code: tool.runs_code(),
                repeatable: tool.repeatable(),
                exempt_from_no_progress: tool.exempt_from_no_progress(),
                timeout: tool.timeout(),
                timeout_argument: tool.timeout_argument().map(str::to_owned),
                permission: self.permissions.of_tool(&**tool),
            })
            .collect();
        let asks = config.tool_specs.iter().find(|tool| tool.permission == Permission::Ask);
        if let Some(tool) = asks.filter(|_| config.approver.is_none()) {
            return refuse(format!(
                "the tool `{}` must be asked about, and there is nobody to ask: give an approver",
                tool.name
            ));
        }
        if let Some(schema) = self.schema {
            match OutputSchema::new(schema) {
                Ok(schema) => config.schema = Some(Arc::new(schema)),
                Err(problem) => return refuse(problem),
            }
        }
        let least = config.compaction.least_gain;
        if !(least > 0.0 && least < 1.0) {
            return refuse(format!(
                "a compaction must lose a share between 0 and 1 of the conversation, and `least_compaction` says {least}"
            ));
        }
        if let Some(ProactiveCompaction::AtShare(share)) = config.proactive
            && !(share > 0.0 && share <= 1.0)
        {
            return refuse(format!(
                "`proactive_compaction` wants a share of the context window between 0 and 1, not {share}"
            ));
        }
        let shared = config.budget.as_ref().is_some_and(SharedBudget::bounds_cost);
        let ceiling = config.limits.max_budget_usd.is_some() || shared;
        if ceiling && config.price.is_none() {
            return refuse(format!(
                "max_budget_usd needs a price, and none is known for `{}`: give one with `--price in=…,out=…` in US dollars per million tokens, or `AgentBuilder::price`",
                config.provider.model()
            ));
        }
        let tasks = TaskTracker::new();
        tasks.close();
        Ok(AgentLoop(Arc::new(Shared {
            config: self.config,
            token: CancellationToken::new(),
            tasks,
            state: Mutex::new(State {
                lifecycle: Lifecycle::Idle,
                running: None,
                messages: self.messages,
                epoch: 0,
                busy: false,
                notices: VecDeque::new(),
                telling: false,
            }),
            runs: AtomicU64::new(0),
        })))
    }
}
