//! Recorded runs, read from files and journals for `audit` and `backtest`, and expectations about one.

pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod compare;
pub(crate) mod expectation;
pub(crate) mod journal_runs;
pub(crate) mod opencode;
