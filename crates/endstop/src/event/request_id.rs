//! The id of a request for approval.

use endstop_core::ParkRequest;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identifies a request for approval. Another run has other ids, so that an answer that reaches the
/// wrong run is refused; a resumed run has the same again. At most 53 bits, which JSON readers with
/// floating-point numbers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(
    /// The number of the request, unique within its run.
    pub u64,
);

impl RequestId {
    /// Returns the id of a request: a hash of the run and of the number of its effect.
    pub(crate) fn of(run_id: &str, effect: u64) -> RequestId {
        let bytes = run_id.bytes().chain([0]).chain(effect.to_le_bytes());
        // FNV-1a, because the standard library's hash may differ between versions of Rust.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        RequestId(hash >> 11)
    }

    /// Returns the id under which the event of a request for approval had it, before the run was
    /// [parked](crate::park) with it.
    pub fn of_parked(run_id: &str, request: &ParkRequest) -> RequestId {
        RequestId::of(run_id, request.id.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
