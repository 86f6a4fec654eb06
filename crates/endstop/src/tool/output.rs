//! The result of a tool call.
//!
//! ```
//! use endstop::tool::ToolOutput;
//! assert_eq!(ToolOutput::from("42"), ToolOutput::ok("42"));
//! assert!(ToolOutput::error("no such file").is_error);
//! ```

use std::fmt;

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
