//! Recorded runs under candidate limits and rules: what is read, what is tried, and the figures.

pub(crate) mod branches;
pub(crate) mod candidates;
pub(crate) mod curve;
pub(crate) mod input;
mod judge;
pub(crate) mod limits;
mod progress;
#[cfg(feature = "parquet")]
pub(crate) mod rows;
pub(crate) mod setting_file;

pub(crate) use input::Input;
pub(crate) use judge::judge;
