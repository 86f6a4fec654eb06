//! Runs that a candidate would have stopped, to be continued from there. A replay shows what a stop
//! saves, but not if the run was lost: that takes a model, in branches of the run.
//!
//! ```text
//! let branches = Branches::new(3, candidates.len());
//! judge(…, Some(&branches))?;                    // collects while the runs are read
//! let chosen = branches.chosen(nth, "stuck"); // run k3v9 at turn 12
//! ```

use crate::config::settings::is_resumable;
use endstop::journal::RecordedRun;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The stopped runs of each candidate. Threads may add runs in any order.
pub(crate) struct Branches {
    most: usize,
    of_candidates: Mutex<Vec<Stops>>,
}

/// The runs that one candidate would have stopped.
#[derive(Clone, Default)]
struct Stops {
    /// By the hash of the id: a part that does not depend on the order of the runs, and that no rule
    /// of a run influences. At most `most` of them.
    picked: BTreeMap<([u8; 32], PathBuf), Stopped>,
    /// Number of stopped runs that `endstop branch` can continue.
    can: u64,
    /// Number of the other stopped runs.
    cannot: u64,
}

/// A run that a candidate would have stopped.
#[derive(Clone, Debug)]
pub(crate) struct Stopped {
    pub(crate) run: String,
    pub(crate) journal: PathBuf,
    /// The turn after which the candidate would have stopped it.
    pub(crate) at: u32,
    pub(crate) turns: u32,
    pub(crate) success: Option<bool>,
}

/// The runs that were chosen for a candidate.
pub(crate) struct Chosen {
    pub(crate) candidate: String,
    pub(crate) runs: Vec<Stopped>,
    /// Number of runs that the candidate would have stopped and that can be continued.
    pub(crate) can: u64,
    /// Number of those that cannot, because they are recordings of other programs.
    pub(crate) cannot: u64,
}

impl Branches {
    /// Prepares the choice of this number of runs for each of the candidates.
    pub(crate) fn new(most: usize, candidates: usize) -> Branches {
        Branches { most, of_candidates: Mutex::new(vec![Stops::default(); candidates]) }
    }

    /// Counts a recording that `endstop branch` cannot continue.
    pub(super) fn saw_other(&self, turns: u32, fired: &[Option<u32>]) {
        self.with_stops(turns, fired, |stops, _| stops.cannot += 1);
    }

    /// Adds a run of a journal.
    pub(super) fn saw(
        &self,
        journal: &Path,
        recorded: &RecordedRun,
        (turns, success): (u32, Option<bool>),
        fired: &[Option<u32>],
    ) {
        let header = &recorded.header;
        // Its settings are what a branch is built from, and a guest's program owns its loop.
        if header.spec.guest.is_some() || !is_resumable(header) || recorded.spec(None).is_err() {
            return self.saw_other(turns, fired);
        }
        let hash: [u8; 32] = Sha256::digest(&header.id).into();
        self.with_stops(turns, fired, |stops, at| {
            stops.can += 1;
            let (run, journal) = (header.id.clone(), journal.to_owned());
            let key = (hash, journal.clone());
            let stopped = Stopped { run, journal, at, turns, success };
            stops.picked.insert(key, stopped);
            if stops.picked.len() > self.most {
                stops.picked.pop_last();
            }
        });
    }

    /// Calls `with` for each candidate that stops the run before its last turn.
    fn with_stops(&self, turns: u32, fired: &[Option<u32>], mut with: impl FnMut(&mut Stops, u32)) {
        let mut all = self.of_candidates.lock().unwrap_or_else(PoisonError::into_inner);
        for (stops, at) in all.iter_mut().zip(fired) {
            // A stop at the last turn changes nothing, so there is nothing to continue.
            if let Some(at) = at.filter(|at| *at < turns) {
                with(stops, at);
            }
        }
    }

    /// Returns the runs of the candidate at this position.
    pub(crate) fn chosen(&self, nth: usize, candidate: &str) -> Chosen {
        let all = self.of_candidates.lock().unwrap_or_else(PoisonError::into_inner);
        let stops = all.get(nth).cloned().unwrap_or_default();
        Chosen {
            candidate: candidate.to_owned(),
            runs: stops.picked.into_values().collect(),
            can: stops.can,
            cannot: stops.cannot,
        }
    }
}
