//! Stops of a run from outside: durable promises of its workflow, which the worker that drives the
//! run waits for, so that a stop takes effect within a step.

use super::shared::Shared;
use crate::attempt::Stopper;
use crate::request::Stop;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The promise of the first stop.
pub(super) const STOP: &str = "stop";

/// The promise of a terminate, which may follow a cancel.
pub(super) const TERMINATE: &str = "terminate";

/// The value of these promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Signal {
    /// The run is to be cancelled.
    Cancel,
    /// The run is to be terminated.
    Terminate,
    /// The run has ended, so nothing waits for a stop any more.
    Over,
}

impl Signal {
    /// Returns the stop.
    pub(super) fn stop(self) -> Option<Stop> {
        match self {
            Signal::Cancel => Some(Stop::Cancel),
            Signal::Terminate => Some(Stop::Terminate),
            Signal::Over => None,
        }
    }
}

impl From<Stop> for Signal {
    fn from(stop: Stop) -> Signal {
        match stop {
            Stop::Cancel => Signal::Cancel,
            Stop::Terminate => Signal::Terminate,
        }
    }
}

/// The first and the longest delay before the engine is asked again.
const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Passes stops of the run on, until the run has ended. An engine that does not answer is asked again.
pub(super) async fn pass_on(shared: Arc<Shared>, run: String, stopper: Stopper) {
    for promise in [STOP, TERMINATE] {
        // Not encoded, because `admit` refuses an id with characters that an address cannot
        // contain.
        let path = format!("/EndstopRun/{run}/stopped");
        let mut delay = DELAYS.0;
        let signal = loop {
            match shared.client.post::<Signal>(&path, &promise).await {
                Ok(signal) => break signal,
                Err(_) => tokio::time::sleep(delay).await,
            }
            delay = DELAYS.1.min(delay * 2);
        };
        match signal.stop() {
            Some(stop) => stopper.stop(stop),
            None => return,
        }
        if signal == Signal::Terminate {
            return;
        }
    }
}
