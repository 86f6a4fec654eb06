//! The irregularities of the input of an audit: records that cannot be read, notes of the readers, and
//! files that are not sessions.
//!
//! ```text
//! let mut noticed = Noticed::default();
//! noticed.run(None, &run);
//! noticed.problem(None, &problem);
//! ```

use crate::model::Trajectory;
use crate::read::{Findings, Problem};
use serde::{Deserialize, Serialize};

/// The irregularities of the input, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noticed {
    /// The records that could not be read, by kind of problem.
    pub problems: Findings,
    /// The readers' notes about sessions: the kind is the text before the colon.
    pub notes: Findings,
    /// The files and folders that are not sessions, by reason.
    pub skipped: Findings,
}

impl Noticed {
    /// Counts the notes of a session. `dataset` is its place, instead of the file and the record.
    pub fn run(&mut self, dataset: Option<&str>, run: &Trajectory<'_>) {
        let (file, at) = dataset.map_or((&*run.origin.file, run.origin.at), |name| (name, None));
        for note in &run.notes {
            let kind = note.split_once(": ").map_or(note.as_str(), |(kind, _)| kind);
            self.notes.add(kind, file, at, &format!("{}: {note}", run.run_id));
        }
    }

    /// Counts a record that could not be read. `dataset` is its place, as for [`Noticed::run`].
    pub fn problem(&mut self, dataset: Option<&str>, problem: &Problem) {
        let (file, at) = dataset.map_or((&*problem.file, problem.at), |name| (name, None));
        self.problems.add(problem.kind.as_str(), file, at, &problem.what);
    }

    /// Adds the irregularities of another part of the input.
    pub fn merge(&mut self, other: Noticed) {
        self.problems.merge(other.problems);
        self.notes.merge(other.notes);
        self.skipped.merge(other.skipped);
    }
}
