//! Backtests and audits of recorded runs.

pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod backtest_report;
mod content;
mod notebook;
pub(crate) mod run_files;
