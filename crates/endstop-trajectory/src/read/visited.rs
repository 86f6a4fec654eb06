//! Counts of the files of an input.
//!
//! ```text
//! visited.files += 1;
//! ```

use super::findings::Findings;
use super::io::source::{Source, Walk};
use std::collections::BTreeMap;

/// Counts of the files that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visited {
    /// Number of files with a known format.
    pub files: u64,
    /// Number of files of each format.
    pub formats: BTreeMap<&'static str, u64>,
    /// Number of entries of folders that were skipped: licences, images, hidden files, links to
    /// folders.
    pub skipped: u64,
    /// The skipped entries by reason, with the first few of each.
    pub skipped_for: Findings,
}

impl Visited {
    /// Counts a file that is obviously not a run.
    pub(super) fn skip(&mut self, why: &'static str, source: &Source) {
        self.skipped += 1;
        self.skipped_for.add(why, &source.path().display().to_string(), None, "");
    }

    /// Adds the entries that a walk skipped.
    pub(super) fn walked(&mut self, walk: Walk) {
        self.skipped += walk.skipped();
        self.skipped_for.merge(walk.into_skipped());
    }
}
