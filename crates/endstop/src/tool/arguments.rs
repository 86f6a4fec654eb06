//! Reads the arguments of a call.
//!
//! ```text
//! let path = text_argument(&arguments, "path")?; // the error is the output of the call
//! ```

use super::output::ToolOutput;
use serde_json::{Map, Value};

/// Returns a required string argument.
pub(crate) fn text_argument<'a>(
    arguments: &'a Map<String, Value>,
    name: &str,
) -> Result<&'a str, ToolOutput> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ToolOutput::error(format!("the argument `{name}` must be a string"))),
        None => Err(ToolOutput::error(format!("the argument `{name}` is missing"))),
    }
}

/// Returns an optional whole number of at least 1.
pub(super) fn count_argument(
    arguments: &Map<String, Value>,
    name: &str,
) -> Result<Option<u64>, ToolOutput> {
    match arguments.get(name) {
        // Some models send `null` for an argument that they want to omit.
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(count) if count > 0 => Ok(Some(count)),
            _ => {
                let problem = format!("the argument `{name}` must be a whole number, 1 or greater");
                Err(ToolOutput::error(problem))
            }
        },
    }
}

/// Checks the argument with which the model requests a time limit.
pub(super) fn seconds_argument(
    arguments: &Map<String, Value>,
    name: &str,
) -> Result<(), ToolOutput> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_f64().is_some_and(|seconds| seconds > 0.0) => Ok(()),
        Some(_) => {
            let problem = format!("the argument `{name}` must be a number of seconds above 0");
            Err(ToolOutput::error(problem))
        }
    }
}
