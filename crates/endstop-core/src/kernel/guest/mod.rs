//! The run of a guest: a driver that does not own the loop.

pub(super) mod asked;
pub(super) mod closed;
