//! The place in another run at which a run branched off.
//!
//! ```
//! use endstop_core::{BranchPoint, RunSpec};
//! let point = BranchPoint { run: "k3v9".into(), turn: 4, ..BranchPoint::default() };
//! let spec = RunSpec { branched_from: Some(point.into()), ..RunSpec::default() };
//! # let _ = spec;
//! ```

use crate::usage::NanoUsd;
use crate::usd_json::usd;
use serde::{Deserialize, Serialize};

/// The place in another run at which a run branched off. The branch begins with the conversation of
/// that run, and does not pay for it again: amounts, turns and limits of the branch count from zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BranchPoint {
    /// Id of the other run.
    pub run: String,
    /// Number of turns of that run that the branch begins with.
    pub turn: u32,
    /// Known cost of the conversation that the branch begins with: what the other run had spent by
    /// then, in addition to the conversation that it had begun with itself.
    #[serde(rename = "cost_usd", with = "usd")]
    pub cost: NanoUsd,
    /// `true` if that cost is a lower bound, because a part of it is unknown.
    pub cost_unknown: bool,
    /// Tokens of the same part.
    pub tokens: u64,
    /// Number of parts of that conversation (signed reasoning, for example) that belong to another
    /// API and are therefore not sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
