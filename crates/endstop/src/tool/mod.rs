//! Tools: what the model may do.
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
//! A tool is told to stop through its [`ToolContext`]: by a cancel, a terminate, or its time limit.
//! Whether or not it listens, nothing of it outlives its run: a tool that does not end in the
//! grace is dropped, and what it holds must go with it.

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

/// Something that the model may do.
///
/// [`tool_fn`] makes one of a closure. One with a state of its own is written out:
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
    /// Its name, as the model calls it: up to 64 letters, digits, `_` and `-`.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// JSON Schema of its arguments: an object.
    fn schema(&self) -> Value;

    /// Does it. The arguments are what the model wrote; they have not been checked against the
    /// schema.
    ///
    /// The future may be dropped at any point, and what it started must then stop by itself.
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_>;

    /// Whether it may run beside other calls; one that may not runs alone.
    fn parallel_safe(&self) -> bool {
        false
    }

    /// Whether it runs code: what it prints is then looked at as a step of type `code`.
    fn runs_code(&self) -> bool {
        false
    }

    /// Whether a call that was cut short may be made again as it was: it only reads, or doing it
    /// twice is as doing it once.
    fn repeatable(&self) -> bool {
        false
    }

    /// Whether its calls are left out of the no-progress judgement (waiting, polling).
    fn exempt_from_no_progress(&self) -> bool {
        false
    }

    /// Whether it changes or reveals something of the machine it runs on.
    fn touches_machine(&self) -> bool {
        false
    }

    /// Its own time limit; `None`: the run's `tool_timeout`.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// The argument in which the model may ask for another time limit of its call, in seconds, up
    /// to the run's `max_tool_timeout`. `None`: the model cannot ask.
    fn timeout_argument(&self) -> Option<&str> {
        None
    }
}

/// What a tool answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// What the model is told.
    pub content: String,
    /// Whether it failed.
    pub is_error: bool,
    /// The run must halt, and why.
    pub halt: Option<String>,
    /// Whether a compaction must keep it as it is.
    pub pinned: bool,
}

impl ToolOutput {
    /// It succeeded.
    pub fn ok(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), ..ToolOutput::default() }
    }

    /// It failed; the model is told how.
    pub fn error(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), is_error: true, ..ToolOutput::default() }
    }

    /// The run must halt.
    pub fn halt(reason: impl Into<String>) -> ToolOutput {
        let reason = reason.into();
        ToolOutput { content: reason.clone(), halt: Some(reason), ..ToolOutput::default() }
    }

    /// The same, pinned: no compaction drops or changes it.
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

/// The built-in tools, by name.
pub const BUILT_IN: [&str; 3] = ["shell", "read_file", "write_file"];

/// A built-in tool.
///
/// # Errors
/// There is none of that name; the message names the choices.
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

/// A text argument.
fn text_argument<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, ToolOutput> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ToolOutput::error(format!("the argument `{name}` must be a text"))),
        None => Err(ToolOutput::error(format!("the argument `{name}` is missing"))),
    }
}

/// A whole number from 1 on, where it is given.
fn count_argument(arguments: &Map<String, Value>, name: &str) -> Result<Option<u64>, ToolOutput> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(count) if count > 0 => Ok(Some(count)),
            _ => {
                let problem = format!("the argument `{name}` must be a whole number from 1 on");
                Err(ToolOutput::error(problem))
            }
        },
    }
}

/// Checks an argument in which the model may ask for a time limit.
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
