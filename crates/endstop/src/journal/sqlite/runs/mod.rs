//! The runs in the file: stores, reads, parks and prunes them.

pub(super) mod branch_rows;
pub(super) mod header;
mod log;
mod parked;
pub(super) mod parked_rows;
pub(super) mod prune;
pub(super) mod read;
pub(super) mod run_rows;
mod space;
pub(super) mod texts;
pub(super) mod together;
