//! Tools: what the model may do.
//!
//! ```
//! use endstop::tool::{tool_fn, ToolOutput};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! /// Adds two numbers.
//! #[derive(Deserialize, JsonSchema)]
//! struct Add { a: f64, b: f64 }
//!
//! let add = tool_fn("add", "Adds two numbers.", |args: Add, _context| async move {
//!     ToolOutput::ok((args.a + args.b).to_string())
//! }).parallel_safe();
//! # let _ = add;
//! ```
//!
//! A tool is told to stop through its [`ToolContext`]: by a cancel, a terminate, or its time limit.
//! Whether or not it listens, nothing of it outlives its run: a tool that does not end in the
//! grace is dropped, and what it holds must go with it.

mod context;
pub mod finish;
mod function;
mod read_file;
#[cfg(unix)]
mod shell;
mod write_file;

pub use context::ToolContext;
pub use function::{FunctionTool, tool_fn};
pub use read_file::ReadFile;
#[cfg(unix)]
pub use shell::Shell;
pub use write_file::WriteFile;

use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The future of a tool's output.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// Something that the model may do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "implement `name`, `description`, `schema` and `call`, or make one of a closure with `endstop::tool::tool_fn`"
)]
pub trait Tool: Send + Sync {
    /// Its name, as the model calls it.
    fn name(&self) -> &str;

    /// What it does, for the model.
    fn description(&self) -> &str;

    /// JSON Schema of its arguments: an object.
    fn schema(&self) -> Value;

    /// Does it. The arguments are what the model wrote; they have not been checked against the
    /// schema.
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_>;

    /// Whether it may run beside other calls; one that may not runs alone.
    fn parallel_safe(&self) -> bool {
        false
    }

    /// Whether it runs code: what it prints is then looked at as a step of type `code`.
    fn runs_code(&self) -> bool {
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
}

impl ToolOutput {
    /// It succeeded.
    pub fn ok(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), ..ToolOutput::default() }
    }

    /// It failed; the model is told how.
    pub fn error(content: impl Into<String>) -> ToolOutput {
        ToolOutput { content: content.into(), is_error: true, halt: None }
    }

    /// The run must halt.
    pub fn halt(reason: impl Into<String>) -> ToolOutput {
        let reason = reason.into();
        ToolOutput { content: reason.clone(), is_error: false, halt: Some(reason) }
    }
}

/// The built-in tools, by name.
pub const BUILT_IN: [&str; 3] = ["shell", "read_file", "write_file"];

/// A built-in tool.
///
/// # Errors
/// There is none of that name (here); the message names the choices.
pub fn built_in(name: &str) -> Result<std::sync::Arc<dyn Tool>, String> {
    match name {
        #[cfg(unix)]
        "shell" => Ok(std::sync::Arc::new(Shell::default())),
        #[cfg(not(unix))]
        "shell" => Err("the tool `shell` runs on Linux and macOS only".to_owned()),
        "read_file" => Ok(std::sync::Arc::new(ReadFile::default())),
        "write_file" => Ok(std::sync::Arc::new(WriteFile::default())),
        _ => Err(format!("tool `{name}`: {}", endstop_core::limits::unknown_key(name, &BUILT_IN))),
    }
}

/// A text argument.
pub(crate) fn text_argument<'a>(
    arguments: &'a Map<String, Value>,
    name: &str,
) -> Result<&'a str, ToolOutput> {
    match arguments.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ToolOutput::error(format!("the argument `{name}` must be a text"))),
        None => Err(ToolOutput::error(format!("the argument `{name}` is missing"))),
    }
}
