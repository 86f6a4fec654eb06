//! The status of a run: running, parked or ended.

use endstop_core::{Outcome, ParkDecision, ParkRequest};
use serde::Serialize;
use std::sync::Arc;

/// The status of a run, as its handle knows it. A park is not an ending: a parked run has no
/// outcome yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RunStatus {
    /// The run is in progress.
    Running,
    /// The run waits for a decision, and this process has released it.
    Parked(Arc<ParkRequest>),
    /// The run has ended.
    Ended(Arc<Outcome>),
}

/// A parked run of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ParkedRun {
    /// Id of the run.
    pub run_id: String,
    /// The task message of the run.
    pub task: String,
    /// The request that the run waits for.
    pub request: ParkRequest,
    /// The decision, if there is one; the run waits to be resumed.
    pub decision: Option<ParkDecision>,
    /// `true` if no decision came in time; the request counts as denied by timeout.
    pub expired: bool,
}
