//! What is left below the ceilings: the ledger of the run, the reservation of the next call, and the
//! checks before it.

pub(super) mod booking;
pub(super) mod ledger;
pub(super) mod left;
pub(super) mod meter;
pub(super) mod near;
pub(super) mod pause;
pub(super) mod precheck;
pub(super) mod prompt;
pub(super) mod quote;
pub(super) mod rates;
pub(super) mod tool_calls;
pub(super) mod windows;
