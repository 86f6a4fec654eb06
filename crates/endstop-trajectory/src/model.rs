//! One recorded run, whatever wrote it.
//!
//! ```
//! use endstop_trajectory::{Role, Step, Trajectory};
//! let mut run = Trajectory::new("run-1");
//! run.steps.push(Step { text: "Paris.".into(), ..Step::new(Role::Agent) });
//! assert_eq!(run.turns().count(), 1);
//! ```
//!
//! Texts are borrowed from the file where they can be, so that a million runs go by without a copy;
//! [`Trajectory::into_owned`] keeps one. What no field holds is in `extra`, under the name it had.

use serde_json::{Map, Value};
use std::borrow::Cow;

type Text<'a> = Cow<'a, str>;

/// A recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory<'a> {
    /// Its id, unique in its file.
    pub run_id: Text<'a>,
    /// Where it was read.
    pub origin: Origin,
    /// The task: runs of one task have the same, whatever the model or the trial.
    pub task_id: Option<Text<'a>>,
    /// Which attempt at the task it is.
    pub trial: Option<Text<'a>>,
    /// The model.
    pub model: Option<Text<'a>>,
    /// The agent, or its scaffold.
    pub agent: Option<Text<'a>>,
    /// The agent's version.
    pub agent_version: Option<Text<'a>>,
    /// Whether it succeeded, as far as anybody says.
    pub recorded: Recorded,
    /// How it ended, as the recording says.
    pub ending: Option<Ending<'a>>,
    /// The limits that were configured, under the names they had.
    pub limits: Map<String, Value>,
    /// What it used as a whole, where the recording says so.
    pub totals: Totals,
    /// More that is known of it: a gold answer, the step of the mistake, results of tests.
    pub labels: Labels,
    /// Marks: `summary_only`, `single_turn`, `no_results` …
    pub tags: Vec<Text<'a>>,
    /// The tools that the model had, as the recording defines them.
    pub tools: Vec<Value>,
    /// What was said and done, in order.
    pub steps: Vec<Step<'a>>,
    /// Runs that it started: agents of its own.
    pub children: Vec<Trajectory<'a>>,
    /// What is odd about the recording: a result without a call, steps out of order. One line each.
    pub notes: Vec<String>,
    /// What no other field holds.
    pub extra: Map<String, Value>,
}

/// More that is known of a run.
pub type Labels = Map<String, Value>;

/// Where a run was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The format's name.
    pub format: &'static str,
    /// The file; `-` for standard input.
    pub file: String,
    /// The line, or the element of a list, from 1; `None`: the file is the run.
    pub at: Option<u64>,
}

/// Whether a run succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Its reward.
    pub reward: Option<f64>,
    /// Whether it succeeded; `None`: nobody says.
    pub success: Option<bool>,
}

/// How a recorded run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending<'a> {
    /// Why, in the words of neutral-traj/1: `final`, `agent_submit`, `user_stop`, `handoff`,
    /// `max_steps`, `max_turns`, `reward_threshold`, `plan_end`, `timeout`, `cost_limit`,
    /// `context_overflow`, `output_length`, `provider_error`, `agent_error`, `harness_error`,
    /// `verifier_timeout`, `verifier_error`, `unknown`; ours also `cancelled`, `token_limit`.
    pub reason: Text<'a>,
    /// The recorder's own word for it.
    pub native: Option<Text<'a>>,
    /// How the harness says that it failed.
    pub failure_mode: Option<Text<'a>>,
    /// The answer that it ended with.
    pub answer: Option<Text<'a>>,
}

/// What a run used as a whole.
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
    /// The others, under the names they had.
    pub extra: Map<String, Value>,
}

/// Who speaks in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Instructions.
    System,
    /// A person, a simulated one, or the harness in their place.
    User,
    /// The model, with what its tools answered: a turn.
    #[default]
    Agent,
}

/// What was said or done at once: a message, or a turn of the model with the results of its calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step<'a> {
    /// Who.
    pub role: Role,
    /// What was said; may be empty.
    pub text: Text<'a>,
    /// Reasoning that was shown.
    pub reasoning: Option<Text<'a>>,
    /// The calls that the model asked for, in order.
    pub calls: Vec<Call<'a>>,
    /// What they gave, in order.
    pub results: Vec<CallResult<'a>>,
    /// What the model call used.
    pub usage: Option<Box<Usage>>,
    /// What the step cost, in US dollars.
    pub cost_usd: Option<f64>,
    /// The reward after the step.
    pub reward: Option<f64>,
    /// When, as ISO 8601.
    pub at: Option<Text<'a>>,
    /// Why the model stopped, in the provider's word.
    pub finish_reason: Option<Text<'a>>,
    /// Which agent, where there are several.
    pub agent: Option<Text<'a>>,
    /// Which model, where it is said for the step.
    pub model: Option<Text<'a>>,
    /// It repeats a step of an earlier recording (context carried over): no step of this run.
    pub copied: bool,
    /// What no other field holds.
    pub extra: Option<Box<Map<String, Value>>>,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call<'a> {
    /// Its id, where it has one.
    pub id: Option<Text<'a>>,
    /// The tool.
    pub name: Text<'a>,
    /// The arguments: always JSON, an object, or a string where they were no object.
    pub arguments: Text<'a>,
    /// What no other field holds.
    pub extra: Option<Box<Map<String, Value>>>,
}

/// What a tool call gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallResult<'a> {
    /// The call; `None`: it is not said which.
    pub call_id: Option<Text<'a>>,
    /// What the model was told.
    pub content: Text<'a>,
    /// Whether it is a failure.
    pub is_error: bool,
    /// The exit code, where a process was run.
    pub exit_code: Option<i64>,
    /// What no other field holds.
    pub extra: Option<Box<Map<String, Value>>>,
}

/// What a model call used, in tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Input, cached tokens included.
    pub prompt_tokens: Option<u64>,
    /// Generated, reasoning included.
    pub completion_tokens: Option<u64>,
    /// Of the input, read from a cache.
    pub cached_tokens: Option<u64>,
    /// Of the input, written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Of the generated, reasoning.
    pub reasoning_tokens: Option<u64>,
    /// The others, under the names they had.
    pub extra: Map<String, Value>,
}

impl<'a> Trajectory<'a> {
    /// A run without steps.
    pub fn new(run_id: impl Into<Text<'a>>) -> Trajectory<'a> {
        Trajectory { run_id: run_id.into(), ..Trajectory::default() }
    }

    /// Its turns: the agent's steps, those copied from an earlier recording left out.
    pub fn turns(&self) -> impl Iterator<Item = &Step<'a>> {
        self.steps.iter().filter(|step| step.is_turn())
    }

    /// Whether it has this tag.
    pub fn is_tagged(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }

    /// Whether its format does not say what tools gave (the tag `no_results`): a rule that looks at
    /// results cannot judge it.
    pub fn lacks_results(&self) -> bool {
        self.is_tagged("no_results")
    }

    /// The same, without a borrow.
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
            answer: self.answer.map(owned),
        }
    }
}

impl<'a> Step<'a> {
    /// The result of its call at this place: by the call's id, else by its place.
    pub fn result_of(&self, nth: usize) -> Option<&CallResult<'a>> {
        let call = self.calls.get(nth)?;
        let named = call
            .id
            .as_ref()
            .and_then(|id| self.results.iter().find(|result| result.call_id.as_ref() == Some(id)));
        named.or_else(|| self.results.get(nth).filter(|result| result.call_id.is_none()))
    }

    /// An empty step.
    pub fn new(role: Role) -> Step<'static> {
        Step { role, ..Step::default() }
    }

    /// The tokens of its model call, input and generated, where it says both.
    pub fn tokens(&self) -> Option<u64> {
        let usage = self.usage.as_deref()?;
        Some(usage.prompt_tokens?.saturating_add(usage.completion_tokens?))
    }

    /// Whether it is a turn of the run.
    pub fn is_turn(&self) -> bool {
        self.role == Role::Agent && !self.copied
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
