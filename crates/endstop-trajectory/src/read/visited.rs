//! Counts of the files of an input.
//!
//! ```text
//! visited.files += 1;
//! ```

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
}
