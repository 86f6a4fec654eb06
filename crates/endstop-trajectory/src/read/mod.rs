//! Reads recorded runs from a file, a folder or standard input: plain, gzip or zstd, in a named or
//! a detected format. At most one run is in memory at a time.
//!
//! ```no_run
//! use endstop_trajectory::read::{Census, Options, for_each};
//! let mut census = Census::new();
//! let read = for_each("runs", &Options::default(), &mut |run| match run {
//!     Ok(run) => census.run(&run),
//!     Err(problem) => census.problem(&problem),
//! })?;
//! println!("{} runs in {} files", census.runs, read.files);
//! # Ok::<(), endstop_trajectory::read::UnknownFormat>(())
//! ```
//!
//! Each format is a folder next to this file. It contains the reader, and its head comment lists
//! the quirks of the format. A [`Format`] defines how a file is recognised and how it is split into
//! records.

mod agentdojo;
pub(crate) mod arguments;
mod atif;
mod census;
mod chunk;
mod chunks;
mod claude_code;
mod codex;
mod conversation;
mod copilot;
mod cursor;
mod inspect;
mod intercode;
mod malt;
mod memory;
mod messages;
mod neutral;
mod open;
mod openhands;
mod otel;
mod outcomes;
mod pieces;
mod react_log;
mod record;
mod registry;
mod scan;
#[doc(hidden)]
pub mod sessions;
mod source;
mod split;
mod swe_agent;
mod tau2;
mod tau_bench;
mod tothf;
mod unpack;

pub(crate) use atif::{ours, parts};
pub(crate) use census::split_time;
pub use census::{Census, Finding};
pub use chunk::Chunk;
pub use chunks::{Chunks, Opened};
pub(crate) use claude_code::is_aside;
pub use open::open_regular;
pub use outcomes::Outcomes;
pub use registry::formats;
pub use source::{Source, Walk};

use crate::model::Trajectory;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Options for reading files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The name of a format in [`formats`]; `None` detects the format of each file.
    pub format: Option<String>,
    /// The maximum length of a record, in bytes of unpacked text; 256 MiB by default. A record is a
    /// line, a list element, or a file that is one run.
    pub max_record: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: None, max_record: 256 << 20 }
    }
}

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

/// The requested format does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(pub String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = formats().into_iter().map(|(name, _)| name).collect();
        write!(f, "unknown format `{}`; expected one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownFormat {}

/// Reads the runs of a file, of all files in a folder in order, or of standard input (`-`). Passes
/// each run and each [`Problem`] to `each`, and continues after a problem.
///
/// # Errors
///
/// `options` names an unknown format. In that case nothing is read.
pub fn for_each(
    path: impl Into<PathBuf>,
    options: &Options,
    each: &mut dyn FnMut(Result<Trajectory<'_>, Problem>),
) -> Result<Visited, UnknownFormat> {
    // Checked first, because a misspelt format would otherwise report a problem for every file.
    if let Some(name) = &options.format
        && formats().iter().all(|(known, _)| known != name)
    {
        return Err(UnknownFormat(name.clone()));
    }
    let mut visited = Visited::default();
    let mut walk = Walk::new(path);
    for source in walk.by_ref() {
        let source = match source {
            Ok(source) => source,
            Err(problem) => {
                each(Err(problem));
                continue;
            }
        };
        match Chunks::open(&source, options) {
            Err(problem) => each(Err(problem)),
            Ok(Opened::Skipped(_)) => visited.skipped += 1,
            Ok(Opened::Runs(mut chunks)) => {
                visited.files += 1;
                *visited.formats.entry(chunks.format()).or_default() += 1;
                while let Some(chunk) = chunks.next() {
                    match chunk {
                        Err(problem) => each(Err(problem)),
                        Ok(chunk) => {
                            chunk.each(each);
                            // Reusing the buffer avoids an allocation of about a megabyte for each
                            // chunk.
                            chunks.reuse(chunk);
                        }
                    }
                }
            }
        }
    }
    visited.skipped += walk.skipped();
    Ok(visited)
}

/// A format that the crate can read.
pub(crate) struct Format {
    /// The format's name, as `--format` spells it.
    pub(crate) name: &'static str,
    /// One line for the user: the program that writes the format.
    pub(crate) about: &'static str,
    /// Returns `true` if the beginning of a file looks like this format.
    pub(crate) recognises: fn(&Head<'_>) -> bool,
    /// The way a file is split into records, and the function that reads one.
    pub(crate) shape: Shape,
}

/// The beginning of a file, for format detection.
pub(crate) struct Head<'h> {
    /// The file's name, without its folder and without `.gz` or `.zst`; empty for standard input.
    pub(crate) name: &'h str,
    /// The first bytes, unpacked; the whole file if it is short.
    pub(crate) bytes: &'h [u8],
    /// The first record, if it is JSON: the first line, or the whole of a short file.
    pub(crate) first: Option<&'h serde_json::Value>,
}

impl Head<'_> {
    /// Returns `true` if the file is JSON lines: a second value follows the first on a line of its
    /// own. A first line that is longer than the part that was read also counts as one of several
    /// lines.
    pub(crate) fn is_lines(&self) -> bool {
        match memchr::memchr(b'\n', self.bytes) {
            None => self.bytes.len() >= unpack::LINE,
            Some(end) => {
                let (line, rest) = self.bytes.split_at(end);
                // A line that is an incomplete value belongs to a pretty-printed document.
                (line.trim_ascii().is_empty() || !scan::is_half(line))
                    && !rest.trim_ascii().is_empty()
            }
        }
    }

    /// Returns a member of the first record, if that record is an object.
    pub(crate) fn member(&self, name: &str) -> Option<&serde_json::Value> {
        self.first?.as_object()?.get(name)
    }

    /// Returns the first element of the first record, if that record is a list.
    pub(crate) fn element(&self) -> Option<&serde_json::Value> {
        self.first?.as_array()?.first()
    }
}

/// The callback to which a reader passes its runs and problems.
///
/// The reader may leave the file, and the line or element of the record it was given, unset. It may
/// also leave the id of a run empty; the run is then named after its file.
pub(crate) type Sink<'s> = dyn FnMut(Result<Trajectory<'_>, Problem>) + 's;

/// The way a format is split into records.
pub(crate) enum Shape {
    /// Each line is a run.
    Lines(fn(&[u8], &mut Sink<'_>)),
    /// Each element of the list at the top, or of the list under this key of the top-level object,
    /// is a run.
    Elements(Option<&'static str>, fn(&[u8], &mut Sink<'_>)),
    /// As `Elements`, for a reader that also needs the other members of the object and the file's
    /// name.
    Parts(Option<&'static str>, fn(&[u8], &Part<'_>, &mut Sink<'_>)),
    /// The file is one run, or a few runs that belong together.
    Whole(fn(&[u8], &Place<'_>, &mut Sink<'_>)),
}

/// The location of a file that is read as a whole.
pub(crate) struct Place<'p> {
    /// The file's path, as the user gave it; `-` for standard input.
    pub(crate) file: &'p str,
    /// Reads a file in the same folder, if it exists (`result.json`); never outside the folder that
    /// the user named.
    pub(crate) beside: &'p dyn Fn(&str) -> Option<Vec<u8>>,
}

/// The location of a list element.
pub(crate) struct Part<'p> {
    /// The file's name, without its folder and its extension.
    pub(crate) stem: &'p str,
    /// The members that precede the list in its object.
    pub(crate) context: &'p serde_json::Map<String, serde_json::Value>,
}

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
    /// The record is longer than [`Options::max_record`].
    TooLong,
    /// The parsed values of the record would exceed the memory limit.
    TooManyValues,
    /// The version of the format is not supported.
    UnknownVersion,
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
