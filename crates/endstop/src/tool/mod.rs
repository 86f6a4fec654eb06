//! Tools: the functions that the model may call.
//!
//! ```
//! use endstop::tool::{ToolOutput, tool_fn};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add { a: f64, b: f64 }
//!
//! let add = tool_fn("add", "Adds two numbers.", |args: Add, _context| async move {
//!     ToolOutput::ok((args.a + args.b).to_string())
//! })
//! .parallel_safe();
//! # let _ = add;
//! ```
//!
//! A tool receives stop requests through its [`ToolContext`]: from a cancel, a terminate or its
//! time limit. Even if the tool ignores them, nothing of it outlives its run: a tool that does not
//! end within the grace period is dropped, and must release what it holds when it is dropped.

mod agent;
mod confine;
mod context;
pub mod finish;
mod function;
mod permissions;
mod read_file;
mod regular;
mod replace;
mod set;
mod shell;
mod write_file;

pub use agent::AgentTool;
pub(crate) use context::Spent;
pub use context::ToolContext;
pub use function::{FunctionTool, tool_fn};
pub use permissions::Permissions;
pub use read_file::ReadFile;
pub use set::{ToolSet, ToolSetError};
pub use shell::Shell;
pub use write_file::WriteFile;

use serde_json::{Map, Value};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The future of a tool's output.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// A function that the model may call.
///
/// [`tool_fn`] makes a tool from a closure. A tool with state implements the trait:
///
/// ```
/// use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
/// use serde_json::{Map, Value, json};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Default)]
/// struct Counter(AtomicU64);
///
/// impl Tool for Counter {
///     fn name(&self) -> &str {
///         "count"
///     }
///     fn description(&self) -> &str {
///         "Counts its calls."
///     }
///     fn schema(&self) -> Value {
///         json!({"type": "object", "properties": {}})
///     }
///     fn call(&self, _arguments: Map<String, Value>, _context: ToolContext) -> ToolFuture<'_> {
///         Box::pin(async { ToolOutput::ok(self.0.fetch_add(1, Ordering::Relaxed).to_string()) })
///     }
/// }
/// # let _ = Counter::default();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "this must implement `endstop::tool::Tool`",
    note = "implement `name`, `description`, `schema` and `call`, or make a tool of a closure with `endstop::tool::tool_fn`"
)]
pub trait Tool: Send + Sync {
    /// Returns the name by which the model calls the tool: up to 64 letters, digits, `_` and `-`.
    fn name(&self) -> &str;

    /// Returns the description for the model.
    fn description(&self) -> &str;

    /// Returns the JSON Schema of the arguments, which must be an object.
    fn schema(&self) -> Value;

    /// Executes a call. The arguments are those that the model wrote; they were not checked against
    /// the schema.
    ///
    /// The future may be dropped at any await point. Work that it started must then stop on its
    /// own.
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_>;

    /// `true` if calls may run in parallel with other calls. Otherwise each runs alone.
    fn parallel_safe(&self) -> bool {
        false
    }

    /// `true` if the tool runs code. Its output then counts as a step of type `code`.
    fn runs_code(&self) -> bool {
        false
    }

    /// `true` if an interrupted call may be repeated unchanged, because the tool only reads or
    /// because repeating has no further effect.
    fn repeatable(&self) -> bool {
        false
    }

    /// `true` if its calls are excluded from no-progress detection (for example waiting or
    /// polling).
    fn exempt_from_no_progress(&self) -> bool {
        false
    }

    /// `true` if the tool changes or reveals something of the machine it runs on.
    fn touches_machine(&self) -> bool {
        false
    }

    /// Returns the tool's own time limit; `None` selects the run's `tool_timeout`.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns the name of the argument with which the model may request another time limit, in
    /// seconds, up to the run's `max_tool_timeout`. `None` if the model cannot request one.
    fn timeout_argument(&self) -> Option<&str> {
        None
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// The text for the model.
    pub content: String,
    /// `true` if the call failed.
    pub is_error: bool,
    /// The reason to halt the run, if it must halt.
    pub halt: Option<String>,
    /// `true` if compaction must not change the result.
    pub pinned: bool,
}

impl ToolOutput {
    /// Creates the result of a successful call.
    pub fn ok(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), ..ToolOutput::default() }
    }

    /// Creates the result of a failed call; the model receives the message.
    pub fn error(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), is_error: true, ..ToolOutput::default() }
    }

    /// Creates a result that halts the run.
    pub fn halt(reason: impl Into<String>) -> ToolOutput {
        let reason = reason.into();
        ToolOutput { content: reason.clone(), halt: Some(reason), ..ToolOutput::default() }
    }

    /// Pins the result: compaction neither drops nor changes it.
    #[must_use]
    pub fn pin(mut self) -> ToolOutput {
        self.pinned = true;
        self
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

impl<T: Into<ToolOutput>, E: fmt::Display> From<Result<T, E>> for ToolOutput {
    fn from(result: Result<T, E>) -> ToolOutput {
        match result {
            Ok(output) => output.into(),
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }
}

/// The names of the built-in tools.
pub const BUILT_IN: [&str; 3] = ["shell", "read_file", "write_file"];

/// Returns a built-in tool.
///
/// # Errors
/// There is no built-in tool with that name. The message lists the choices.
pub fn built_in(name: &str) -> Result<Arc<dyn Tool>, String> {
    match name {
        "shell" => Ok(Arc::new(Shell::default())),
        "read_file" => Ok(Arc::new(ReadFile::default())),
        "write_file" => Ok(Arc::new(WriteFile::default())),
        _ => {
            let problem = endstop_core::limits::unknown_key(name, &BUILT_IN);
            Err(format!("tool `{name}`: {problem}"))
        }
    }
}

/// Returns a required string argument.
fn text_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, ToolOutput> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ToolOutput::error(format!("the argument `{name}` must be a string"))),
        None => Err(ToolOutput::error(format!("the argument `{name}` is missing"))),
    }
}

/// Returns an optional whole number of at least 1.
fn count_argument(arguments: &Map<String, Value>, name: &str) -> Result<Option<u64>, ToolOutput> {
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
fn seconds_argument(arguments: &Map<String, Value>, name: &str) -> Result<(), ToolOutput> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_f64().is_some_and(|seconds| seconds > 0.0) => Ok(()),
        Some(_) => {
            let problem = format!("the argument `{name}` must be a number of seconds above 0");
            Err(ToolOutput::error(problem))
        }
    }
}
