//! The ending of a nested run that is also the ending of the run around it.
//!
//! A guest may consist of several conversations, each with a run of its own. One of them is recorded
//! and hears what the others spend. If another one decides how the whole ends, its ending goes into
//! the recorded run as an event, so that a replay gives the same outcome.

use super::decided_by::DecidedBy;
use super::{NoProgressSnapshot, Outcome, WouldFit};
use crate::termination::Termination;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The ending of a nested run, for [`EventKind::Closed`](crate::EventKind::Closed).
///
/// ```
/// use endstop_core::{Event, EventKind, NestedEnding, Run, RunSpec, Termination};
/// let end = |kind| Run::new(RunSpec::default()).finish(Event::new(Default::default(), kind), &mut vec![]);
/// let inner = end(EventKind::Cancel);
/// let ended_as = Some(Box::new(NestedEnding::from(&*inner)));
/// let outer = end(EventKind::Closed { ok: true, detail: String::new(), ended_as });
/// assert_eq!(outer.termination, Termination::Cancelled);
/// assert_eq!(outer.decided_by, inner.decided_by);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NestedEnding {
    /// The termination.
    pub termination: Termination,
    /// The decision that ended the nested run.
    pub decided_by: DecidedBy,
    /// The last visible text of the nested run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_text: Option<String>,
    /// The declared answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliverable: Option<Value>,
    /// Wait that the provider asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// Description of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_diagnostic: Option<String>,
    /// Changes under which a refused call would fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_fit: Option<WouldFit>,
    /// Evidence of an `error_no_progress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_progress_snapshot: Option<NoProgressSnapshot>,
}

impl From<&Outcome> for NestedEnding {
    fn from(outcome: &Outcome) -> NestedEnding {
        NestedEnding {
            termination: outcome.termination,
            decided_by: outcome.decided_by.clone(),
            last_text: outcome.last_text.clone(),
            deliverable: outcome.deliverable.clone(),
            retry_after: outcome.retry_after,
            error_diagnostic: outcome.error_diagnostic.clone(),
            would_fit: outcome.would_fit,
            no_progress_snapshot: outcome.no_progress_snapshot.clone(),
        }
    }
}
