//! The result of a tool call.
//!
//! ```
//! use endstop::tool::{Json, ToolOutput};
//! assert_eq!(ToolOutput::from("42"), ToolOutput::ok("42"));
//! assert!(ToolOutput::error("no such file").is_error());
//! assert_eq!(ToolOutput::from(Json([1, 2])).content, "[1,2]");
//! ```

use super::error::ToolError;
use super::finite;
use endstop_core::{ToolReport, ToolStatus};
use serde::Serialize;
use std::any::Any;
use std::borrow::Cow;
use std::fmt;

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text for the model.
    pub content: String,
    /// The status of the call: `Ok`, `Error`, `Denied` or `Timeout`.
    pub status: ToolStatus,
    /// The reason to halt the run, if it must halt.
    pub halt: Option<String>,
    /// `true` if compaction must not change the result.
    pub pinned: bool,
}

impl Default for ToolOutput {
    /// An empty success.
    fn default() -> ToolOutput {
        ToolOutput { content: String::new(), status: ToolStatus::Ok, halt: None, pinned: false }
    }
}

impl ToolOutput {
    /// Creates the result of a successful call.
    #[doc(alias = "text")]
    pub fn ok(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), ..ToolOutput::default() }
    }

    /// Creates the result of a failed call; the model receives the message.
    #[doc(alias = "err")]
    pub fn error(content: impl Into<String>) -> ToolOutput {
        ToolOutput { status: ToolStatus::Error, ..ToolOutput::ok(content) }
    }

    /// Creates a result that halts the run.
    pub fn halt(reason: impl Into<String>) -> ToolOutput {
        let reason = reason.into();
        ToolOutput { halt: Some(reason.clone()), ..ToolOutput::ok(reason) }
    }

    /// Creates a successful result with the JSON of a value.
    ///
    /// # Errors
    /// JSON cannot express the value: a number is NaN or infinite, or a map has keys other than
    /// strings and numbers.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<ToolOutput, ToolError> {
        // serde_json would write `null` for NaN, which the model would take for a missing value.
        finite::check(value)?;
        Ok(ToolOutput::ok(serde_json::to_string(value)?))
    }

    /// `true` if the call failed, was denied or timed out.
    pub fn is_error(&self) -> bool {
        self.status.is_error()
    }

    /// Pins the result: compaction neither drops nor changes it.
    #[must_use]
    pub fn pin(mut self) -> ToolOutput {
        self.pinned = true;
        self
    }

    /// Returns the report for the kernel. `stopped` is `true` if the call was asked to stop.
    pub(crate) fn into_report(self, stopped: bool) -> ToolReport {
        // A tool that finished its work despite the stop keeps its result.
        let status = if stopped && self.is_error() { ToolStatus::Aborted } else { self.status };
        ToolReport { halt: self.halt, pinned: self.pinned, ..ToolReport::new(status, self.content) }
    }
}

/// A value whose JSON is the output of a tool.
///
/// ```
/// use endstop::tool::{Json, tool_fn};
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// #[derive(Deserialize, JsonSchema)]
/// struct Lookup { city: String }
/// #[derive(Serialize)]
/// struct Weather { celsius: f64, rain: bool }
///
/// let weather = tool_fn("weather", "Returns the weather.", |args: Lookup, _| async move {
///     Json(Weather { celsius: 21.5, rain: args.city == "Bergen" })
/// });
/// # let _ = weather;
/// ```
///
/// A value that JSON cannot express, such as NaN, becomes an error for the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(
    /// The value, which the model receives as JSON.
    pub T,
);

/// Types that the closure of a tool may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a tool",
    label = "not an output of a tool",
    note = "return a string, a `ToolOutput`, `Json(value)` for any `value: Serialize`, or a `Result` of one of these",
    note = "for a closure with `?`, use `endstop::tool::try_tool_fn`, whose error type is `ToolError`"
)]
pub trait IntoToolOutput {
    /// Converts the value.
    fn into_tool_output(self) -> ToolOutput;
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> ToolOutput {
        self
    }
}

impl IntoToolOutput for ToolError {
    fn into_tool_output(self) -> ToolOutput {
        self.into()
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok(self)
    }
}

impl IntoToolOutput for &str {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok(self)
    }
}

impl IntoToolOutput for Cow<'_, str> {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok(self)
    }
}

/// A tool that returns nothing says `done`, because some providers reject an empty result.
impl IntoToolOutput for () {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::ok("done")
    }
}

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> ToolOutput {
        ToolOutput::json(&self.0).unwrap_or_else(ToolOutput::from)
    }
}

/// An error may be any type that can be displayed; a [`ToolError`] keeps its variant.
impl<T: IntoToolOutput, E: fmt::Display + 'static> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> ToolOutput {
        match self {
            Ok(output) => output.into_tool_output(),
            Err(error) => of_error(error),
        }
    }
}

/// Returns the output for an error of any type. One implementation for all types cannot treat
/// [`ToolError`] differently at compile time, so this asks for the type at run time.
fn of_error<E: fmt::Display + 'static>(error: E) -> ToolOutput {
    let mut error = Some(error);
    let own = (&mut error as &mut dyn Any).downcast_mut::<Option<ToolError>>();
    match own.and_then(Option::take) {
        Some(own) => own.into(),
        None => ToolOutput::error(error.map(|error| error.to_string()).unwrap_or_default()),
    }
}

impl From<String> for ToolOutput {
    fn from(content: String) -> ToolOutput {
        ToolOutput::ok(content)
    }
}

impl From<&str> for ToolOutput {
    fn from(content: &str) -> ToolOutput {
        ToolOutput::ok(content)
    }
}

impl From<ToolError> for ToolOutput {
    fn from(error: ToolError) -> ToolOutput {
        match error {
            ToolError::Failed(message) => ToolOutput::error(message),
            ToolError::Denied(message) => {
                ToolOutput { status: ToolStatus::Denied, ..ToolOutput::ok(message) }
            }
            ToolError::Timeout(message) => {
                ToolOutput { status: ToolStatus::Timeout, ..ToolOutput::ok(message) }
            }
            ToolError::Halt(reason) => ToolOutput::halt(reason),
        }
    }
}

impl<T: Serialize> From<Json<T>> for ToolOutput {
    fn from(value: Json<T>) -> ToolOutput {
        value.into_tool_output()
    }
}

impl<T: IntoToolOutput, E: fmt::Display + 'static> From<Result<T, E>> for ToolOutput {
    fn from(result: Result<T, E>) -> ToolOutput {
        result.into_tool_output()
    }
}
