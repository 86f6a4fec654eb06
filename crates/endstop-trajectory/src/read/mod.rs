//! Reads recorded runs: a file, a folder or standard input; plain, gzip or zstd; the format
//! recognised or named. One run is in memory at a time.
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
//! A format is a folder beside this file, with a reader, and its quirks in the head comment. It says
//! how a file of it is known, and in which pieces it comes.

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

/// How files are read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The format's name, of those in [`formats`]; `None`: each file's own is found out.
    pub format: Option<String>,
    /// The longest record that is read, in bytes of unpacked text: 256 MiB unless said otherwise. A
    /// record is a line, an element of a list, or a file that is one run.
    pub max_record: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: None, max_record: 256 << 20 }
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visited {
    /// How many files had a format that is known.
    pub files: u64,
    /// How many of each format.
    pub formats: BTreeMap<&'static str, u64>,
    /// Files of a folder that are obviously not meant, or not reached: licences, pictures, hidden
    /// ones, links to folders.
    pub skipped: u64,
}

/// A format that nobody knows was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(pub String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = formats().into_iter().map(|(name, _)| name).collect();
        write!(f, "no format `{}`; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownFormat {}

/// Reads the runs of a file, of the files of a folder in order, or of standard input (`-`), and gives
/// each to `each`, as it gives each [`Problem`]: after one, it goes on with what follows.
///
/// # Errors
///
/// `options` names a format that is not known. Nothing is read then.
pub fn for_each(
    path: impl Into<PathBuf>,
    options: &Options,
    each: &mut dyn FnMut(Result<Trajectory<'_>, Problem>),
) -> Result<Visited, UnknownFormat> {
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

impl Head<'_> {
    /// Whether it comes in lines, a JSON value each: another value follows the first one on a line
    /// of its own. A first line that is longer than what was looked at is one of several, too.
    pub(crate) fn is_lines(&self) -> bool {
        match memchr::memchr(b'\n', self.bytes) {
            None => self.bytes.len() >= unpack::LINE,
            Some(end) => {
                let (line, rest) = self.bytes.split_at(end);
                (line.trim_ascii().is_empty() || !scan::is_half(line))
                    && !rest.trim_ascii().is_empty()
            }
        }
    }

    /// A member of the first record, where that is an object.
    pub(crate) fn member(&self, name: &str) -> Option<&serde_json::Value> {
        self.first?.as_object()?.get(name)
    }

    /// The first element of the first record, where that is a list.
    pub(crate) fn element(&self) -> Option<&serde_json::Value> {
        self.first?.as_array()?.first()
    }
}

/// What a reader gives its runs and its complaints to.
///
/// It need not say the file, nor the line or element of a record that it was given alone; and a run
/// that has no id may go without one: it is named after its file.
pub(crate) type Sink<'s> = dyn FnMut(Result<Trajectory<'_>, Problem>) + 's;

/// In which pieces a format comes.
pub(crate) enum Shape {
    /// Each line is a run.
    Lines(fn(&[u8], &mut Sink<'_>)),
    /// Each element of the list at the top, or under this key of the object at the top, is a run.
    Elements(Option<&'static str>, fn(&[u8], &mut Sink<'_>)),
    /// The same, for a reader that wants to know what stands beside the list, and where it is.
    Parts(Option<&'static str>, fn(&[u8], &Part<'_>, &mut Sink<'_>)),
    /// The file is a run, or a few that belong together.
    Whole(fn(&[u8], &Place<'_>, &mut Sink<'_>)),
}

/// Where a whole file was found.
pub(crate) struct Place<'p> {
    /// The file, as a person gave it; `-` for standard input.
    pub(crate) file: &'p str,
    /// Reads a file beside it, where there is one (`result.json`); never above its folder.
    pub(crate) beside: &'p dyn Fn(&str) -> Option<Vec<u8>>,
}

/// Where an element of a list was found.
pub(crate) struct Part<'p> {
    /// The file's name, without its folder and its ending.
    pub(crate) stem: &'p str,
    /// The members that stand before the list in its object.
    pub(crate) context: &'p serde_json::Map<String, serde_json::Value>,
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
    /// Not of the format that was asked for.
    WrongFormat,
    /// A record that ends in its middle.
    Half,
    /// A record of another shape than its format has.
    Malformed,
    /// A record longer than is read.
    TooLong,
    /// A record whose values would take more memory than is allowed.
    TooManyValues,
    /// A version of its format that is not known.
    UnknownVersion,
}

impl ProblemKind {
    /// Its name, as a report spells it.
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
    /// A problem of a record; whoever reads the file adds where.
    pub(crate) fn new(kind: ProblemKind, what: impl Into<String>) -> Problem {
        Problem { file: String::new(), at: None, kind, what: what.into() }
    }

    /// A record of another shape than its format has.
    pub(crate) fn malformed(what: impl Into<String>) -> Problem {
        Problem::new(ProblemKind::Malformed, what)
    }

    /// A record that ends in its middle.
    pub(crate) fn half(bytes: &[u8]) -> Problem {
        let what = format!("ends in its middle, after {} bytes", bytes.len());
        Problem::new(ProblemKind::Half, what)
    }

    /// A record that is no JSON, or JSON of another shape.
    pub(crate) fn json(error: &serde_json::Error) -> Problem {
        let kind = if error.is_eof() { ProblemKind::Half } else { ProblemKind::Malformed };
        Problem::new(kind, json_says(error))
    }
}

/// What a JSON reader complains of, with the place in the record.
pub(crate) fn json_says(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let bare = text.rsplit_once(" at line ").map_or(text.as_str(), |(bare, _)| bare);
    let bare = &without_text(bare);
    match error.line() {
        0 => bare.clone(),
        1 => format!("{bare}, at byte {} of the record", error.column()),
        line => format!("{bare}, at line {line}, byte {} of the record", error.column()),
    }
}

/// A complaint without the text that it found: nobody knows what is in it.
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
