//! The results of an audit, with the facts about what was read.

use endstop_trajectory::audit::{Audit, Merged};
use endstop_trajectory::backtest::Examples;
use serde::Serialize;

/// The results of an audit.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The totals and the worst sessions.
    pub audit: Audit,
    /// The default folders of known agents that were searched.
    pub looked: Vec<Looked>,
    /// Number of files of known formats.
    pub files: u64,
    /// Number of files that are clearly not sessions.
    pub skipped: u64,
    /// The skipped entries by reason.
    pub skipped_for: Vec<(String, Examples)>,
    /// Number of sessions that were left out because they are too old.
    pub too_old: u64,
    /// Number of sessions whose id occurred before.
    pub twice: u64,
    /// The records that could not be read, by kind of problem.
    pub problems: Vec<(String, Examples)>,
    /// The irregularities that the readers noted, by kind: the number of sessions, and the first.
    pub notes: Vec<(String, Examples)>,
}

impl Report {
    /// Creates the report of an audit in parts.
    pub fn of(merged: Merged) -> Report {
        Report {
            audit: merged.audit,
            looked: Vec::new(),
            files: merged.files,
            skipped: merged.reading.skipped,
            skipped_for: Examples::of(merged.noticed.skipped),
            too_old: merged.too_old,
            twice: merged.reading.duplicates,
            problems: Examples::of(merged.noticed.problems),
            notes: Examples::of(merged.noticed.notes),
        }
    }
}

/// A folder that was searched.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Looked {
    /// The agent that writes to it.
    pub agent: &'static str,
    /// The folder.
    pub folder: String,
    /// `true` if the folder exists.
    pub exists: bool,
    /// Number of files whose names look like sessions.
    pub files: u64,
    /// Number of sessions in them.
    pub sessions: u64,
    /// The first few folders in it that could not be read.
    pub unreadable: Vec<String>,
}
