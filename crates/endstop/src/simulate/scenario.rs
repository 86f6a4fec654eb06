//! The scenario of a simulation: scripted turns of the model, tool results, hooks and
//! interruptions, with their times.

use endstop_core::{ErrorClass, Limits};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A scenario in the format that `endstop simulate` reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(default)]
    pub(super) limits: Map<String, Value>,
    #[serde(default)]
    pub(super) policy: Option<Value>,
    #[serde(default)]
    pub(super) tools: std::collections::BTreeMap<String, ScriptedTool>,
    #[serde(default)]
    pub(super) denied: Vec<String>,
    #[serde(default = "yes")]
    pub(super) finish_tool: bool,
    #[serde(default)]
    pub(super) hooks: ScriptedHooks,
    #[serde(default)]
    pub(super) early_halt: Option<String>,
    #[serde(default)]
    pub(super) compaction: ScriptedCompaction,
    #[serde(default = "default_window")]
    pub(super) context_window: u64,
    #[serde(default = "default_prompt")]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) output_schema: Option<Value>,
    /// The verdicts on the answers, in order; the last one repeats.
    #[serde(default)]
    pub(super) verdicts: Vec<ScriptedVerdict>,
    pub(super) turns: Vec<ScriptedTurn>,
    #[serde(default)]
    pub(super) repeat_last: bool,
    #[serde(default)]
    pub(super) at: Vec<Interruption>,
}

/// A verdict of the verifier.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedVerdict {
    pub(super) passed: bool,
    #[serde(default)]
    pub(super) output: String,
    #[serde(default)]
    pub(super) duration_ms: u64,
}

fn yes() -> bool {
    true
}
fn default_window() -> u64 {
    128_000
}
fn default_prompt() -> u64 {
    10
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedTool {
    #[serde(default)]
    pub(super) parallel_safe: bool,
    #[serde(default)]
    pub(super) result: Option<Value>,
    #[serde(default)]
    pub(super) results: Vec<Value>,
    #[serde(default)]
    pub(super) kind: ToolKind,
    #[serde(default)]
    pub(super) duration_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolKind {
    #[default]
    Ok,
    Error,
    Halt,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedHooks {
    #[serde(default, rename = "PreIteration")]
    pub(super) pre_iteration: Option<ScriptedHalt>,
    #[serde(default, rename = "ChatParams")]
    pub(super) chat_params: Option<ScriptedHalt>,
    #[serde(default, rename = "PreToolUse")]
    pub(super) pre_tool: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedHalt {
    #[serde(default)]
    pub(super) at: Option<u32>,
    #[serde(default)]
    pub(super) when_unproductive: Option<u32>,
    pub(super) halt: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedCompaction {
    #[serde(default = "yes")]
    pub(super) reactive: bool,
    #[serde(default)]
    pub(super) force_fails: bool,
    #[serde(default)]
    pub(super) proactive_fails_at: Option<u32>,
}

impl Default for ScriptedCompaction {
    fn default() -> ScriptedCompaction {
        ScriptedCompaction { reactive: true, force_fails: false, proactive_fails_at: None }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedTurn {
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Vec<ScriptedCall>,
    #[serde(default)]
    pub(super) cost: Option<f64>,
    #[serde(default)]
    pub(super) input_tokens: Option<u64>,
    #[serde(default)]
    pub(super) output_tokens: Option<u64>,
    #[serde(default)]
    pub(super) duration_ms: u64,
    #[serde(default)]
    pub(super) refusal: Option<String>,
    #[serde(default)]
    pub(super) metrics: Map<String, Value>,
    #[serde(default)]
    pub(super) starved: Option<Starved>,
    /// The finish value. If absent, the value that fits the content; `null` means that the stream
    /// closed without one.
    #[serde(default, deserialize_with = "present")]
    #[expect(clippy::option_option, reason = "an absent key differs from `null`")]
    pub(super) finish: Option<Option<String>>,
    #[serde(default)]
    pub(super) error: Option<ScriptedError>,
    #[serde(default)]
    pub(super) retry_after_ms: Option<u64>,
    #[serde(default)]
    pub(super) unparseable: bool,
}

/// Reads a key that is present: serde would read `null` as an absent key.
#[expect(clippy::option_option, reason = "an absent key differs from `null`")]
fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(d).map(Some)
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedCall {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) args: Value,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Starved {
    #[serde(default)]
    pub(super) completion_cap: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScriptedError {
    Unauthorized,
    Forbidden,
    RateLimited,
    Overloaded,
    ServerError,
    Transport,
    Timeout,
    ContextLengthExceeded,
    BadRequest,
    ModelNotFound,
    InsufficientQuota,
    Other,
}

impl ScriptedError {
    pub(super) fn class(self) -> ErrorClass {
        match self {
            ScriptedError::Unauthorized => ErrorClass::Authentication,
            ScriptedError::Forbidden => ErrorClass::Permission,
            ScriptedError::RateLimited => ErrorClass::RateLimit,
            ScriptedError::Overloaded => ErrorClass::Overloaded,
            ScriptedError::ServerError | ScriptedError::Transport => ErrorClass::ServerError,
            ScriptedError::Timeout => ErrorClass::Timeout,
            ScriptedError::ContextLengthExceeded => ErrorClass::ContextLengthExceeded,
            ScriptedError::BadRequest => ErrorClass::InvalidRequest,
            ScriptedError::ModelNotFound => ErrorClass::NotFound,
            ScriptedError::InsufficientQuota => ErrorClass::QuotaExhausted,
            ScriptedError::Other => ErrorClass::UnknownError,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interruption {
    pub(super) ms: u64,
    #[serde(rename = "do")]
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Cancel,
    Terminate,
}

/// The error of a scenario that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", at(.field))]
pub struct ScenarioError {
    /// Path of the field within the scenario, for example `turns[2].finish`.
    pub field: String,
    /// The reason.
    pub problem: String,
}

/// Returns the start of the message, with the field.
fn at(field: &str) -> String {
    // `serde_path_to_error` writes `.` for the scenario as a whole.
    if field.is_empty() || field == "." { String::new() } else { format!("`{field}`: ") }
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The field that is not valid, with the reason.
    pub fn from_value(value: &Value) -> Result<Scenario, ScenarioError> {
        if !value.is_object() {
            // Serde would accept a list as the fields in their order.
            return Err(ScenarioError {
                field: String::new(),
                problem: "a scenario is an object with at least the key `turns`".to_owned(),
            });
        }
        let scenario: Scenario = serde_path_to_error::deserialize(value).map_err(|e| {
            ScenarioError { field: e.path().to_string(), problem: e.inner().to_string() }
        })?;
        // The limits are checked here and not only when the run begins, so that every mistake in a
        // file is reported by the function that reads it.
        if scenario.limits()?.verify_rounds.is_some() && scenario.verdicts.is_empty() {
            return Err(ScenarioError {
                field: "limits.verify_rounds".to_owned(),
                problem: "it has no effect without a verifier; set `verdicts`, or remove it"
                    .to_owned(),
            });
        }
        let negative = |turn: &ScriptedTurn| turn.cost.is_some_and(|cost| cost < 0.0);
        if let Some(at) = scenario.turns.iter().position(negative) {
            return Err(ScenarioError {
                field: format!("turns[{at}].cost"),
                problem: "expected a number of US dollars, 0 or more".to_owned(),
            });
        }
        Ok(scenario)
    }

    /// Returns the limits: the defaults, overridden by those of the scenario.
    pub(super) fn limits(&self) -> Result<Limits, ScenarioError> {
        // By default retries are limited by elapsed time. In virtual time that passes at once, so a
        // scenario limits their number.
        let mut limits = Limits { max_retries: Some(2), retry_for: None, ..Limits::default() };
        for (key, value) in &self.limits {
            limits.set(key, value).map_err(|e| ScenarioError {
                field: format!("limits.{}", e.key),
                problem: e.problem,
            })?;
        }
        Ok(limits)
    }
}
