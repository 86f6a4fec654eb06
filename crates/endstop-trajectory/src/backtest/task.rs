//! The runs of one task: how many are good, and how many of them each candidate stops.
//!
//! ```text
//! task.count(success, turns, &stopped);
//! ```

use serde::{Deserialize, Serialize};

/// Maximum number of tasks of a dataset that are compared; runs of further tasks are counted as left
/// out.
pub(super) const MOST_TASKS: usize = 100_000;

/// The runs of one task.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) good: u32,
    pub(super) failed: u32,
    /// The candidates that stop a run of the task, in order: the candidate's index, good runs
    /// stopped, failed runs stopped. Most candidates stop no run of a task.
    stopped: Vec<(u32, u32, u32)>,
}

impl Task {
    /// Counts a run; `stopped` holds the turn at which each candidate fires.
    pub(super) fn count(&mut self, success: bool, turns: u32, stopped: &[Option<u32>]) {
        *(if success { &mut self.good } else { &mut self.failed }) += 1;
        for (at, _) in
            stopped.iter().enumerate().filter(|(_, turn)| turn.is_some_and(|t| t < turns))
        {
            let counts = self.entry(at as u32);
            *(if success { &mut counts.1 } else { &mut counts.2 }) += 1;
        }
    }

    fn entry(&mut self, at: u32) -> &mut (u32, u32, u32) {
        let place = match self.stopped.binary_search_by_key(&at, |counts| counts.0) {
            Ok(place) => place,
            Err(place) => {
                self.stopped.insert(place, (at, 0, 0));
                place
            }
        };
        &mut self.stopped[place]
    }

    /// Returns the numbers of good and of failed runs that a candidate stops.
    pub(super) fn stopped(&self, at: usize) -> (u32, u32) {
        let place = self.stopped.binary_search_by_key(&(at as u64), |counts| u64::from(counts.0));
        place.map_or((0, 0), |place| (self.stopped[place].1, self.stopped[place].2))
    }

    /// Returns the number of runs.
    pub(super) fn runs(&self) -> u64 {
        u64::from(self.good) + u64::from(self.failed)
    }

    /// Adds the runs of another count of the same task.
    pub(super) fn add(&mut self, other: Task) {
        self.good = self.good.saturating_add(other.good);
        self.failed = self.failed.saturating_add(other.failed);
        for (at, good, failed) in other.stopped {
            let own = self.entry(at);
            own.1 = own.1.saturating_add(good);
            own.2 = own.2.saturating_add(failed);
        }
    }

    /// Returns `true` if the list is sorted and names only this number of candidates.
    pub(super) fn fits(&self, candidates: usize) -> bool {
        self.stopped.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && self.stopped.last().is_none_or(|last| (last.0 as usize) < candidates)
    }
}
