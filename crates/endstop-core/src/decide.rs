//! The core of `endstop decide`: reads steps, and writes a policy's verdicts, one JSON object per
//! line.
//!
//! ```
//! use endstop_core::{decide::Decider, Registry};
//! let mut decider = Decider::new(Registry::new().build_text("final_pattern")?);
//! let line = r#"{"result": {"action_type": "message", "success": true,
//!     "output": "FINAL('42')", "metadata": {}}, "context": {"step": 0}}"#;
//! assert_eq!(
//!     decider.line(&line.replace('\n', " ")).unwrap().unwrap().to_string(),
//!     r#"{"terminate":true,"answer":"42","deliverable":"42","ends_as":"submitted","policy":"final_pattern","evidence":"FINAL(…) at byte 0"}"#
//! );
//! # Ok::<(), endstop_core::policy::PolicyError>(())
//! ```

use crate::bounded_json::{self, TooHeavy};
use crate::policy::{
    BoxPolicy, StepCall, StepContext, StepOutput, StepResult, TerminationPolicy, Verdict,
};
use crate::usage::NanoUsd;
use serde_json::{Map, Value, json};
use std::fmt;
use std::str::Utf8Error;

/// The error for an invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: u64,
    /// The invalid field (`result.output`); empty if the line is not a JSON object.
    pub field: String,
    /// Description of the problem.
    pub problem: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if !self.field.is_empty() {
            write!(f, "`{}` ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for LineError {}

/// A parsed line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A step to evaluate.
    Step(Box<StepResult>, Box<StepContext>),
    /// The start of a new run.
    Reset,
}

/// Evaluates one policy line by line.
#[derive(Debug)]
pub struct Decider {
    policy: BoxPolicy,
    lines: u64,
}

impl Decider {
    /// Creates a decider at its first line.
    pub fn new(policy: BoxPolicy) -> Decider {
        Decider { policy, lines: 0 }
    }

    /// Evaluates the next line. Returns the output object, or null for a reset; a blank line
    /// returns nothing.
    pub fn line(&mut self, line: impl AsRef<[u8]>) -> Option<Result<Value, LineError>> {
        self.lines += 1;
        let line = line.as_ref();
        if line.trim_ascii().is_empty() {
            return None;
        }
        Some(parse_line(line, self.lines).map(|line| match line {
            Line::Reset => {
                self.policy.reset();
                Value::Null
            }
            Line::Step(step, context) => {
                // Each line is a complete turn, so the policy's text state starts over.
                self.policy.begin_turn();
                let verdict = self.policy.should_terminate(&step, &context);
                output(&verdict, self.policy.name())
            }
        }))
    }
}

/// Returns the output object of a verdict; `policy` is the name of the evaluated policy.
pub fn output(verdict: &Verdict, policy: &str) -> Value {
    match verdict {
        Verdict::Stop(stop) => json!({
            "terminate": true,
            "answer": stop.answer,
            "deliverable": stop.deliverable(),
            "ends_as": stop.ends_as,
            "policy": stop.policy,
            "evidence": stop.evidence,
        }),
        Verdict::Continue | Verdict::Tell(_) => json!({
            "terminate": false,
            "answer": null,
            "deliverable": null,
            "ends_as": null,
            "policy": policy,
            "evidence": match verdict {
                Verdict::Tell(text) => Some(text),
                _ => None,
            },
        }),
    }
}

/// Parses one line of JSON.
///
/// # Errors
/// The line is not JSON, or needs too much memory.
pub fn parse_json(line: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(line).map_err(JsonError::NotUtf8)?;
    bounded_json::check(line, bounded_json::MOST).map_err(JsonError::TooHeavy)?;
    serde_json::from_str(text).map_err(JsonError::Syntax)
}

/// The reason why a line of JSON cannot be parsed.
#[derive(Debug)]
#[non_exhaustive]
pub enum JsonError {
    /// The line is not UTF-8.
    NotUtf8(Utf8Error),
    /// The values would take too much memory.
    TooHeavy(TooHeavy),
    /// The line is not JSON. The message has the column; the parser's own line number is left out,
    /// because it counts from the start of each line.
    Syntax(serde_json::Error),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonError::NotUtf8(error) => {
                write!(f, "not UTF-8 from byte {} on", error.valid_up_to() + 1)
            }
            JsonError::TooHeavy(error) => error.fmt(f),
            JsonError::Syntax(error) => {
                let whole = error.to_string();
                let place = format!(" at line {} column {}", error.line(), error.column());
                let what = whole.strip_suffix(&place).unwrap_or(&whole);
                write!(f, "not valid JSON: {what} at column {}", error.column())
            }
        }
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            JsonError::NotUtf8(error) => Some(error),
            // The message is that of the inner error.
            JsonError::TooHeavy(error) => error.source(),
            JsonError::Syntax(error) => Some(error),
        }
    }
}

/// Parses an input line; `number` is its number, from 1. Unknown fields are ignored, so that newer
/// producers work. Only `result` is required; a missing `action_type` is `message`.
///
/// # Errors
/// Names the line and the field.
pub fn parse_line(line: impl AsRef<[u8]>, number: u64) -> Result<Line, LineError> {
    let fail =
        |field: &str, problem: String| LineError { line: number, field: field.to_owned(), problem };
    // The display adds the line and the field, so the problem starts with a verb.
    let value = parse_json(line.as_ref()).map_err(|problem| fail("", format!("is {problem}")))?;
    let Value::Object(line) = value else {
        return Err(fail("", "is not a JSON object".to_owned()));
    };
    match line.get("reset") {
        None | Some(Value::Bool(false)) => {}
        Some(Value::Bool(true)) => return Ok(Line::Reset),
        Some(_) => return Err(fail("reset", "must be true".to_owned())),
    }
    let empty = Map::new();
    let Some(result) = line.get("result") else {
        return Err(fail("result", "is missing".to_owned()));
    };
    let result = Fields::of(result, "result", number, &empty)?;
    let context = line.get("context").unwrap_or(&Value::Null);
    let context = Fields::of(context, "context", number, &empty)?;
    let action_type = result.text("action_type")?.unwrap_or_else(|| "message".to_owned());
    let outputs = match result.map.get("outputs") {
        None | Some(Value::Null) => Vec::new(),
        Some(outputs) => serde_json::from_value::<Vec<StepOutput>>(outputs.clone())
            .map_err(|e| fail("result.outputs", format!("is not a list of outputs: {e}")))?,
    };
    let calls = match result.map.get("calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(calls) => calls_of(calls).map_err(|problem| fail("result.calls", problem))?,
    };
    let step = StepResult {
        action_type,
        success: result.flag("success", true)?,
        output: result.text("output")?,
        metadata: result.object("metadata")?,
        calls,
        outputs,
    };
    let context = StepContext {
        task: context.text("task")?.unwrap_or_default(),
        step: context.whole("step")?,
        variables: context.object("variables")?,
        metrics: context.object("metrics")?,
        cost: context.read("cost_usd", "a number", Value::as_f64)?.map(NanoUsd::from_usd),
        message_arrived: context.flag("message_arrived", false)?,
    };
    Ok(Line::Step(Box::new(step), Box::new(context)))
}

/// Parses calls: objects with `name` and `arguments`, and if known the `success` and `result` of the call.
/// The arguments are an object, or a string that contains one, because both forms occur in recorded
/// traces.
fn calls_of(calls: &Value) -> Result<Vec<StepCall>, String> {
    let wanted = "is not a list of calls, each of `name` and `arguments`, with `success` and `result` if they are known";
    let calls = calls.as_array().ok_or(wanted)?;
    let call = |call: &Value| {
        let name = call.get("name")?.as_str()?.to_owned();
        let arguments = match call.get("arguments") {
            None | Some(Value::Null) => "{}".to_owned(),
            // Not parsed here, because a policy also compares arguments that are not valid JSON.
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let success = match call.get("success") {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_bool()?),
        };
        let result = match call.get("result") {
            None | Some(Value::Null) => None,
            Some(value) => Some(value.as_str()?.to_owned()),
        };
        Some(StepCall { name, arguments, success, result })
    };
    calls.iter().map(|one| call(one).ok_or_else(|| wanted.to_owned())).collect()
}

/// An object of a line, read field by field. A null field counts as absent.
struct Fields<'a> {
    name: &'a str,
    line: u64,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn of(
        value: &'a Value,
        name: &'a str,
        line: u64,
        empty: &'a Map<String, Value>,
    ) -> Result<Fields<'a>, LineError> {
        let map = match value {
            Value::Object(map) => map,
            // The context is optional, because simple producers have none.
            Value::Null if name == "context" => empty,
            _ => {
                return Err(LineError {
                    line,
                    field: name.to_owned(),
                    problem: "must be an object".to_owned(),
                });
            }
        };
        Ok(Fields { name, line, map })
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, LineError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| LineError {
                line: self.line,
                field: format!("{}.{key}", self.name),
                problem: format!("must be {expected}"),
            }),
        }
    }

    fn text(&self, key: &str) -> Result<Option<String>, LineError> {
        self.read(key, "a string or null", |v| v.as_str().map(str::to_owned))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, LineError> {
        self.read(key, "true or false", Value::as_bool).map(|b| b.unwrap_or(default))
    }

    fn whole(&self, key: &str) -> Result<i64, LineError> {
        self.read(key, "a whole number", Value::as_i64).map(Option::unwrap_or_default)
    }

    fn object(&self, key: &str) -> Result<Map<String, Value>, LineError> {
        self.read(key, "an object", |v| v.as_object().cloned()).map(Option::unwrap_or_default)
    }
}
