//! Collects what a run needs from user code before it begins: the hook points, the tool definitions
//! for the model, and the provider session.
//!
//! ```text
//! let opened = Opened::new(&shared.config);
//! queue.extend(opened.faults); // a panic ends the run before its first model call
//! ```

use super::consult::FixedRequest;
use super::conversation::{Conversation, Fork};
use super::run_hooks::RunHooks;
use crate::agent::setup::config::{Config, Fallback, with_hour};
use crate::agent::setup::policy::PolicyTemplate;
use crate::agent::user_code;
use crate::compaction::COMPACTION_SHARE;
use crate::hook::Hook;
use crate::journal::RunHeader;
use crate::provider::{ModelParams, ModelSession, SessionSpec, ToolDefinition};
use crate::schema::OutputSchema;
use endstop_core::{
    CompactionSpec, EventKind, FallbackModel, Hooks, ImageTokens, Limits, Price,
    ProactiveCompaction, RunSpec, ToolPolicy,
};
use endstop_wire::redact::KnownKeys;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
pub(in crate::agent) struct Opened {
    pub(in crate::agent) hooks: Hooks,
    /// Bytes of each prompt in addition to the messages.
    pub(in crate::agent) overhead: usize,
    pub(in crate::agent) max_output: Option<u64>,
    image_tokens: ImageTokens,
    pub(in crate::agent) model: Option<String>,
    pub(in crate::agent) provider: Option<String>,
    /// `None` if opening it panicked.
    pub(in crate::agent) session: Option<Box<dyn ModelSession>>,
    /// The settings of the session, if the run may open another one: for a hand-over, or with a
    /// fallback.
    pub(in crate::agent) session_spec: Option<Box<SessionSpec>>,
    fallbacks: Vec<FallbackModel>,
    pub(in crate::agent) faults: Vec<EventKind>,
    /// The schema of this run's answer.
    pub(in crate::agent) schema: Option<Arc<OutputSchema>>,
    pub(in crate::agent) run_hooks: Option<Box<RunHooks>>,
    params: ModelParams,
    /// The tool definitions sent to the model; filled only if there is a journal.
    definitions: Vec<ToolDefinition>,
}

impl Opened {
    pub(in crate::agent) fn new(
        config: &Config,
        params: ModelParams,
        schema: Option<Arc<OutputSchema>>,
    ) -> Opened {
        let mut opened = Opened { schema, params, ..Opened::default() };
        let hooks = opened.ask(config, "hook", "a hook", || hook_points(config));
        let (hooks, on_event) = hooks.unwrap_or_default();
        opened.hooks = hooks;
        let tools = opened.tool_definitions(config);
        opened.overhead = config.system.as_ref().map_or(0, String::len)
            + tools
                .iter()
                // 64 bytes per tool approximate the JSON keys and punctuation around a definition.
                .map(|t| t.name.len() + t.description.len() + json_len(&t.schema) + 64)
                .sum::<usize>();
        if config.journal.is_some() {
            opened.definitions.clone_from(&tools);
        }
        if hooks.pre_call || !on_event.is_empty() {
            let fixed = hooks.pre_call.then(|| {
                let (system, params) = (config.system.clone(), opened.params.clone());
                Arc::new(FixedRequest { system, tools: tools.clone(), params })
            });
            opened.run_hooks = Some(Box::new(RunHooks { on_event, fixed }));
        }
        let spec = SessionSpec {
            system: config.system.clone(),
            tools,
            output_schema: opened.schema.as_ref().map(|schema| schema.as_value().clone()),
            context_window: config.context_window,
            streaming: config.streaming,
            stall_timeout: config.limits.stall_timeout,
            params: opened.params.clone(),
        };
        let reopens = config.limits.wrap_up || !config.fallbacks.is_empty();
        opened.session_spec = reopens.then(|| Box::new(spec.clone()));
        opened.fallbacks = opened.fallback_models(config);
        let provider = &config.provider;
        let known = opened.ask(config, "provider", "the provider", || {
            let (name, model) = (provider.name().to_owned(), provider.model().to_owned());
            let tokens = provider.image_tokens();
            (name, model, provider.max_output(), tokens, provider.open(spec))
        });
        if let Some((name, model, max_output, tokens, session)) = known {
            opened.image_tokens = tokens;
            (opened.provider, opened.model) = (Some(name), Some(model));
            (opened.max_output, opened.session) = (max_output, Some(session));
        }
        opened
    }

    /// Returns the kernel's specification of a run over this conversation.
    pub(in crate::agent) fn spec(
        &self,
        config: &Config,
        conversation: Conversation,
        id: String,
    ) -> RunSpec {
        let Conversation { messages, epoch, fork } = conversation;
        let mut spec = RunSpec::new(messages);
        if let Some(fork) = fork {
            // The last message need not be the task: a branch continues a run that has started.
            let Fork { point, task, task_message, .. } = *fork;
            (spec.branched_from, spec.task, spec.task_message) =
                (Some(point.into()), task, task_message);
        }
        RunSpec {
            epoch,
            limits: config.limits.clone(),
            policy: config.policy.as_ref().map(PolicyTemplate::copy),
            watches: config.watches.clone(),
            tools: Arc::clone(&config.tool_specs),
            finish_tool: config.finish_tool,
            hooks: self.hooks,
            output_schema: self.schema.is_some(),
            verifier: config.verifier.is_some(),
            compaction: CompactionSpec {
                proactive: config.proactive.unwrap_or(match &config.compactor {
                    Some(_) => ProactiveCompaction::AtShare(COMPACTION_SHARE),
                    None => ProactiveCompaction::Never,
                }),
                reactive: config.compactor.is_some(),
                ..config.compaction
            },
            context_window: config.context_window,
            max_output: self.max_output,
            prompt_overhead: self.overhead as u64,
            image_tokens: self.image_tokens,
            output_cap: config.output_cap,
            thinking_budget: self.params.thinking_budget().unwrap_or_default(),
            // Reserving before each call is only useful if a ceiling can refuse the call.
            reserve: config.limits.max_budget_usd.is_some()
                || config.limits.max_tokens.is_some()
                || config.budget.is_some(),
            shared_budget: config.budget.is_some(),
            streaming: config.streaming,
            nudge: config.nudge,
            variables: config.variables.clone(),
            model: self.model.clone(),
            provider: self.provider.clone(),
            fallbacks: self.fallbacks.clone(),
            run_id: Some(id),
            ..spec
        }
    }

    /// Returns the header that the journal stores at the start of such a run.
    pub(in crate::agent) fn header(&self, config: &Config, spec: &RunSpec) -> RunHeader {
        RunHeader {
            id: spec.run_id.clone().unwrap_or_default(),
            continues: spec.branched_from.as_ref().map(|point| point.run_id.clone()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ms: crate::clock::wall_ms(),
            spec: spec.clone_with(None),
            policy: spec
                .policy
                .as_ref()
                .map(|policy| policy.specification().unwrap_or_else(|| policy.name().into())),
            system: config.system.clone(),
            tools: self.definitions.clone(),
            output_schema: self.schema.as_ref().map(|schema| schema.as_value().clone()),
            settings: config.journal_settings.clone(),
            redacted: 0,
            params: Some(self.params.shown()).filter(|_| !self.params.is_empty()),
            keys: config.known_keys().and(&self.known_keys()),
        }
    }

    /// Returns the parameters that any call of the provider needs, also one that writes a summary.
    pub(in crate::agent) fn service_params(&self) -> Option<Box<ModelParams>> {
        let ModelParams { headers, service_tier, store, .. } = self.params.clone();
        let params = ModelParams { headers, service_tier, store, ..ModelParams::default() };
        (!params.is_empty()).then(|| Box::new(params))
    }

    /// Returns the price of the run's own calls.
    pub(in crate::agent) fn price(&self, config: &Config) -> Option<Price> {
        config.price_with(&self.params)
    }

    /// Returns the values of the run's headers, which are secrets.
    pub(in crate::agent) fn known_keys(&self) -> KnownKeys {
        KnownKeys::new(self.params.headers.iter().map(|(_, value)| value.expose()))
    }

    /// Calls user code. If it panics, records a fault and returns `None`.
    fn ask<T>(
        &mut self,
        config: &Config,
        name: &str,
        what: &str,
        code: impl FnOnce() -> T,
    ) -> Option<T> {
        let answer = user_code::guard(&*config.provider, name, what, code);
        answer.map_err(|panicked| self.faults.push(panicked.into())).ok()
    }

    /// Describes the fallback models to the kernel.
    fn fallback_models(&mut self, config: &Config) -> Vec<FallbackModel> {
        let params = self.params.clone();
        let described = self.ask(config, "provider", "a fallback provider", || {
            let describe = |fallback: &Fallback| FallbackModel {
                provider: Some(fallback.provider.name().to_owned()),
                model: Some(fallback.provider.model().to_owned()),
                price: with_hour(fallback.price, &params),
                context_window: fallback.context_window,
                max_output: fallback.provider.max_output(),
                image_tokens: fallback.provider.image_tokens(),
            };
            config.fallbacks.iter().map(describe).collect()
        });
        described.unwrap_or_default()
    }

    /// Returns the tools as the model receives them.
    pub(in crate::agent) fn tool_definitions(&mut self, config: &Config) -> Vec<ToolDefinition> {
        let mut definitions = Vec::new();
        for (tool, known) in config.tools.iter().zip(&*config.tool_specs) {
            let what = format!("the tool `{}`", known.name);
            let told = self.ask(config, &known.name, &what, || ToolDefinition {
                name: known.name.clone(),
                description: tool.description().to_owned(),
                schema: with_time_limit(tool.schema(), known, &config.limits),
            });
            definitions.extend(told);
        }
        if config.finish_tool {
            definitions.push(crate::tool::finish::definition());
        }
        definitions
    }
}

/// Returns the length of a value as JSON, without writing it anywhere.
fn json_len(value: &Value) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither a value nor the counter can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Appends the default and the maximum to the description of the tool's time-limit argument,
/// because the model could not know them otherwise.
fn with_time_limit(mut schema: Value, tool: &ToolPolicy, limits: &Limits) -> Value {
    let Some(name) = &tool.timeout_argument else { return schema };
    let argument = schema.pointer_mut("/properties").and_then(|all| all.get_mut(name));
    if let Some(Value::String(text)) = argument.and_then(|one| one.get_mut("description")) {
        let bound = |what: &str, limit: Option<Duration>| {
            limit.map_or(String::new(), |limit| format!(" {what}: {}.", limit.as_secs_f64()))
        };
        text.push_str(&bound("Default", tool.time_limit(&Map::new(), limits)));
        // Asking for the longest possible time yields the largest time that is granted.
        let longest = Map::from_iter([(name.clone(), f64::MAX.into())]);
        text.push_str(&bound("Maximum", tool.time_limit(&longest, limits)));
    }
    schema
}

/// Returns the points at which the kernel consults hooks, and the hooks that receive the events.
fn hook_points(config: &Config) -> (Hooks, Vec<Arc<dyn Hook>>) {
    let (mut points, mut on_event) = (Hooks::default(), Vec::new());
    for hook in &config.hooks {
        let asked = hook.points();
        if asked.on_event {
            on_event.push(Arc::clone(hook));
        }
        points.prompt |= asked.prompt;
        points.pre_iteration |= asked.pre_iteration;
        points.chat_params |= asked.chat_params;
        points.pre_tool |= asked.pre_tool;
        points.post_tool |= asked.post_tool;
        points.pre_call |= asked.pre_call;
        points.stop |= asked.stop;
        points.reply |= asked.reply;
    }
    (points, on_event)
}
