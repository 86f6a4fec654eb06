//! The id of a request for approval.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies a request for approval within its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(
    /// The number of the request, unique within its run.
    pub u64,
);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
