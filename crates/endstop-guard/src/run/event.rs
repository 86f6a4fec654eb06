//! The events of a guard for its owner: calls that pass or are refused, and the steps of each run.

use endstop_core::RunEvent;
use std::sync::Arc;

/// Events for the owner of a guard. They contain no credentials of requests, but what a model or a
/// tool wrote may quote one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GuardEvent {
    /// The first call of a run arrived.
    RunStarted {
        /// Id of the run.
        run: String,
    },
    /// A call passed that guard cannot read or does not know.
    Passed {
        /// The path, without credentials.
        target: String,
        /// The reason.
        reason: String,
    },
    /// A request was refused, because it is not valid.
    Refused {
        /// The path, without credentials.
        target: String,
        /// The reason.
        reason: String,
    },
    /// The first call of a conversation arrived.
    ThreadStarted {
        /// Id of the run.
        run: String,
        /// Name of the conversation, for example `main` or `sub-2`.
        thread: String,
        /// `true` if it belongs to a sub-agent.
        sub_agent: bool,
    },
    /// A step of a conversation.
    Run {
        /// Id of the run.
        run: String,
        /// Name of the conversation.
        thread: String,
        /// The step.
        event: Box<RunEvent>,
    },
    /// A conversation got the text with the reason for the stop.
    LimitTold {
        /// Id of the run.
        run: String,
        /// Name of the conversation; `None` if the call belongs to none.
        thread: Option<String>,
    },
    /// A call was refused, because its run has ended.
    CallRefused {
        /// Id of the run.
        run: String,
        /// Name of the conversation; `None` if the call belongs to none.
        thread: Option<String>,
    },
}

/// Receives the events of a guard, on the task of the request and under the lock of the run: it must
/// not block.
pub type Hear = Arc<dyn Fn(GuardEvent) + Send + Sync>;
