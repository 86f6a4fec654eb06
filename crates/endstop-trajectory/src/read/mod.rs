//! Reads recorded runs from a file, a folder or standard input: plain, gzip or zstd, in a named or
//! a detected format. At most one run is in memory at a time.
//!
//! ```no_run
//! use endstop_trajectory::read::{ReadStats, Options, for_each};
//! let mut stats = ReadStats::new();
//! let read = for_each("runs", &Options::default(), &mut |run| match run {
//!     Ok(run) => stats.run(&run),
//!     Err(problem) => stats.problem(&problem),
//! })?;
//! println!("{} runs in {} files", stats.runs, read.files);
//! # Ok::<(), endstop_trajectory::read::UnknownFormat>(())
//! ```
//!
//! `io` finds, unpacks and splits files, and detects their format. Each format is a folder in
//! `formats`; it contains the reader, and its head comment lists the quirks of the format. `build`
//! has the parts that the readers share.

mod build;
mod content;
mod findings;
mod format;
mod formats;
mod io;
mod options;
mod outcomes;
mod parallel;
mod problem;
mod stats;
#[doc(hidden)]
pub mod testing;
mod visited;

pub(crate) use build::aside::is_aside;
pub(crate) use build::fields::http_status;
pub(crate) use build::{arguments, parts};
pub use content::Content;
pub use findings::Findings;
pub(crate) use findings::shortened;
pub use formats::agents::endstop::ending as endstop_ending;
pub use formats::agents::opencode::session as opencode_session;
pub use formats::formats;
pub(crate) use formats::generic::atif::ours;
pub(crate) use formats::is_of_a_person;
pub use io::chunk::Chunk;
pub use io::file::{Chunks, Opened};
pub use io::open::open_regular;
pub use io::source::{HIDDEN, Source, Walk};
pub use options::Options;
pub use outcomes::Outcomes;
pub(crate) use outcomes::is_success;
pub use parallel::{Parallel, Summarise};
pub use problem::{Problem, ProblemKind};
pub use stats::{Finding, Position, ReadStats};
pub use visited::Visited;

use crate::model::Trajectory;
use std::path::PathBuf;

/// The requested format does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{0}`; expected one of {names}", names = names())]
pub struct UnknownFormat(pub String);

fn names() -> String {
    let names: Vec<&str> = formats().into_iter().map(|(name, _)| name).collect();
    names.join(", ")
}

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
            Ok(Opened::Skipped(why)) => visited.skip(why, &source),
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
    visited.walked(walk);
    Ok(visited)
}
