//! The verdicts of the verifier on the answers of a run.

use super::outcome::VerifyRound;
use super::outcome::ending::Ending;

/// The verdicts of a run so far.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    pub(super) rounds: Vec<VerifyRound>,
    /// The last answer that was rejected.
    pub(super) rejected: Option<Box<Ending>>,
}

impl Verdicts {
    /// Returns the verdict of the last round, if there was one.
    pub(super) fn last(&self) -> Option<bool> {
        self.rounds.last().map(|round| round.passed)
    }

    /// Returns the number of rounds.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.rounds.len()).unwrap_or(u32::MAX)
    }
}
