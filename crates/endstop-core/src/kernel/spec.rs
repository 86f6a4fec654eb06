//! What a run is made of before it starts.

use super::watch::Watch;
use crate::limits::Limits;
use crate::message::Message;
use crate::policy::TerminationPolicy;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// Whether a tool may be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Yes.
    #[default]
    Allow,
    /// A person is asked before each call.
    Ask,
    /// No: a call is answered as denied.
    Deny,
}

/// The most seconds that a model can ask for, whatever the limits: a year, as for a limit that is
/// configured.
const LONGEST_WISH: f64 = 86_400.0 * 365.0;

/// What the kernel knows of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// Whether it may run beside others; one that may not runs alone.
    pub parallel_safe: bool,
    /// Whether it runs code: what it prints is then a step of type `code`.
    pub runs_code: bool,
    /// Whether a call that was cut short may be made again as it was.
    pub repeatable: bool,
    /// Whether its calls are left out of the no-progress judgement (waiting, polling).
    pub exempt_from_no_progress: bool,
    /// Its own time limit; `None`: the run's `tool_timeout`.
    pub timeout: Option<Duration>,
    /// The argument in which the model may ask for another time limit, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_argument: Option<String>,
    /// Whether it may be run.
    pub permission: Permission,
}

impl ToolSpec {
    /// Returns how long a call with these arguments may take.
    ///
    /// The model's wish counts up to `max_tool_timeout`. A limit that is already longer than that,
    /// or off, bounds the wish instead, so that asking never shortens what is allowed. A wish that
    /// is not a positive number is ignored here; the tool reports it to the model.
    pub fn time_limit(&self, arguments: &Map<String, Value>, limits: &Limits) -> Option<Duration> {
        let default = self.timeout.or(limits.tool_timeout);
        let wish = self.timeout_argument.as_ref().and_then(|name| arguments.get(name));
        let wish = wish
            .and_then(Value::as_f64)
            .filter(|seconds| *seconds > 0.0)
            .map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST_WISH)));
        match (wish, default, limits.max_tool_timeout) {
            (None, default, _) => default,
            (Some(wish), Some(default), Some(most)) => Some(wish.min(most.max(default))),
            (Some(wish), _, _) => Some(wish),
        }
    }
}

/// Which hooks the driver has; the kernel asks only those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// When the user's input came.
    pub prompt: bool,
    /// Before each turn.
    pub pre_iteration: bool,
    /// Before each model call.
    pub chat_params: bool,
    /// Before each tool call.
    pub pre_tool: bool,
    /// Before a success; may veto it, at most three times a run.
    pub stop: bool,
    /// When the model has answered in text: somebody may reply, as often as they like, and the run
    /// goes on with what they say.
    pub reply: bool,
}

/// When the conversation is shortened before a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProactiveCompaction {
    /// Never.
    #[default]
    Never,
    /// When the prompt reaches this share (0 to 1) of the context window.
    AtShare(f64),
    /// The driver is asked before every turn.
    Ask,
}

/// Whether and when the conversation is shortened, and what counts as that.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionSpec {
    /// Before a call, at most once a turn.
    pub proactive: ProactiveCompaction,
    /// After the provider refused a prompt as too long, at most once a turn.
    pub reactive: bool,
    /// The share (0 to 1) of its bytes that a conversation must lose; one that loses less is a
    /// failed compaction, and what it gave is dropped. One that grows always is.
    pub least_gain: f64,
    /// After so many failed compactions in a row none is tried before a call any more.
    pub max_failures: u32,
}

impl Default for CompactionSpec {
    /// None; a conversation must lose a tenth; three may fail in a row.
    fn default() -> CompactionSpec {
        CompactionSpec {
            proactive: ProactiveCompaction::Never,
            reactive: false,
            least_gain: 0.1,
            max_failures: 3,
        }
    }
}

/// A run before it starts.
///
/// A journal keeps it: all but the policy, which is code.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec {
    /// The task, for policies to read.
    pub task: String,
    /// The conversation, the user's input last.
    pub messages: Vec<Message>,
    /// The conversation's epoch.
    pub epoch: u64,
    /// The limits.
    pub limits: Limits,
    /// The termination policy, if any.
    #[serde(skip)]
    pub policy: Option<Box<dyn TerminationPolicy>>,
    /// The rules that watch the run, each in its mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watches: Vec<Watch>,
    /// The tools, `finish` left out.
    pub tools: Vec<ToolSpec>,
    /// Whether the model has the `finish` tool.
    pub finish_tool: bool,
    /// Which hooks there are.
    pub hooks: Hooks,
    /// Whether the answer must satisfy a schema; the driver validates.
    pub output_schema: bool,
    /// Whether and when the conversation is shortened.
    pub compaction: CompactionSpec,
    /// The model's context window in tokens, where known.
    pub context_window: Option<u64>,
    /// Upper bound in tokens on what each prompt has beside the messages (system, tools).
    pub prompt_overhead: u64,
    /// The output cap of each call; `None`: the provider's own.
    pub output_cap: Option<u64>,
    /// The largest answer in tokens that the model gives, where known: no cap that the kernel makes
    /// up is above it.
    pub max_output: Option<u64>,
    /// The least output cap that makes sense because of a thinking budget (0: none).
    pub thinking_budget: u64,
    /// Whether ceilings are kept by reserving before each call (off where costs are only known
    /// afterwards, as in a recording).
    pub reserve: bool,
    /// Whether reservations go to a budget shared with other runs.
    pub shared_budget: bool,
    /// Whether responses are streamed; only then does a stall show.
    pub streaming: bool,
    /// Whether the model is told once what it repeats before `error_no_progress`.
    pub nudge: bool,
    /// Named values for policies.
    pub variables: Map<String, Value>,
    /// The model as it was asked for.
    pub model: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The run's id.
    pub run_id: Option<String>,
}

impl RunSpec {
    /// A run over this conversation with every default: no tools but `finish`, no policy.
    pub fn new(messages: Vec<Message>) -> RunSpec {
        RunSpec {
            task: messages.last().map(Message::plain_text).unwrap_or_default(),
            messages,
            epoch: 0,
            limits: Limits::default(),
            policy: None,
            watches: Vec::new(),
            tools: Vec::new(),
            finish_tool: true,
            hooks: Hooks::default(),
            output_schema: false,
            compaction: CompactionSpec::default(),
            context_window: None,
            prompt_overhead: 0,
            output_cap: None,
            max_output: None,
            thinking_budget: 0,
            reserve: true,
            shared_budget: false,
            streaming: true,
            nudge: true,
            variables: Map::new(),
            model: None,
            provider: None,
            run_id: None,
        }
    }

    /// The same run again, with a policy of its own: code is not copied.
    #[must_use]
    pub fn again(&self, policy: Option<Box<dyn TerminationPolicy>>) -> RunSpec {
        RunSpec { policy, messages: self.messages.clone(), ..self.without_messages() }
    }

    /// The same run with an empty conversation and without its policy, for a journal that stores
    /// conversations apart.
    #[must_use]
    pub fn without_messages(&self) -> RunSpec {
        RunSpec {
            policy: None,
            task: self.task.clone(),
            messages: Vec::new(),
            epoch: self.epoch,
            limits: self.limits.clone(),
            watches: self.watches.clone(),
            tools: self.tools.clone(),
            finish_tool: self.finish_tool,
            hooks: self.hooks,
            output_schema: self.output_schema,
            compaction: self.compaction,
            context_window: self.context_window,
            prompt_overhead: self.prompt_overhead,
            output_cap: self.output_cap,
            max_output: self.max_output,
            thinking_budget: self.thinking_budget,
            reserve: self.reserve,
            shared_budget: self.shared_budget,
            streaming: self.streaming,
            nudge: self.nudge,
            variables: self.variables.clone(),
            model: self.model.clone(),
            provider: self.provider.clone(),
            run_id: self.run_id.clone(),
        }
    }
}

impl Default for RunSpec {
    fn default() -> RunSpec {
        RunSpec::new(Vec::new())
    }
}

impl fmt::Debug for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSpec")
            .field("messages", &self.messages.len())
            .field("limits", &self.limits)
            .field("policy", &self.policy.as_ref().map(|p| p.name().to_owned()))
            .field("tools", &self.tools)
            .field("hooks", &self.hooks)
            .finish_non_exhaustive()
    }
}
