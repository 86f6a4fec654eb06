//! The events of a guard for its owner: calls that pass or are refused, and the steps of each run.

use endstop_core::RunEvent;
use endstop_wire::redact::{Redacted, Sealed};
use std::sync::Arc;

/// Events for the owner of a guard. They contain no credentials of requests.
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
        target: Redacted,
        /// The reason.
        reason: Redacted,
    },
    /// A request was refused, because it is not valid.
    Refused {
        /// The path, without credentials.
        target: Redacted,
        /// The reason.
        reason: Redacted,
    },
    /// A client asked for another protocol, such as a WebSocket. After this answer clients use HTTP.
    Upgrade {
        /// The path, without credentials.
        target: Redacted,
    },
    /// A request was refused, because its client may not use the guard. It belongs to no run.
    Stranger {
        /// The reason.
        reason: Redacted,
        /// The number of such requests so far. Only those whose number is a power of two are reported,
        /// because such a client may repeat its request for ever.
        count: u64,
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
        /// The step. What a model or a tool wrote may quote a credential, so it is sealed.
        event: Box<Sealed<RunEvent>>,
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
pub type OnEvent = Arc<dyn Fn(GuardEvent) + Send + Sync>;
