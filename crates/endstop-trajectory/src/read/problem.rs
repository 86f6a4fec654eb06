//! The problem that a reader reports for a record that it could not read.
//!
//! ```
//! use endstop_trajectory::read::{Options, ProblemKind, for_each};
//! for_each("no/such/file", &Options::default(), &mut |run| {
//!     assert_eq!(run.unwrap_err().kind, ProblemKind::Unreadable);
//! })?;
//! # Ok::<(), endstop_trajectory::read::UnknownFormat>(())
//! ```

use std::fmt;

/// A record, or a part of one, that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file; `-` for standard input.
    pub file: String,
    /// The line, or the index of the list element, from 1.
    pub at: Option<u64>,
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The explanation for the user: the field, and the value that was found there.
    pub what: String,
}

/// The kind of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The file cannot be read or unpacked.
    Unreadable,
    /// The file is not in a known format.
    NoTrajectory,
    /// The file is not in the format that was requested.
    WrongFormat,
    /// The record is truncated.
    Half,
    /// The record does not have the shape of its format.
    Malformed,
    /// The record is longer than [`Options::max_record`](crate::read::Options::max_record).
    TooLong,
    /// The parsed values of the record would exceed the memory limit.
    TooManyValues,
    /// The version of the format is not supported.
    UnknownVersion,
    /// The build lacks the feature that reads the format.
    NotBuilt,
}

impl ProblemKind {
    /// Returns the name that reports use.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProblemKind::Unreadable => "unreadable",
            ProblemKind::NoTrajectory => "no_trajectory",
            ProblemKind::WrongFormat => "wrong_format",
            ProblemKind::Half => "half_record",
            ProblemKind::Malformed => "malformed",
            ProblemKind::TooLong => "too_long",
            ProblemKind::TooManyValues => "too_many_values",
            ProblemKind::UnknownVersion => "unknown_version",
            ProblemKind::NotBuilt => "not_built",
        }
    }
}

impl Problem {
    /// Creates a problem without a location; the reader of the file adds it.
    pub(crate) fn new(kind: ProblemKind, what: impl Into<String>) -> Problem {
        Problem { file: String::new(), at: None, kind, what: what.into() }
    }

    /// Creates a problem for a record that does not have the shape of its format.
    pub(crate) fn malformed(what: impl Into<String>) -> Problem {
        Problem::new(ProblemKind::Malformed, what)
    }

    /// Creates a problem for a truncated record.
    pub(crate) fn half(bytes: &[u8]) -> Problem {
        let what = format!("truncated after {} bytes", bytes.len());
        Problem::new(ProblemKind::Half, what)
    }

    /// Creates a problem for a record that is not valid JSON, or is JSON of another shape.
    pub(crate) fn json(error: &serde_json::Error) -> Problem {
        // An unexpected end means a truncated record. That is reported separately because a run
        // that is still being written is not a fault.
        let kind = if error.is_eof() { ProblemKind::Half } else { ProblemKind::Malformed };
        Problem::new(kind, json_says(error))
    }
}

/// Formats a JSON error together with its position in the record.
pub(crate) fn json_says(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // serde's own position is removed: it counts from the start of the line, and is repeated below
    // in words.
    let bare = text.rsplit_once(" at line ").map_or(text.as_str(), |(bare, _)| bare);
    let bare = &without_text(bare);
    match error.line() {
        0 => bare.clone(),
        1 => format!("{bare}, at byte {} of the record", error.column()),
        line => format!("{bare}, at line {line}, byte {} of the record", error.column()),
    }
}

/// Removes the string that was found from an error message, because a recording may contain
/// secrets.
fn without_text(complaint: &str) -> String {
    match (complaint.find("string \""), complaint.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => {
            format!("{}string{}", &complaint[..from], &complaint[to + 1..])
        }
        _ => complaint.to_owned(),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(at) = self.at {
            write!(f, ":{at}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Problem {}
