//! A run with a known outcome, and the results of its evaluation.
//!
//! ```text
//! tally.judged(&JudgedRun { key, turns, success, .. }, &fired_of_families);
//! ```

use super::curve::Curve;

/// A run with a known outcome, and the results of its evaluation.
#[derive(Clone, Copy, Debug)]
pub(in crate::backtest) struct JudgedRun<'j> {
    /// The hash of the dataset and the task; without a task, of the run.
    pub(in crate::backtest) key: u64,
    /// `true` if the run has a task.
    pub(in crate::backtest) has_task: bool,
    pub(in crate::backtest) turns: u32,
    pub(in crate::backtest) success: bool,
    /// The first turn of a good run after which the reward was full, if it is recorded.
    pub(in crate::backtest) full_from: Option<u32>,
    /// For each candidate the turn at which it fires.
    pub(in crate::backtest) stopped: &'j [Option<u32>],
    pub(in crate::backtest) spent: &'j Curve,
}
