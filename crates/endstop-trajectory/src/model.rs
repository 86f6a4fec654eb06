//! The format-independent model of one recorded run.
//!
//! ```
//! use endstop_trajectory::{Role, Step, Trajectory};
//! let mut run = Trajectory::new("run-1");
//! run.steps.push(Step { text: "Paris.".into(), ..Step::new(Role::Agent) });
//! assert_eq!(run.turns().count(), 1);
//! ```
//!
//! Strings are borrowed from the file if possible, so that reading a million runs copies little;
//! [`Trajectory::into_owned`] detaches a run from its file. Members that no field holds are stored
//! in `extra`, under their original names.

use serde_json::{Map, Value};
use std::borrow::Cow;

type Text<'a> = Cow<'a, str>;

/// Member of a step's `extra` if the recorder left its content out.
pub(crate) const NOT_RECORDED: &str = "content_not_recorded";

/// A recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory<'a> {
    /// The run's id, unique within its file.
    pub run_id: Text<'a>,
    /// The file and record that the run was read from.
    pub origin: Origin,
    /// The task id. Runs of the same task share it, regardless of the model or the trial.
    pub task_id: Option<Text<'a>>,
    /// The attempt at the task.
    pub trial: Option<Text<'a>>,
    /// The model.
    pub model: Option<Text<'a>>,
    /// The agent, or its scaffold.
    pub agent: Option<Text<'a>>,
    /// The agent's version.
    pub agent_version: Option<Text<'a>>,
    /// The recorded reward and success, if known.
    pub recorded: Recorded,
    /// The recorded ending.
    pub ending: Option<Ending<'a>>,
    /// The limits that were configured, under their original names.
    pub limits: Map<String, Value>,
    /// Usage of the whole run, if the recording reports it.
    pub totals: Totals,
    /// Additional facts about the run: a gold answer, the step of the mistake, test results.
    pub labels: Labels,
    /// Tags: `summary_only`, `single_turn`, `no_results` …
    pub tags: Vec<Text<'a>>,
    /// The tools that were offered to the model, as the recording defines them.
    pub tools: Vec<Value>,
    /// The messages and turns, in order.
    pub steps: Vec<Step<'a>>,
    /// Runs that this run started: its subagents.
    pub children: Vec<Trajectory<'a>>,
    /// Irregularities of the recording, one line each: a result without a call, steps out of order.
    pub notes: Vec<String>,
    /// Members that no other field holds.
    pub extra: Map<String, Value>,
}

/// Additional facts about a run.
pub type Labels = Map<String, Value>;

/// The place that a run was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The format's name.
    pub format: &'static str,
    /// The file; `-` for standard input.
    pub file: String,
    /// The line, or the index of the list element, from 1; `None` if the whole file is the run.
    pub at: Option<u64>,
}

/// The recorded reward and success of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The reward.
    pub reward: Option<f64>,
    /// `true` if the run succeeded; `None` if the recording does not report it.
    pub success: Option<bool>,
}

/// The ending of a recorded run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending<'a> {
    /// The reason, in the vocabulary of neutral-traj/1: `final`, `agent_submit`, `user_stop`,
    /// `handoff`, `max_steps`, `max_turns`, `reward_threshold`, `plan_end`, `timeout`,
    /// `cost_limit`, `context_overflow`, `output_length`, `provider_error`, `agent_error`,
    /// `harness_error`, `verifier_timeout`, `verifier_error`, `unknown`; Endstop adds `cancelled`
    /// and `token_limit`.
    pub reason: Text<'a>,
    /// The recorder's own name for the reason.
    pub native: Option<Text<'a>>,
    /// The failure mode that the harness reported.
    pub failure_mode: Option<Text<'a>>,
    /// The HTTP status of the provider's error, if the recording has it as a number.
    pub http_status: Option<u16>,
    /// The final answer.
    pub answer: Option<Text<'a>>,
}

/// The usage of a whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Input tokens of all calls, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens of all calls.
    pub completion_tokens: Option<u64>,
    /// Of the input tokens, those read from a cache.
    pub cached_tokens: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Seconds.
    pub wall_s: Option<f64>,
    /// Model calls, or turns.
    pub turns: Option<u64>,
    /// The model calls that are not turns, if the recording has their usage. The counts above
    /// include them, if they are known.
    pub outside_turns: Vec<ModelCall>,
    /// Other totals, under their original names.
    pub extra: Map<String, Value>,
}

/// A paid model call that is not a turn: it failed, or summarised the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelCall {
    /// The model, if the recording names it for this call.
    pub model: Option<String>,
    /// The usage of the call.
    pub usage: Usage,
    /// The cost of the call, in US dollars.
    pub cost_usd: Option<f64>,
}

impl ModelCall {
    /// Returns `true` if the recording has a usage or a cost for the call.
    pub(crate) fn is_paid(&self) -> bool {
        let counts = [self.usage.prompt_tokens, self.usage.completion_tokens];
        counts.into_iter().flatten().any(|count| count > 0) || self.cost_usd.is_some()
    }
}

/// The speaker of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions.
    System,
    /// A person, a simulated user, or the harness in the user's role.
    User,
    /// The model. An agent step is a turn: the model's message together with the results of its
    /// calls.
    #[default]
    Agent,
}

/// A message, or a turn of the model together with the results of its calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step<'a> {
    /// The speaker.
    pub role: Role,
    /// The message text; may be empty.
    pub text: Text<'a>,
    /// The reasoning text, if it was exposed.
    pub reasoning: Option<Text<'a>>,
    /// The tool calls that the model requested, in order.
    pub calls: Vec<Call<'a>>,
    /// The results of the calls, in order.
    pub results: Vec<CallResult<'a>>,
    /// The usage of the model call.
    pub usage: Option<Box<Usage>>,
    /// The cost of the step, in US dollars.
    pub cost_usd: Option<f64>,
    /// The reward after the step.
    pub reward: Option<f64>,
    /// The time of the step, as ISO 8601.
    pub at: Option<Text<'a>>,
    /// The provider's finish reason.
    pub finish_reason: Option<Text<'a>>,
    /// The agent, if the run has several.
    pub agent: Option<Text<'a>>,
    /// The model, if the recording names it for this step.
    pub model: Option<Text<'a>>,
    /// `true` if the step is context carried over from an earlier recording; such a step is not
    /// part of this run.
    pub copied: bool,
    /// Members that no other field holds.
    pub extra: Option<Box<Map<String, Value>>>,
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<'a> {
    /// The call id, if the recording has one.
    pub id: Option<Text<'a>>,
    /// The tool's name.
    pub name: Text<'a>,
    /// The arguments as JSON: an object, or a string if the recorded arguments were not an object.
    pub arguments: Text<'a>,
    /// Members that no other field holds.
    pub extra: Option<Box<Map<String, Value>>>,
}

impl Default for Call<'_> {
    /// A call without a name and without arguments.
    fn default() -> Self {
        Call { id: None, name: Text::default(), arguments: "{}".into(), extra: None }
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallResult<'a> {
    /// The id of the call; `None` if the recording does not link the result to a call.
    pub call_id: Option<Text<'a>>,
    /// The content that the model received.
    pub content: Text<'a>,
    /// `true` if the result is a failure.
    pub is_error: bool,
    /// The exit code, if the tool ran a process.
    pub exit_code: Option<i64>,
    /// Members that no other field holds.
    pub extra: Option<Box<Map<String, Value>>>,
}

/// The usage of one model call, in tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Input tokens, including cached ones.
    pub prompt_tokens: Option<u64>,
    /// Generated tokens, including reasoning.
    pub completion_tokens: Option<u64>,
    /// The input tokens that were read from a cache.
    pub cached_tokens: Option<u64>,
    /// The input tokens that were written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// The generated tokens that were reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Other counts, under their original names.
    pub extra: Map<String, Value>,
}

impl Usage {
    /// Returns the part of [`cache_write_tokens`](Self::cache_write_tokens) that was written for an
    /// hour, which costs more than a write for the default time. Recordings have it under Anthropic's
    /// name `cache_creation.ephemeral_1h_input_tokens`, and those of Endstop as
    /// `cache_write_1h_tokens`.
    ///
    /// ```
    /// use endstop_trajectory::Usage;
    /// let mut usage = Usage { cache_write_tokens: Some(9), ..Usage::default() };
    /// let split = serde_json::json!({"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7});
    /// usage.extra.insert("cache_creation".to_owned(), split);
    /// assert_eq!(usage.cache_write_1h_tokens(), Some(7));
    /// ```
    pub fn cache_write_1h_tokens(&self) -> Option<u64> {
        const HOUR: &str = "ephemeral_1h_input_tokens";
        let split = self.extra.get("cache_creation");
        // LiteLLM has Anthropic's split in OpenAI's details.
        let details =
            || self.extra.get("prompt_tokens_details")?.get("cache_creation_token_details");
        let of = |split: &Value| split.get(HOUR).and_then(Value::as_u64);
        let named = || self.extra.get("cache_write_1h_tokens").and_then(Value::as_u64);
        split.and_then(of).or_else(|| details().and_then(of)).or_else(named)
    }
}

impl<'a> Trajectory<'a> {
    /// Creates a run without steps.
    pub fn new(run_id: impl Into<Text<'a>>) -> Trajectory<'a> {
        Trajectory { run_id: run_id.into(), ..Trajectory::default() }
    }

    /// Returns the run's turns: the agent's steps, except those copied from an earlier recording.
    pub fn turns(&self) -> impl Iterator<Item = &Step<'a>> {
        self.steps.iter().filter(|step| step.is_turn())
    }

    /// Returns `true` if the run has this tag.
    pub fn is_tagged(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Returns `true` if the recording does not contain tool results (the tag `no_results`). Rules
    /// that inspect results cannot evaluate such a run.
    pub fn lacks_results(&self) -> bool {
        self.is_tagged("no_results")
    }

    /// Copies all borrowed strings, so that the run no longer borrows from its file.
    pub fn into_owned(self) -> Trajectory<'static> {
        Trajectory {
            run_id: owned(self.run_id),
            origin: self.origin,
            task_id: self.task_id.map(owned),
            trial: self.trial.map(owned),
            model: self.model.map(owned),
            agent: self.agent.map(owned),
            agent_version: self.agent_version.map(owned),
            recorded: self.recorded,
            ending: self.ending.map(Ending::into_owned),
            limits: self.limits,
            totals: self.totals,
            labels: self.labels,
            tags: self.tags.into_iter().map(owned).collect(),
            tools: self.tools,
            steps: self.steps.into_iter().map(Step::into_owned).collect(),
            children: self.children.into_iter().map(Trajectory::into_owned).collect(),
            notes: self.notes,
            extra: self.extra,
        }
    }
}

impl Ending<'_> {
    fn into_owned(self) -> Ending<'static> {
        Ending {
            reason: owned(self.reason),
            native: self.native.map(owned),
            failure_mode: self.failure_mode.map(owned),
            http_status: self.http_status,
            answer: self.answer.map(owned),
        }
    }
}

impl<'a> Step<'a> {
    /// Returns the result of the call at index `nth`: matched by the call's id, or by position if
    /// the ids do not match.
    pub fn result_of(&self, nth: usize) -> Option<&CallResult<'a>> {
        let call = self.calls.get(nth)?;
        let named = call.id.as_ref().and_then(|id| {
            // Calls of the same id are answered in order.
            let before = self.calls[..nth].iter().filter(|call| call.id.as_ref() == Some(id));
            let mut named =
                self.results.iter().filter(|result| result.call_id.as_ref() == Some(id));
            let first = named.clone().next();
            named.nth(before.count()).or(first)
        });
        // By position only if the result has no id: a result with a different id answers another
        // call, even if it is at this position.
        named.or_else(|| self.results.get(nth).filter(|result| result.call_id.is_none()))
    }

    /// Creates an empty step.
    pub fn new(role: Role) -> Step<'static> {
        Step { role, ..Step::default() }
    }

    /// Returns the input plus generated tokens of the model call, if the recording has both counts.
    pub fn tokens(&self) -> Option<u64> {
        let usage = self.usage.as_deref()?;
        // Saturating, because the counts come from a file and may be arbitrarily large.
        Some(usage.prompt_tokens?.saturating_add(usage.completion_tokens?))
    }

    /// Returns `true` if the step is a turn of this run.
    pub fn is_turn(&self) -> bool {
        // Copied steps were turns of another run and would be counted twice.
        self.role == Role::Agent && !self.copied
    }

    /// `false` if the recorder left the text of the step out, so that a step without text states nothing.
    pub fn has_content(&self) -> bool {
        self.extra.as_ref().is_none_or(|extra| !extra.contains_key(NOT_RECORDED))
    }

    fn into_owned(self) -> Step<'static> {
        Step {
            role: self.role,
            text: owned(self.text),
            reasoning: self.reasoning.map(owned),
            calls: self.calls.into_iter().map(Call::into_owned).collect(),
            results: self.results.into_iter().map(CallResult::into_owned).collect(),
            usage: self.usage,
            cost_usd: self.cost_usd,
            reward: self.reward,
            at: self.at.map(owned),
            finish_reason: self.finish_reason.map(owned),
            agent: self.agent.map(owned),
            model: self.model.map(owned),
            copied: self.copied,
            extra: self.extra,
        }
    }
}

impl Call<'_> {
    fn into_owned(self) -> Call<'static> {
        Call {
            id: self.id.map(owned),
            name: owned(self.name),
            arguments: owned(self.arguments),
            extra: self.extra,
        }
    }
}

impl CallResult<'_> {
    fn into_owned(self) -> CallResult<'static> {
        CallResult {
            call_id: self.call_id.map(owned),
            content: owned(self.content),
            is_error: self.is_error,
            exit_code: self.exit_code,
            extra: self.extra,
        }
    }
}

fn owned(text: Text<'_>) -> Text<'static> {
    Cow::Owned(text.into_owned())
}
