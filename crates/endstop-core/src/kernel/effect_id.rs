//! The id of an effect, which the answering event carries. Not in `effect.rs`, because `park.rs` needs it
//! and effects carry parked requests.
//!
//! ```text
//! Effect::Consult { id: EffectId(7), .. } ─► EventKind::Answered { id: EffectId(7), .. }
//! ```

use serde::{Deserialize, Serialize};

/// Identifies an effect within its run; never reused, so that a late answer cannot be confused with
/// a new one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EffectId(
    /// The number of the effect, from 1 in each run.
    pub u64,
);
