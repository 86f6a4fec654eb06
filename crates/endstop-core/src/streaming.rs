//! The streaming state machine of a run: idle → streaming → paused → tool_execution → resuming.
//!
//! ```
//! use endstop_core::StreamingState::{self, *};
//! let mut state = StreamingState::default();
//! state.transition(Streaming).unwrap();
//! state.transition(Paused).unwrap();
//! assert!(state.transition(Streaming).is_err()); // tools first
//! state.abort();                                 // from any state
//! assert_eq!(state, Idle);
//! ```
//!
//! Source: Burnside's `StreamingStateMachine`; the abort is ours.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where a run's stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamingState {
    /// Nothing is generated.
    #[default]
    Idle,
    /// The model generates.
    Streaming,
    /// The model asked for tools.
    Paused,
    /// The tools run.
    ToolExecution,
    /// The results go back.
    Resuming,
}

impl StreamingState {
    /// All states.
    pub const ALL: [StreamingState; 5] = [
        StreamingState::Idle,
        StreamingState::Streaming,
        StreamingState::Paused,
        StreamingState::ToolExecution,
        StreamingState::Resuming,
    ];

    /// The string form: `tool_execution`.
    pub const fn as_str(self) -> &'static str {
        match self {
            StreamingState::Idle => "idle",
            StreamingState::Streaming => "streaming",
            StreamingState::Paused => "paused",
            StreamingState::ToolExecution => "tool_execution",
            StreamingState::Resuming => "resuming",
        }
    }

    /// Whether `self → to` is allowed; a state never goes to itself.
    pub const fn allows(self, to: StreamingState) -> bool {
        use StreamingState::{Idle, Paused, Resuming, Streaming, ToolExecution};
        matches!(
            (self, to),
            (Idle | Resuming, Streaming)
                | (Streaming, Paused | Idle)
                | (Paused, ToolExecution)
                | (ToolExecution, Resuming)
                | (Resuming, Idle)
        )
    }

    /// Goes to `to`.
    ///
    /// # Errors
    /// The transition is not allowed; the state stays as it was.
    pub fn transition(&mut self, to: StreamingState) -> Result<(), InvalidTransition> {
        if self.allows(to) {
            *self = to;
            Ok(())
        } else {
            Err(InvalidTransition { from: *self, to })
        }
    }

    /// Goes to idle, from any state.
    pub fn abort(&mut self) {
        *self = StreamingState::Idle;
    }
}

impl fmt::Display for StreamingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StreamingState {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == name).ok_or_else(|| {
            format!(
                "unknown streaming state `{name}`; known are {}",
                Self::ALL.map(StreamingState::as_str).join(", ")
            )
        })
    }
}

/// A transition that the state machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    /// The state it is in.
    pub from: StreamingState,
    /// The state that was asked for.
    pub to: StreamingState,
}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stream cannot go from {} to {}", self.from, self.to)
    }
}

impl std::error::Error for InvalidTransition {}
