//! Recorded runs under candidate limits and rules: what is read, what is tried, and the figures.

pub(crate) mod candidates;
pub(crate) mod input;
mod judge;
mod progress;
mod report;
#[cfg(feature = "parquet")]
pub(crate) mod rows;

pub(crate) use input::Input;
pub(crate) use judge::judge;
pub(crate) use report::{Report, Strength};
