//! Recorded runs, read from files and journals for `audit` and `backtest`.

pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod journal_runs;
