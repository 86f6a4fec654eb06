//! Reads recorded runs: a file, a folder or standard input; plain, gzip or zstd; the format
//! recognised or named. One run is in memory at a time.
//!
//! A format is a folder beside this file, with a reader, and its quirks in the head comment. It says
//! how a file of it is known, and in which pieces it comes.

mod claude_code;
mod codex;
mod conversation;
mod inspect;
mod otel;
mod pieces;
#[doc(hidden)]
pub mod sessions;

use crate::model::Trajectory;
use std::fmt;

/// A format that is read.
pub(crate) struct Format {
    /// Its name, as `--format` spells it.
    pub(crate) name: &'static str,
    /// One line for a person: what writes it.
    pub(crate) about: &'static str,
    /// Whether a file is of it, judged by its beginning.
    pub(crate) recognises: fn(&Head<'_>) -> bool,
    /// In which pieces it comes, and how one is read.
    pub(crate) shape: Shape,
}

/// The beginning of a file.
pub(crate) struct Head<'h> {
    /// The file's name, without its folder and without `.gz` or `.zst`; empty for standard input.
    pub(crate) name: &'h str,
    /// Its first bytes, unpacked; all of them where the file is short.
    pub(crate) bytes: &'h [u8],
    /// The first record as JSON, where it is that: the first line, or the whole of a short file.
    pub(crate) first: Option<&'h serde_json::Value>,
}

/// What a reader gives its runs and its complaints to.
pub(crate) type Sink<'s> = dyn FnMut(Result<Trajectory<'_>, Problem>) + 's;

/// In which pieces a format comes.
#[allow(dead_code, reason = "the formats of this list come whole")]
pub(crate) enum Shape {
    /// Each line is a run.
    Lines(fn(&[u8], &mut Sink<'_>)),
    /// Each element of the list at the top, or under this key of the object at the top, is a run.
    Elements(Option<&'static str>, fn(&[u8], &mut Sink<'_>)),
    /// The file is a run, or a few that belong together.
    Whole(fn(&[u8], &Place<'_>, &mut Sink<'_>)),
}

/// Where a whole file was found.
#[allow(dead_code, reason = "the formats of this list are in one file")]
pub(crate) struct Place<'p> {
    /// The file, as a person gave it; `-` for standard input.
    pub(crate) file: &'p str,
    /// Reads a file beside it, where there is one (`result.json`); never above its folder.
    pub(crate) beside: &'p dyn Fn(&str) -> Option<Vec<u8>>,
}

/// Why a record, or a part of it, is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file; `-` for standard input.
    pub file: String,
    /// The line, or the element of a list, from 1.
    pub at: Option<u64>,
    /// What is wrong.
    pub kind: ProblemKind,
    /// What is wrong, for a person: the field, and what was found there.
    pub what: String,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The file cannot be read, or not unpacked.
    Unreadable,
    /// No format that is known.
    NoTrajectory,
    /// A record that ends in its middle.
    Half,
    /// A record of another shape than its format has.
    Malformed,
    /// A record longer than is read.
    TooLong,
    /// A version of its format that is not known.
    UnknownVersion,
}

impl ProblemKind {
    /// Its name, as a report spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProblemKind::Unreadable => "unreadable",
            ProblemKind::NoTrajectory => "no_trajectory",
            ProblemKind::Half => "half_record",
            ProblemKind::Malformed => "malformed",
            ProblemKind::TooLong => "too_long",
            ProblemKind::UnknownVersion => "unknown_version",
        }
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
