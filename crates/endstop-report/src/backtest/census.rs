//! The counts of reading: of files that were read in order, or of parts that were merged.
//!
//! ```text
//! Census::Files { stats, outcomes, passed_over }   // knows files, lines and the order of runs
//! Census::Parts(reading)                           // does not, because parts have no order
//! ```

use endstop_trajectory::backtest::Reading;
use endstop_trajectory::read::{Outcomes, ReadStats};

/// The counts of reading.
#[derive(Debug)]
pub enum Census {
    /// Files, read in order.
    Files {
        /// Counts and irregularities.
        stats: Box<ReadStats>,
        /// Outcomes from a separate file, with the information which of them were used.
        outcomes: Option<Outcomes>,
        /// Number of files in folders that are clearly not recordings.
        passed_over: u64,
    },
    /// Parts, read and merged in any order.
    Parts(Reading),
}

impl Census {
    /// Returns the number of runs.
    pub fn runs(&self) -> u64 {
        match self {
            Census::Files { stats, .. } => stats.runs,
            Census::Parts(reading) => reading.runs,
        }
    }

    /// Returns examples of records that could not be read.
    pub fn problems(&self) -> Vec<&str> {
        match self {
            Census::Files { stats, .. } => {
                stats.problems.values().flat_map(|one| &one.first).map(String::as_str).collect()
            }
            Census::Parts(reading) => {
                reading.problems.values().flat_map(|one| &one.first).map(String::as_str).collect()
            }
        }
    }

    /// Returns the number of runs whose ids were not compared with others.
    pub(crate) fn not_compared(&self) -> u64 {
        match self {
            Census::Files { stats, .. } => stats.not_compared,
            // Parts compare a sample of the ids, which has no such number.
            Census::Parts(_) => 0,
        }
    }
}
