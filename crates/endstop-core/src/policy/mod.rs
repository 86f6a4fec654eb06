//! Termination policies: whether a run should stop after a step, or in the middle of one.
//!
//! A policy sees each step once. It may also look at the text while it is generated
//! ([`TerminationPolicy::look`]); a stop there aborts the generation. It is `reset` between runs.
//!
//! ```
//! use endstop_core::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
//!
//! /// Stops as soon as a step says DONE.
//! struct Done;
//! impl TerminationPolicy for Done {
//!     fn name(&self) -> &str { "done" }
//!     fn should_terminate(&mut self, step: &StepResult, _: &StepContext) -> Verdict {
//!         if step.output.as_deref().is_some_and(|o| o.contains("DONE")) {
//!             Verdict::Stop(Stop::submitted("done", "the text says DONE").answer("DONE"))
//!         } else {
//!             Verdict::Continue
//!         }
//!     }
//!     fn reset(&mut self) {}
//! }
//! ```
//!
//! Source: RLM Code's termination policies.

mod combinators;
mod composite;
mod confidence;
pub(crate) mod config;
pub mod final_pattern;
mod registry;
mod reward_threshold;

pub use combinators::{Policy, k_of};
pub use composite::Composite;
pub use confidence::Confident;
pub use config::PolicyError;
pub use final_pattern::FinalPattern;
pub use registry::{PolicyInfo, Registry};
pub use reward_threshold::RewardThreshold;

use crate::termination::Termination;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// What a step did: in a live run, one turn with its tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// `message`, `final` (the `finish` tool was called), `tool`, `code` (a tool that runs code);
    /// recorded runs may hold others. The comparison is exact.
    pub action_type: String,
    /// Whether the step succeeded.
    pub success: bool,
    /// The step's text; `None` and blank are kept apart.
    pub output: Option<String>,
    /// What is known of the step; `confidence` is read here.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// The calls that the step made, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<StepCall>,
    /// What the step's tools printed, in call order (live runs; a recorded step has its one output).
    #[serde(default)]
    pub outputs: Vec<ToolOutput>,
}

/// A call that a step made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCall {
    /// The tool's name.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
}

/// What one tool of a step printed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// `tool`, or `code` for a tool that runs code.
    pub action_type: String,
    /// The tool's name.
    pub name: String,
    /// Whether it succeeded.
    pub success: bool,
    /// What it printed.
    pub output: String,
}

/// What surrounds a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepContext {
    /// The run's task.
    pub task: String,
    /// Turns completed before this one (0-based).
    pub step: i64,
    /// Named values, set by tools or the caller; `FINAL_VAR(name)` looks here.
    pub variables: Map<String, Value>,
    /// Measurements; `last_reward` is read here.
    pub metrics: Map<String, Value>,
    /// What the run has cost up to here, in US dollars, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Whether somebody but the model spoke since the step before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub somebody_spoke: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// How a policy may end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PolicyEnd {
    /// The answer was declared.
    #[serde(rename = "submitted")]
    Submitted,
    /// Stuck.
    #[serde(rename = "error_no_progress")]
    NoProgress,
    /// Given up after too many failures.
    #[serde(rename = "error_consecutive_mistakes")]
    ConsecutiveMistakes,
    /// Halted.
    #[serde(rename = "error_halted")]
    Halted,
}

impl From<PolicyEnd> for Termination {
    fn from(end: PolicyEnd) -> Termination {
        match end {
            PolicyEnd::Submitted => Termination::Submitted,
            PolicyEnd::NoProgress => Termination::ErrorNoProgress,
            PolicyEnd::ConsecutiveMistakes => Termination::ErrorConsecutiveMistakes,
            PolicyEnd::Halted => Termination::ErrorHalted,
        }
    }
}

/// A policy's decision to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// How the run ends.
    pub ends_as: PolicyEnd,
    /// The answer as text, where there is one.
    pub answer: Option<String>,
    /// The answer as a value, where it is more than its text (`SUBMIT(…)` gives an object).
    pub deliverable: Option<Value>,
    /// The answer if neither the policy nor the run has another one: the result of the tool that
    /// `tool_called` waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The policy that decided; the deciding member of a composite.
    pub policy: String,
    /// Why, for a person to read.
    pub evidence: String,
}

impl Stop {
    /// A stop as `submitted`, without an answer yet.
    pub fn submitted(policy: impl Into<String>, evidence: impl Into<String>) -> Stop {
        Stop {
            ends_as: PolicyEnd::Submitted,
            answer: None,
            deliverable: None,
            fallback: None,
            policy: policy.into(),
            evidence: evidence.into(),
        }
    }

    /// Sets the answer.
    #[must_use]
    pub fn answer(mut self, answer: impl Into<String>) -> Stop {
        self.answer = Some(answer.into());
        self
    }

    /// Sets the answer that counts if there is no other.
    #[must_use]
    pub fn or_else(mut self, fallback: Option<String>) -> Stop {
        self.fallback = fallback;
        self
    }

    /// The deliverable: the value where there is one, else the answer's text.
    pub fn deliverable(&self) -> Option<Value> {
        self.deliverable.clone().or_else(|| self.answer.clone().map(Value::String))
    }
}

/// What a policy says of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Go on, and tell the model something (an unknown name in `FINAL_VAR`, say).
    Tell(String),
    /// Stop.
    Stop(Stop),
}

impl Verdict {
    /// The decision to stop, where it is one.
    pub fn stop(&self) -> Option<&Stop> {
        if let Verdict::Stop(stop) = self { Some(stop) } else { None }
    }
}

/// Decides whether a run should stop.
///
/// The kernel calls [`begin_turn`](Self::begin_turn) before each attempt at a turn,
/// [`look`](Self::look) with each piece of its visible text as it comes, and
/// [`should_terminate`](Self::should_terminate) once a turn, after its tools.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a termination policy",
    note = "implement `name`, `should_terminate` and `reset`; the crate's `policy` module shows a policy of ten lines"
)]
pub trait TerminationPolicy: Send {
    /// Its name, as configuration and outcomes spell it.
    fn name(&self) -> &str;

    /// One line for a person.
    #[expect(
        clippy::unnecessary_literal_bound,
        reason = "implementations may keep theirs in a field"
    )]
    fn description(&self) -> &str {
        ""
    }

    /// The configuration that it has where nothing is configured.
    fn default_config(&self) -> Value {
        Value::Object(Map::new())
    }

    /// How configuration spells it, where it came from there ([`Registry::build`]): what a journal
    /// keeps of it, to make it again.
    fn specification(&self) -> Option<Value> {
        None
    }

    /// Judges a step.
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict;

    /// A turn (or another attempt at it) begins: forget text seen by [`look`](Self::look).
    fn begin_turn(&mut self) {}

    /// Looks at the next piece of the turn's visible text; `Some` aborts the generation.
    ///
    /// However the text is cut into pieces, the answer must be the same, and the total work
    /// linear in the text.
    fn look(&mut self, _piece: &str, _context: &StepContext) -> Option<Stop> {
        None
    }

    /// The turn's text is whole, and tools are about to run: decide now what more text could have
    /// changed in [`look`](Self::look). `Some` ends the turn before its tools.
    fn look_at_end(&mut self, _text: &str, _context: &StepContext) -> Option<Stop> {
        None
    }

    /// It became a member of a policy that needs several to agree: switch off what would make it
    /// agree with another member's reasons (the fallback of `confidence`).
    fn join_all(&mut self) {}

    /// A run begins: forget everything.
    fn reset(&mut self);
}

/// By name: what is in it is its own.
impl fmt::Debug for dyn TerminationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
