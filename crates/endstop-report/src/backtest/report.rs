//! The results of a backtest, with what shapes its report.

use super::census::Census;
use endstop_trajectory::backtest::{Candidate, CandidateFigures, DatasetFigures, Figures};

/// The results of a backtest, with the arguments that shape the report.
#[derive(Debug)]
pub struct Report {
    /// The candidates, in order.
    pub candidates: Vec<Candidate>,
    /// The figures.
    pub figures: Figures,
    /// The counts of reading.
    pub census: Census,
    /// The share of good runs that a recommended candidate may stop.
    pub max_harm: f64,
    /// The promise of the calibration, if there is one.
    pub alpha: Option<f64>,
    /// `true` if the candidates are those of a sweep, which shows only the best ones.
    pub sweep: bool,
    /// Limits at several values.
    pub curves: Vec<Curve>,
    /// The model whose calibrated rule is written.
    pub model: Option<String>,
}

/// A limit at several values; each of them is a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// The limit: `max_turns`.
    pub limit: String,
    /// The values in the order in which they were given, and the names of their candidates.
    pub points: Vec<(String, String)>,
}

/// The support of the runs for the recommended candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// The upper bound of its harm is within the limit.
    Set,
    /// Only the observed harm is within the limit.
    Try,
}

impl Strength {
    /// Returns the name, as JSON spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Strength::Set => "set",
            Strength::Try => "try",
        }
    }
}

impl Report {
    /// Returns the figures of all datasets together.
    pub fn whole(&self) -> Option<&DatasetFigures> {
        self.figures.whole()
    }

    /// Returns the recommended candidate: one whose harm is bounded by the limit if there is one,
    /// otherwise one whose observed harm is within it.
    pub fn recommended(&self) -> Option<&CandidateFigures> {
        let whole = self.whole()?;
        whole.best_bounded(self.max_harm).or_else(|| whole.best_within(self.max_harm))
    }

    /// Returns what the runs say about the recommended candidate.
    pub fn strength(&self) -> Option<Strength> {
        let one = self.recommended()?;
        Some(if one.keeps(self.max_harm) { Strength::Set } else { Strength::Try })
    }
}
