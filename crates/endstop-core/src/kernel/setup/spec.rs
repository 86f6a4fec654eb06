//! The specification of a run: conversation, limits, tools, hooks and policy, and the place in another
//! run at which it branched off.
//!
//! ```
//! use endstop_core::{BranchPoint, RunSpec};
//! let point = BranchPoint { run_id: "k3v9".into(), turn: 4, ..BranchPoint::default() };
//! let spec = RunSpec { branched_from: Some(point.into()), ..RunSpec::default() };
//! # let _ = spec;
//! ```

use super::guest_mode::{Capability, GuestMode};
use super::models::FallbackModel;
use super::watch::Watch;
use crate::limits::Limits;
use crate::media::ImageTokens;
use crate::message::{Message, MessageId};
use crate::policy::TerminationPolicy;
use crate::usage::{NanoUsd, usd};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

/// The permission of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Permission {
    /// Calls run without a question.
    #[default]
    Allow,
    /// A person must approve each call.
    Ask,
    /// Calls are answered as denied.
    Deny,
}

impl Permission {
    /// Returns the stricter of two permissions.
    #[must_use]
    pub fn stricter(self, other: Permission) -> Permission {
        match (self, other) {
            (Permission::Deny, _) | (_, Permission::Deny) => Permission::Deny,
            (Permission::Ask, _) | (_, Permission::Ask) => Permission::Ask,
            (Permission::Allow, Permission::Allow) => Permission::Allow,
        }
    }
}

/// Upper bound in seconds on the time limit that a model may request, whatever the limits: a year,
/// the same as for a configured limit. Larger numbers would make
/// `Duration::from_secs_f64` panic.
const LONGEST_WISH: f64 = 86_400.0 * 365.0;

/// The properties of a tool that the kernel needs; schema and code belong to the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolPolicy {
    /// Name of the tool.
    pub name: String,
    /// `true` if calls may run at the same time as other calls; otherwise each call runs alone.
    pub parallel_safe: bool,
    /// `true` if the tool runs the model's code. Its output may then declare the answer, and policies
    /// see it as a step of type `code`. What other tools return is data.
    pub runs_code: bool,
    /// `true` if an interrupted call may be repeated unchanged, because it is idempotent.
    pub repeatable: bool,
    /// `true` if calls are exempt from no-progress detection, because repeating them is normal
    /// (waiting, polling).
    pub exempt_from_no_progress: bool,
    /// The tool's own time limit; `None`: the run's `tool_timeout`.
    pub timeout: Option<Duration>,
    /// Name of the argument with which the model may request a time limit, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_argument: Option<String>,
    /// Maximum number of calls of the tool that run; the next one ends the run as `error_max_tool_calls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u32>,
    /// The permission of the tool.
    pub permission: Permission,
    /// `true` if calls run in the background: each is answered with a handle at once, and its result
    /// follows in a message before the next model call. Its time limit is `timeout`, or the run's
    /// `max_tool_timeout`.
    #[serde(skip_serializing_if = "is_false")]
    pub background: bool,
}

impl ToolPolicy {
    /// Reads a table of limits on the calls of tools, for example `{"shell": 20}`.
    ///
    /// # Errors
    /// The value is not such a table. The message names the tool.
    pub fn read_max_calls(table: &Value) -> Result<BTreeMap<String, u32>, String> {
        let expected = "expected a table of tools and numbers of calls";
        let table = table.as_object().ok_or(expected)?;
        let read = |(tool, calls): (&String, &Value)| {
            let calls = calls.as_u64().and_then(|calls| u32::try_from(calls).ok());
            let calls = calls.ok_or_else(|| {
                let tool: String = tool.chars().take(64).collect();
                format!("`{tool}`: expected a whole number of calls")
            })?;
            Ok((tool.clone(), calls))
        };
        table.iter().map(read).collect()
    }

    /// Returns a policy for each tool whose calls have a limit.
    pub fn of_max_calls(limits: &BTreeMap<String, u32>) -> Vec<ToolPolicy> {
        let policy = |(name, calls): (&String, &u32)| ToolPolicy {
            name: name.clone(),
            max_calls: Some(*calls),
            ..ToolPolicy::default()
        };
        limits.iter().map(policy).collect()
    }

    /// Returns the time limit of a call with these arguments.
    ///
    /// The model may request up to `max_tool_timeout`. If the default limit is longer than that, or
    /// off, the request is bounded by the default instead, so that asking never shortens the
    /// allowed time. A request that is not a positive number is ignored here; the tool reports it
    /// to the model.
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

/// The hooks that the driver has; the kernel consults only those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// On the user's input.
    pub prompt: bool,
    /// Before each turn.
    pub pre_iteration: bool,
    /// Before each model call.
    pub chat_params: bool,
    /// Before each tool call; may change its arguments.
    pub pre_tool: bool,
    /// After each tool call that ran; may change its result.
    #[serde(skip_serializing_if = "is_false")]
    pub post_tool: bool,
    /// Before each request to the model, of which the hook sees everything.
    #[serde(skip_serializing_if = "is_false")]
    pub pre_call: bool,
    /// Before a success; may veto it, at most three times per run.
    pub stop: bool,
    /// After an answer in text: a user may reply, any number of times, and the run continues with
    /// the reply.
    pub reply: bool,
    /// At each event of the run. The driver alone calls these hooks; the kernel ignores the flag.
    #[serde(skip)]
    pub on_event: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// The condition under which the conversation is shortened before a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProactiveCompaction {
    /// Never.
    #[default]
    Never,
    /// If the prompt reaches this share (0 to 1) of the context window.
    AtShare(f64),
    /// Before every turn, if the driver decides so: it is asked each time.
    Ask,
}

/// The conditions for compactions, and for accepting their results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionSpec {
    /// Before a call, at most once per turn.
    pub proactive: ProactiveCompaction,
    /// After the provider refused a prompt as too long, at most once per turn.
    pub reactive: bool,
    /// Minimum share (0 to 1) of the bytes that a compaction must remove. A result that removes
    /// less counts as failed and is discarded, and so does any result that is larger than before.
    pub least_gain: f64,
    /// Number of consecutive failures after which no more proactive compactions are tried.
    pub max_failures: u32,
}

impl Default for CompactionSpec {
    /// Off; a conversation must lose a tenth of its bytes; three failures in a row.
    fn default() -> CompactionSpec {
        CompactionSpec {
            proactive: ProactiveCompaction::Never,
            reactive: false,
            least_gain: 0.1,
            max_failures: 3,
        }
    }
}

/// The specification of a run.
///
/// Journals store everything except the policy, which is code.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec {
    /// The task, for policies.
    pub task: String,
    /// The conversation, with the user's input last.
    pub messages: Vec<Message>,
    /// The conversation's epoch.
    pub epoch: u64,
    /// The message with the task, which a compaction must keep; `None`: the last message, if it is the
    /// user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_message: Option<MessageId>,
    /// The place in another run at which this one branched off, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branched_from: Option<Box<BranchPoint>>,
    /// The limits.
    pub limits: Limits,
    /// The termination policy, if any.
    #[serde(skip)]
    pub policy: Option<Box<dyn TerminationPolicy>>,
    /// The rules that watch the run, each with its mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub watches: Vec<Watch>,
    /// The tools, without `finish`. Shared, because an agent has the same ones in each of its runs.
    pub tools: Arc<Vec<ToolPolicy>>,
    /// `true` if the model is offered the `finish` tool.
    pub finish_tool: bool,
    /// The hooks that the driver has.
    pub hooks: Hooks,
    /// `true` if the answer must satisfy a schema. The driver holds the schema and validates.
    pub output_schema: bool,
    /// `true` if the driver has a verifier, which judges the answer before the run ends as a success.
    #[serde(skip_serializing_if = "is_false")]
    pub verifier: bool,
    /// The conditions for compactions.
    pub compaction: CompactionSpec,
    /// The model's context window in tokens, if known.
    pub context_window: Option<u64>,
    /// Upper bound in tokens on the parts of each prompt that are not messages (instructions, tool
    /// schemas).
    pub prompt_overhead: u64,
    /// The rule for the tokens of images.
    pub image_tokens: ImageTokens,
    /// The output cap of each call; `None`: the provider's default.
    pub output_cap: Option<u64>,
    /// The model's maximum output in tokens, if known. The kernel never sends a larger cap.
    pub max_output: Option<u64>,
    /// The reasoning budget in tokens (0: none). An output cap below it would leave no room for an
    /// answer.
    pub thinking_budget: u64,
    /// `true` if ceilings are enforced by reserving each call's worst case. Off if costs are known
    /// only afterwards, as in a recorded run.
    pub reserve: bool,
    /// `true` if reservations go to a budget that is shared with other runs.
    pub shared_budget: bool,
    /// `true` if streams are requested; otherwise a response without content may still be one that comes at once.
    pub streaming: bool,
    /// `true` if a message informs the model once of its repetition before the run ends with
    /// `error_no_progress`.
    pub nudge: bool,
    /// Named values for policies.
    pub variables: Map<String, Value>,
    /// The requested model.
    pub model: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The models that the run calls after that one has failed, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<FallbackModel>,
    /// Id of the run.
    pub run_id: Option<String>,
    /// The abilities of the driver if it does not own the loop; `None`: it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestMode>,
}

impl RunSpec {
    /// Creates a run over this conversation with all defaults: no tools but `finish`, no policy.
    pub fn new(messages: Vec<Message>) -> RunSpec {
        RunSpec {
            // Policies read the task as text; the last message is the user's input.
            task: messages.last().map(Message::plain_text).unwrap_or_default(),
            messages,
            epoch: 0,
            task_message: None,
            branched_from: None,
            limits: Limits::default(),
            policy: None,
            watches: Vec::new(),
            tools: Arc::default(),
            finish_tool: true,
            hooks: Hooks::default(),
            output_schema: false,
            verifier: false,
            compaction: CompactionSpec::default(),
            context_window: None,
            prompt_overhead: 0,
            image_tokens: ImageTokens::default(),
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
            fallbacks: Vec::new(),
            run_id: None,
            guest: None,
        }
    }

    /// Returns a copy with another policy, because a policy is code and cannot be cloned.
    #[must_use]
    pub fn clone_with(&self, policy: Option<Box<dyn TerminationPolicy>>) -> RunSpec {
        RunSpec { policy, messages: self.messages.clone(), ..self.without_messages() }
    }

    /// Returns a copy without conversation and policy, for journals that store conversations
    /// separately.
    #[must_use]
    pub fn without_messages(&self) -> RunSpec {
        // Field by field instead of `..`, so that a new field cannot be forgotten here.
        RunSpec {
            policy: None,
            task: self.task.clone(),
            messages: Vec::new(),
            epoch: self.epoch,
            task_message: self.task_message,
            branched_from: self.branched_from.clone(),
            limits: self.limits.clone(),
            watches: self.watches.clone(),
            tools: self.tools.clone(),
            finish_tool: self.finish_tool,
            hooks: self.hooks,
            output_schema: self.output_schema,
            verifier: self.verifier,
            compaction: self.compaction,
            context_window: self.context_window,
            prompt_overhead: self.prompt_overhead,
            image_tokens: self.image_tokens,
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
            fallbacks: self.fallbacks.clone(),
            run_id: self.run_id.clone(),
            guest: self.guest,
        }
    }

    /// Switches off what a guest cannot perform, so that no phase has to ask for its capabilities.
    pub(crate) fn restrict_to_guest(&mut self) {
        if self.may(Capability::Loop) {
            return;
        }
        let (mut limits, mut tools) = (take(&mut self.limits), take(&mut self.tools));
        self.restrict_limits(&mut limits);
        self.restrict_tools(&mut tools);
        (self.limits, self.tools) = (limits, tools);
        // The client has its own tools and its own loop, and a tool of it may be called `finish`.
        self.finish_tool = false;
        self.hooks = Hooks::default();
        self.output_schema = false;
        self.verifier = false;
        self.compaction = CompactionSpec::default();
        self.fallbacks.clear();
        self.nudge &= self.may(Capability::Inject);
    }

    /// `true` if the driver has the capability.
    pub(crate) fn may(&self, capability: Capability) -> bool {
        self.guest.is_none_or(|mode| mode.grants(capability))
    }

    /// Switches off the limits that need a capability which the driver does not have.
    pub(crate) fn restrict_limits(&self, limits: &mut Limits) {
        if let Some(mode) = self.guest {
            mode.restrict_limits(limits);
        }
    }

    /// Removes the time limits of tools, unless the driver enforces them.
    pub(crate) fn restrict_tools(&self, tools: &mut Arc<Vec<ToolPolicy>>) {
        // Without tools nothing is copied.
        if self.may(Capability::Clocks) || tools.is_empty() {
            return;
        }
        for tool in Arc::make_mut(tools) {
            (tool.timeout, tool.timeout_argument) = (None, None);
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
            // Only the length: a conversation may be megabytes long, and may contain secrets.
            .field("messages", &self.messages.len())
            .field("limits", &self.limits)
            .field("policy", &self.policy.as_ref().map(|p| p.name().to_owned()))
            .field("tools", &self.tools)
            .field("hooks", &self.hooks)
            .finish_non_exhaustive()
    }
}

/// The place in another run at which a run branched off. The branch begins with the conversation of
/// that run, and does not pay for it again: amounts, turns and limits of the branch count from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BranchPoint {
    /// Id of the other run.
    pub run_id: String,
    /// Number of turns of that run that the branch begins with.
    pub turn: u32,
    /// Known cost of the conversation that the branch begins with: what the other run had spent by
    /// then, in addition to the conversation that it had begun with itself.
    #[serde(rename = "cost_usd", with = "usd")]
    pub cost: NanoUsd,
    /// `true` if that cost is a lower bound, because a part of it is unknown.
    pub cost_unknown: bool,
    /// Tokens of the same part.
    pub tokens: u64,
    /// Number of parts of that conversation (signed reasoning, for example) that belong to another
    /// API and are therefore not sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
