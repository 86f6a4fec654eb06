//! Counts of the files of an input.
//!
//! ```text
//! visited.files += 1;
//! ```

use super::io::source::{Source, Walk};
use super::stats::Finding;
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
    pub skipped_for: BTreeMap<&'static str, Finding>,
}

impl Visited {
    /// Counts a file that is obviously not a run.
    pub(super) fn skip(&mut self, why: &'static str, source: &Source) {
        self.skipped += 1;
        let name = source.path().display().to_string();
        self.skipped_for.entry(why).or_default().add_later(1, vec![name]);
    }

    /// Adds the entries that a walk skipped.
    pub(super) fn walked(&mut self, walk: Walk) {
        self.skipped += walk.skipped();
        for (why, (count, first)) in walk.into_skipped() {
            self.skipped_for.entry(why).or_default().add_later(count, first);
        }
    }
}
