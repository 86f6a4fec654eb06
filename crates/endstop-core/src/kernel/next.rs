//! The step that follows a handler. Handlers return it instead of calling each other, and the loop
//! in `machine.rs` performs it.

use super::effect::ConsultPoint;
use super::outcome::ending::Ending;
use super::phase::{Phase, Point};
use super::tools::open_calls::OpenCalls;
use serde_json::Value;
use std::time::Duration;

/// The step that follows a handler.
///
/// A handler returns `Flow<Next>`: `Break` ends the run, and the current phase tells what is still
/// in progress. A handler that owns open tool calls returns [`Next::End`] instead, so that each of
/// them is answered.
pub(super) enum Next {
    /// Wait for an event in this phase.
    Wait(Phase),
    /// Start a turn: check the limits, then compact if that is due.
    Boundary,
    /// Start another turn instead of ending the run as this. A guest may not call again, and the
    /// ending is then final.
    Again(Box<Ending>),
    /// Ask the hook before a turn.
    Iteration,
    /// Ask the hook before a model call.
    Params,
    /// Ask the hook that sees the request.
    PreCall,
    /// Make a model call.
    Call,
    /// Make another attempt after this wait.
    Retry { wait: Duration },
    /// Start what may start of the calls, or collect their results.
    Tools(OpenCalls),
    /// Shorten the conversation. `forced` if the provider refused the prompt.
    Compact { forced: bool },
    /// Ask a hook.
    Consult { point: Point, ask: ConsultPoint },
    /// Validate a success against the schema.
    Validate { success: Box<Ending>, candidate: Value },
    /// Ask the verifier about a success.
    Verify { success: Box<Ending> },
    /// End the run as soon as the running calls have ended.
    Stop { ending: Box<Ending>, calls: OpenCalls },
    /// End the run, and answer the open calls.
    End { ending: Box<Ending>, calls: OpenCalls },
}
