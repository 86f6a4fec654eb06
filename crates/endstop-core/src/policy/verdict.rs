//! The vocabulary of policies: a step, a verdict about it, the trait of a policy, a policy of any type,
//! and the failure of one that is not written in Rust.
//!
//! ```
//! use endstop_core::policy::PolicyFault;
//! let fault = PolicyFault { evidence: "ValueError: no".into(), diagnostic: "Traceback …".into() };
//! let unwound = std::panic::catch_unwind(|| fault.raise()).unwrap_err();
//! assert_eq!(unwound.downcast_ref::<PolicyFault>().unwrap().evidence, "ValueError: no");
//! ```

use crate::run_data::RunData;
use crate::termination::Termination;
use crate::usage::{NanoUsd, optional_usd};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::panic::resume_unwind;

/// The outcome of one step; in a live run, one turn with its tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Kind of the step: `message`, `final` (the `finish` tool was called), `tool`, or `code` (a
    /// tool that runs code). Recorded runs may contain other kinds. Comparisons are exact.
    pub action_type: String,
    /// `true` if the step succeeded.
    pub success: bool,
    /// Text of the step; `None` (no text) and a blank string are different values.
    pub output: Option<String>,
    /// Metadata of the step; the `confidence` policy reads its number from here.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Tool calls of the step, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<StepCall>,
    /// Outputs of the step's own code, in call order. In a live run these are the results of successful
    /// calls of tools that the caller marks as code; what other tools return is data, which is in
    /// [`calls`](Self::calls). A recorded step has the single [`output`](Self::output).
    #[serde(default)]
    pub outputs: Vec<StepOutput>,
}

/// A tool call of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCall {
    /// The tool's name.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
    /// `true` if the call succeeded; `None` if its result is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// The result of the call, for the model. It is data: a file or a page may say anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// The output of one tool of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// `tool`, or `code` for a tool that runs code.
    pub action_type: String,
    /// The tool's name.
    pub name: String,
    /// `true` if the call succeeded.
    pub success: bool,
    /// Text that the tool returned.
    pub output: String,
}

/// The state of the run around a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepContext {
    /// The run's task.
    pub task: String,
    /// Number of turns completed before this one (0-based).
    pub step: i64,
    /// Named values, set by tools or by the caller; `FINAL_VAR(name)` reads them.
    pub variables: Map<String, Value>,
    /// Measurements; the `reward_threshold` policy reads `last_reward` from here.
    pub metrics: Map<String, Value>,
    /// Cost of the run so far, if the price of the model is known. `cost_usd` in JSON, a number of
    /// US dollars.
    #[serde(
        rename = "cost_usd",
        with = "optional_usd",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cost: Option<NanoUsd>,
    /// `true` if a message that the model did not write arrived since the previous step.
    #[serde(default, skip_serializing_if = "is_false")]
    pub message_arrived: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// The terminations that a policy may choose.
// A closed list, because a policy must not report, for example, a cancel or a provider error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PolicyEnd {
    /// The model declared its answer.
    #[serde(rename = "submitted")]
    Submitted,
    /// The run makes no progress.
    #[serde(rename = "error_no_progress")]
    NoProgress,
    /// The run gave up after too many consecutive failures.
    #[serde(rename = "error_consecutive_mistakes")]
    ConsecutiveMistakes,
    /// The run reached a limit that a rule sets, for example on its steps or its cost.
    #[serde(rename = "error_halted")]
    Halted,
}

impl StepResult {
    /// Iterates over the results of the step's tools: the tool's name, the text, and `true` if the call
    /// succeeded. A step without results of its calls has its [`outputs`](Self::outputs).
    pub(crate) fn results(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let known = self.calls.iter().filter_map(|call| {
            Some((call.name.as_str(), call.result.as_deref().unwrap_or_default(), call.success?))
        });
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|o| (o.name.as_str(), o.output.as_str(), o.success));
        let unknown = self.calls.iter().all(|call| call.success.is_none());
        known.chain(outputs.filter(move |_| unknown))
    }
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
    /// Termination that the run ends with.
    pub ends_as: PolicyEnd,
    /// The answer as text, if there is one.
    pub answer: Option<String>,
    /// The answer as a JSON value if it is more than a string (`SUBMIT(…)` gives an object).
    pub deliverable: Option<Value>,
    /// Name of the policy that decided; in a composite, the deciding member.
    pub policy: String,
    /// The reason, for a person to read.
    pub evidence: String,
}

impl Stop {
    /// Creates a stop that ends the run as `submitted`, without an answer yet.
    pub fn submitted(policy: impl Into<String>, evidence: impl Into<String>) -> Stop {
        Stop {
            ends_as: PolicyEnd::Submitted,
            answer: None,
            deliverable: None,
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

    /// Returns the JSON value of the answer if there is one, else its text.
    pub fn deliverable(&self) -> Option<Value> {
        // The value comes first, because the text may be only one field of it.
        self.deliverable.clone().or_else(|| self.answer.clone().map(Value::String))
    }
}

/// The decision of a policy about one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Verdict {
    /// Continue the run.
    Continue,
    /// Continue, and send the model a message, for example about an unknown name in `FINAL_VAR`.
    Tell(String),
    /// Stop the run.
    Stop(Stop),
}

/// [`Verdict`] for Endstop's own crates, which are released together: they match all variants, so that a
/// new one does not compile until each of them handles it. Not part of the interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum ClosedVerdict<'a> {
    Continue,
    Tell(&'a str),
    Stop(&'a Stop),
}

impl Verdict {
    /// Returns the variant as a closed enum.
    #[doc(hidden)]
    pub fn closed(&self) -> ClosedVerdict<'_> {
        match self {
            Verdict::Continue => ClosedVerdict::Continue,
            Verdict::Tell(message) => ClosedVerdict::Tell(message),
            Verdict::Stop(stop) => ClosedVerdict::Stop(stop),
        }
    }

    /// Returns the stop if the verdict is one.
    pub fn stop(&self) -> Option<&Stop> {
        if let Verdict::Stop(stop) = self { Some(stop) } else { None }
    }

    /// Returns the message for the model if the verdict has one.
    pub fn message(&self) -> Option<&str> {
        if let Verdict::Tell(message) = self { Some(message) } else { None }
    }
}

/// Decides after each step if the run stops.
///
/// The kernel calls [`begin_turn`](Self::begin_turn) before each attempt at a turn,
/// [`on_delta`](Self::on_delta) with each chunk of its visible text, and
/// [`should_terminate`](Self::should_terminate) once per turn, after its tools.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a termination policy",
    note = "implement `name`, `should_terminate` and `reset`; the crate's `policy` module shows a policy of ten lines"
)]
pub trait TerminationPolicy: ClonePolicy + Send {
    /// Returns the name that configuration and outcomes use.
    fn name(&self) -> &str;

    /// Returns a one-line description.
    #[expect(
        clippy::unnecessary_literal_bound,
        reason = "implementations may keep theirs in a field"
    )]
    fn description(&self) -> &str {
        ""
    }

    /// Returns the configuration that applies if nothing is configured.
    fn default_config(&self) -> Value {
        Value::Object(Map::new())
    }

    /// Returns the specification that this policy was built from
    /// ([`Registry::build`](crate::Registry::build)), or `None`
    /// if code built it. The journal stores it so that a resumed run can rebuild the policy.
    fn specification(&self) -> Option<Value> {
        None
    }

    /// Returns the data that the policy cannot do without and that a recorded run may lack. A
    /// backtest skips the policy on runs that lack it, because there it could never stop a run.
    fn needs(&self) -> Vec<RunData> {
        Vec::new()
    }

    /// Decides about a completed step.
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict;

    /// Discards the text read by [`on_delta`](Self::on_delta). Called before each turn, and before every
    /// further attempt at it.
    fn begin_turn(&mut self) {}

    /// Reads the next chunk of the turn's visible text; `Some` aborts the generation.
    ///
    /// The result must not depend on how the text is split, because chunk boundaries are chosen by
    /// the provider and the network. The total work must be linear in the text.
    fn on_delta(&mut self, _piece: &str, _context: &StepContext) -> Option<Stop> {
        None
    }

    /// Decides what [`on_delta`](Self::on_delta) had to leave open because more text could have changed it.
    /// The kernel calls this when the text is complete and before the tools run; `Some` ends the
    /// turn before its tools.
    fn on_text_complete(&mut self, _text: &str, _context: &StepContext) -> Option<Stop> {
        None
    }

    /// Prepares the policy to be a member of one that needs several members to agree. A policy with
    /// a built-in alternative switches it off (the fallback of `confidence`), because otherwise it
    /// would agree with another member for that member's reason.
    fn join_all(&mut self) {}

    /// Resets all state. The kernel calls this before each run.
    fn reset(&mut self);
}

/// Copies a policy of any type. Every policy that is [`Clone`] implements it.
#[diagnostic::on_unimplemented(
    message = "the policy `{Self}` cannot be copied",
    note = "derive `Clone`: each run of an agent works on its own copy of the policy"
)]
pub trait ClonePolicy {
    /// Returns a copy, with the state that the policy has now.
    fn clone_policy(&self) -> Box<dyn TerminationPolicy>;
}

impl<T: TerminationPolicy + Clone + 'static> ClonePolicy for T {
    fn clone_policy(&self) -> Box<dyn TerminationPolicy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn TerminationPolicy> {
    fn clone(&self) -> Self {
        (**self).clone_policy()
    }
}

/// Prints only the name, because implementations need not be `Debug`.
impl fmt::Debug for dyn TerminationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The failure of a policy in another language, such as an exception. It ends the run as
/// `error_during_execution`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    /// The failure in one line, for the evidence of the outcome.
    pub evidence: String,
    /// Details, for example a traceback, for the diagnostic of the outcome.
    pub diagnostic: String,
}

impl PolicyFault {
    /// Leaves the policy with this failure. The kernel catches it as it catches a panic of a policy
    /// in Rust, but nothing is printed.
    pub fn raise(self) -> ! {
        // Not `panic_any`, which would call the panic hook.
        resume_unwind(Box::new(self))
    }
}

/// A boxed policy with the operators `|`, `&` and `!`.
#[derive(Clone)]
pub struct BoxPolicy(Box<dyn TerminationPolicy>);

impl BoxPolicy {
    /// Boxes a policy.
    pub fn new(policy: impl TerminationPolicy + 'static) -> BoxPolicy {
        BoxPolicy(Box::new(policy))
    }

    /// Returns the boxed policy.
    pub fn into_inner(self) -> Box<dyn TerminationPolicy> {
        self.0
    }
}

impl From<Box<dyn TerminationPolicy>> for BoxPolicy {
    fn from(inner: Box<dyn TerminationPolicy>) -> BoxPolicy {
        BoxPolicy(inner)
    }
}

impl fmt::Debug for BoxPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoxPolicy").field(&self.0.name()).finish()
    }
}

impl TerminationPolicy for BoxPolicy {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn default_config(&self) -> Value {
        self.0.default_config()
    }
    fn specification(&self) -> Option<Value> {
        self.0.specification()
    }
    fn needs(&self) -> Vec<RunData> {
        self.0.needs()
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        self.0.should_terminate(step, context)
    }
    fn begin_turn(&mut self) {
        self.0.begin_turn();
    }
    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        self.0.on_delta(piece, context)
    }
    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        self.0.on_text_complete(text, context)
    }
    fn join_all(&mut self) {
        self.0.join_all();
    }
    fn reset(&mut self) {
        self.0.reset();
    }
}
