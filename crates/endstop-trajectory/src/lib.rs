//! Reads recorded agent runs of many formats, replays them through the kernel, and evaluates them.
//!
//! ```text
//! files ──read──► Trajectory ──replay──► the kernel, with other limits and policies ──► report
//! ```
//!
//! The reader decodes files of any supported format into [`Trajectory`] values, one at a time.
//! [`write`](mod@write) converts a trajectory into an ATIF document that other tools can read.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod audit;
mod availability;
pub mod backtest;
pub mod compare;
mod model;
mod pricing;
pub mod read;
pub mod replay;
mod setting;
mod statistics;
mod time;
pub mod write;

pub use model::{
    Call, CallResult, Ending, Labels, ModelCall, Origin, Recorded, Role, Step, Totals, Trajectory,
    Usage,
};
pub use pricing::{Listed, Prices, Spent};
