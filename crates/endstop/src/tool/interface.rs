//! The interface of a tool.
//!
//! ```text
//! let output = tool.call(arguments, context).await;
//! ```

use super::context::ToolContext;
use super::output::ToolOutput;
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The future of a tool's output.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>>;

/// A function that the model may call.
///
/// [`tool_fn`](crate::tool::tool_fn) makes a tool from a closure. A tool with state implements the trait:
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

    /// `true` if the tool runs code that the model has written, and its output is only what that code prints.
    /// A policy may then take a declaration in the output for the model's own: `FINAL('42')`. What any
    /// other tool returns is data, because a file, a page or a program may say anything.
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

    /// `true` if calls run in the background: each is answered with a handle at once, and its result
    /// follows in a message before the next model call. The time limit is then [`timeout`](Self::timeout)
    /// or the run's `max_tool_timeout`. A run does not end with an answer in text while such work is
    /// open; any other ending stops it.
    fn background(&self) -> bool {
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
