//! Counts that can be added: what each candidate stops and saves in each group of runs.

pub(super) mod caps;
pub(super) mod counts;
pub(crate) mod hash;
mod room;
pub(crate) mod sample;
pub(super) mod scores;
pub(super) mod tallies;
pub(super) mod tally;
pub(super) mod task;
