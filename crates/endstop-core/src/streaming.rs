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
//! Source: Burnside's `StreamingStateMachine`; `abort` is an addition.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The streaming state of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamingState {
    /// No generation in progress.
    #[default]
    Idle,
    /// The model is generating.
    Streaming,
    /// The model has called tools.
    Paused,
    /// The tools are running.
    ToolExecution,
    /// The results are sent back.
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

    /// The string form, for example `tool_execution`.
    pub const fn as_str(self) -> &'static str {
        match self {
            StreamingState::Idle => "idle",
            StreamingState::Streaming => "streaming",
            StreamingState::Paused => "paused",
            StreamingState::ToolExecution => "tool_execution",
            StreamingState::Resuming => "resuming",
        }
    }

    /// `true` if the transition is allowed. A state has no transition to itself.
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

    /// Moves to another state.
    ///
    /// # Errors
    /// The transition is not allowed; the state is unchanged.
    pub fn transition(&mut self, to: StreamingState) -> Result<(), InvalidTransition> {
        if self.allows(to) {
            *self = to;
            Ok(())
        } else {
            Err(InvalidTransition { from: *self, to })
        }
    }

    /// Moves to idle, from any state.
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
    type Err = UnknownStreamingState;
    fn from_str(name: &str) -> Result<Self, UnknownStreamingState> {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == name);
        known.ok_or_else(|| UnknownStreamingState { name: name.to_owned() })
    }
}

/// The error for a name that is not that of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownStreamingState {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownStreamingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = StreamingState::ALL.map(StreamingState::as_str).join(", ");
        write!(f, "unknown streaming state `{}`; expected one of {known}", self.name)
    }
}

impl std::error::Error for UnknownStreamingState {}

/// The error for a transition that the state machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTransition {
    /// The current state.
    pub from: StreamingState,
    /// The requested state.
    pub to: StreamingState,
}

impl fmt::Display for InvalidTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stream cannot go from {} to {}", self.from, self.to)
    }
}

impl std::error::Error for InvalidTransition {}
