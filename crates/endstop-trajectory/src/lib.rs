//! Recorded agent runs: read, replayed, judged.
//!
//! ```text
//! files ──read──► Trajectory ──replay──► the kernel, with other limits and policies ──► report
//! ```
//!
//! A file of any format that is read becomes [`Trajectory`] values, one at a time; [`write`](mod@write)
//! makes an ATIF document of one, which other tools read.

pub mod audit;
pub mod backtest;
mod model;
mod prices;
pub mod read;
pub mod replay;
mod sight;
mod spent;
mod time;
pub mod write;

pub use model::{
    Call, CallResult, Ending, Labels, Origin, Recorded, Role, Step, Totals, Trajectory, Usage,
};
pub use prices::{Listed, Prices};
pub use spent::Spent;
