//! A run with a known outcome, and the results of its evaluation.
//!
//! ```text
//! tally.judged(&JudgedRun { key, turns, success, .. }, &fired_of_families);
//! ```

use super::curve::Curve;

/// A run with a known outcome, and the results of its evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedRun<'j> {
    /// The hash of the dataset and the task; without a task, of the run.
    pub(super) key: u64,
    /// `true` if the run has a task.
    pub(super) has_task: bool,
    pub(super) turns: u32,
    pub(super) success: bool,
    /// The first turn of a good run after which the reward was full, if it is recorded.
    pub(super) full_from: Option<u32>,
    /// For each candidate the turn at which it fires.
    pub(super) stopped: &'j [Option<u32>],
    pub(super) spent: &'j Curve,
}
