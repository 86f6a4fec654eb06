//! The caller of a method.

use crate::access::Client;
use crate::app::App;
use endstop::telemetry::TraceParent;
use std::sync::Arc;

/// The caller of a method: the server, the client and the agent.
pub(super) struct Caller {
    pub(super) app: Arc<App>,
    pub(super) client: Client,
    pub(super) agent: String,
    /// The place of the request in a trace.
    pub(super) trace_parent: Option<TraceParent>,
}
