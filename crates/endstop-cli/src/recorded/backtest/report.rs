//! The results of a backtest.

use endstop_trajectory::backtest::{Candidate, CandidateFigures, DatasetFigures, Figures};
use endstop_trajectory::read::{Outcomes, ReadStats};

/// The results of a backtest, with the arguments that shape the report.
pub(crate) struct Report {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) figures: Figures,
    pub(crate) stats: ReadStats,
    pub(crate) outcomes: Option<Outcomes>,
    /// Number of files in folders that are clearly not recordings.
    pub(crate) passed_over: u64,
    pub(crate) max_harm: f64,
    pub(crate) alpha: Option<f64>,
    pub(crate) sweep: bool,
}

impl Report {
    /// Returns the figures of all datasets together.
    pub(crate) fn whole(&self) -> Option<&DatasetFigures> {
        self.figures.whole()
    }

    /// Returns the recommended candidate.
    pub(crate) fn recommended(&self) -> Option<&CandidateFigures> {
        self.whole()?.best_within(self.max_harm)
    }
}
