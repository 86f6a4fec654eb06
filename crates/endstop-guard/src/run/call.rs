//! The facts of one call that its answer, its observer and its report need.

use super::guarded::Place;
use crate::exchange::answer::Reply;
use crate::exchange::{Kind, Seat};
use crate::proxy::AbortToken;
use endstop_core::EffectId;
use endstop_wire::{Dialect, RequestFacts};

/// What is known of a call from its request.
#[derive(Debug)]
pub(super) struct CallFacts {
    pub(super) seat: Seat,
    pub(super) kind: Kind,
    pub(super) reply: Reply,
    pub(super) request: RequestFacts,
    pub(super) dialect: &'static Dialect,
}

/// The admission of a call.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) call: EffectId,
    /// The output cap to send, if caps are lowered.
    pub(super) output_cap: Option<u64>,
    pub(super) abort: AbortToken,
}
