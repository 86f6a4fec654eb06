//! The runs of one task: how many are good, and how many of them each candidate stops.
//!
//! ```text
//! task.count(&run);
//! ```

use crate::backtest::judge::judged_run::JudgedRun;
use crate::backtest::judge::killed::Stop;
use serde::{Deserialize, Serialize};

/// The runs of one task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::backtest) struct Task {
    pub(in crate::backtest) good: u32,
    /// Number of good runs with at least four steps.
    pub(in crate::backtest) good4: u32,
    pub(in crate::backtest) failed: u32,
    /// The candidates that stop a run of the task, in order of their index. Most candidates stop no run
    /// of a task.
    stopped: Vec<(u32, Stopped)>,
}

/// The runs of a task that a candidate stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::backtest) struct Stopped {
    /// Good runs that it kills: stops before the reward was full.
    pub(in crate::backtest) good: u32,
    /// Number of these with at least four steps.
    pub(in crate::backtest) good4: u32,
    pub(in crate::backtest) failed: u32,
}

impl Task {
    /// Counts a run.
    pub(in crate::backtest) fn count(&mut self, run: &JudgedRun<'_>) {
        let long = u32::from(run.success && run.turns >= 4);
        *(if run.success { &mut self.good } else { &mut self.failed }) += 1;
        self.good4 += long;
        for (at, turn) in run.stopped.iter().enumerate() {
            let Some(turn) = turn.filter(|turn| *turn < run.turns) else { continue };
            if !run.success {
                self.entry(at as u32).failed += 1;
            } else if (Stop { turn, turns: run.turns, full_from: run.full_from }).kills() {
                let counts = self.entry(at as u32);
                counts.good += 1;
                counts.good4 += long;
            }
        }
    }

    fn entry(&mut self, at: u32) -> &mut Stopped {
        let place = match self.stopped.binary_search_by_key(&at, |counts| counts.0) {
            Ok(place) => place,
            Err(place) => {
                // Doubling would waste half of the memory of a large sample.
                if self.stopped.len() == self.stopped.capacity() {
                    self.stopped.reserve_exact(4);
                }
                self.stopped.insert(place, (at, Stopped::default()));
                place
            }
        };
        &mut self.stopped[place].1
    }

    /// Returns the runs that a candidate stops.
    pub(in crate::backtest) fn stopped(&self, at: usize) -> Stopped {
        let place = self.stopped.binary_search_by_key(&(at as u64), |counts| u64::from(counts.0));
        place.map_or_else(|_| Stopped::default(), |place| self.stopped[place].1)
    }

    /// Returns the number of runs.
    pub(in crate::backtest) fn runs(&self) -> u64 {
        u64::from(self.good) + u64::from(self.failed)
    }

    /// Adds the runs of another count of the same task.
    pub(in crate::backtest) fn add(&mut self, other: Task) {
        let sum = |own: &mut u32, other: u32| *own = own.saturating_add(other);
        sum(&mut self.good, other.good);
        sum(&mut self.good4, other.good4);
        sum(&mut self.failed, other.failed);
        for (at, other) in other.stopped {
            let own = self.entry(at);
            sum(&mut own.good, other.good);
            sum(&mut own.good4, other.good4);
            sum(&mut own.failed, other.failed);
        }
    }

    /// Returns `true` if the list is sorted and names only this number of candidates.
    pub(in crate::backtest) fn fits(&self, candidates: usize) -> bool {
        self.stopped.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && self.stopped.last().is_none_or(|last| (last.0 as usize) < candidates)
    }
}
