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
    /// The model whose calibrated rule is written.
    pub(crate) model: Option<String>,
}

/// The support of the runs for the recommended candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strength {
    /// The upper bound of its harm is within the limit.
    Set,
    /// Only the observed harm is within the limit.
    Try,
}

impl Strength {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Strength::Set => "set",
            Strength::Try => "try",
        }
    }
}

impl Report {
    /// Returns the figures of all datasets together.
    pub(crate) fn whole(&self) -> Option<&DatasetFigures> {
        self.figures.whole()
    }

    /// Returns the recommended candidate: one whose harm is bounded by the limit if there is one,
    /// otherwise one whose observed harm is within it.
    pub(crate) fn recommended(&self) -> Option<&CandidateFigures> {
        let whole = self.whole()?;
        whole.best_bounded(self.max_harm).or_else(|| whole.best_within(self.max_harm))
    }

    /// Returns what the runs say about the recommended candidate.
    pub(crate) fn strength(&self) -> Option<Strength> {
        let one = self.recommended()?;
        Some(if one.keeps(self.max_harm) { Strength::Set } else { Strength::Try })
    }
}
