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

mod arguments;
mod built_in;
mod confine;
mod context;
mod error;
pub mod finish;
mod finite;
mod function;
mod interface;
mod output;
mod permissions;
mod read_file;
mod regular;
mod replace;
mod set;
mod shared;
mod shell;
mod write_file;

pub(crate) use arguments::text_argument;
pub use built_in::{BUILT_IN, built_in};
pub use context::ToolContext;
pub use error::ToolError;
pub use function::{FunctionTool, ToolArguments, tool_fn, try_tool_fn};
pub use interface::{Tool, ToolFuture};
pub use output::{IntoToolOutput, Json, OutputPart, ToolOutput};
pub use permissions::Permissions;
pub use read_file::ReadFile;
pub use set::{ToolSet, ToolSetError};
pub use shell::Shell;
pub use write_file::WriteFile;
