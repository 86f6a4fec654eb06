//! Runs of the journal: resumes, branches, cancels and ends them.

pub(super) mod branch;
pub(super) mod cancel_parked;
pub(super) mod end_interrupted;
pub(super) mod resume;
mod retold;
