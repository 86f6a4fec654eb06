//! Confidence intervals of differences, which backtests and comparisons share.
//!
//! ```text
//! let failed_minus_good = Difference::of_shares(&clusters);
//! ```

mod bootstrap;
mod cluster;
mod difference;

pub(crate) use cluster::Cluster;
pub use difference::{Difference, NoInterval};
