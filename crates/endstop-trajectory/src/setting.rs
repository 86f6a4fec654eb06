//! The setting that a run is replayed under: limits, a policy and rules.

use endstop_core::{Limits, Watch};
use serde_json::Value;

/// The setting that a run is replayed under.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The limits.
    pub limits: Limits,
    /// The termination policy, as configuration spells it.
    pub policy: Option<Value>,
    /// The rules that watch the run.
    pub watches: Vec<Watch>,
}
