//! The error of a tool, for use with `?`.
//!
//! ```
//! use endstop::tool::{ToolError, try_tool_fn};
//! # use schemars::JsonSchema;
//! # use serde::Deserialize;
//! #[derive(Deserialize, JsonSchema)]
//! struct Count { file: String }
//!
//! let count = try_tool_fn("count", "Counts the lines of a file.", |args: Count, _| async move {
//!     if args.file.contains("..") {
//!         return Err(ToolError::denied("only files of this folder"));
//!     }
//!     let text = std::fs::read_to_string(&args.file)?; // any `std::error::Error`
//!     Ok(text.lines().count().to_string())
//! });
//! # let _ = count;
//! ```

use std::error::Error;
use std::fmt;

/// The reason why a tool call has no result. The model receives the message.
///
/// Any [`std::error::Error`] converts into `Failed`, with the messages of its sources. For that
/// reason the type itself does not implement `Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolError {
    /// The call failed. Counts as a mistake of the model if all calls of its turn fail.
    Failed(String),
    /// The tool refuses the call, for example because the caller lacks a permission.
    Denied(String),
    /// A time limit of the tool itself was exceeded.
    Timeout(String),
    /// The run must end as `error_halted`, with this reason.
    Halt(String),
}

impl ToolError {
    /// Creates `Failed` from any message, for errors that do not implement `Error`.
    pub fn failed(message: impl fmt::Display) -> ToolError {
        ToolError::Failed(message.to_string())
    }

    /// Creates `Denied` from any message.
    pub fn denied(message: impl fmt::Display) -> ToolError {
        ToolError::Denied(message.to_string())
    }

    /// Creates `Timeout` from any message.
    pub fn timeout(message: impl fmt::Display) -> ToolError {
        ToolError::Timeout(message.to_string())
    }

    /// Creates `Halt` from any reason.
    pub fn halt(reason: impl fmt::Display) -> ToolError {
        ToolError::Halt(reason.to_string())
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        match self {
            ToolError::Failed(message)
            | ToolError::Denied(message)
            | ToolError::Timeout(message)
            | ToolError::Halt(message) => message,
        }
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl<E: Error> From<E> for ToolError {
    fn from(error: E) -> ToolError {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_message = cause.to_string();
            // Many errors already include the message of their source.
            if !message.contains(&cause_message) {
                message.push_str(": ");
                message.push_str(&cause_message);
            }
            source = cause.source();
        }
        ToolError::Failed(message)
    }
}
