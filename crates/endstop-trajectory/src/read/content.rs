//! The content of one part of the input: a file on disk, or anything that can be read.
//!
//! ```
//! use endstop_trajectory::read::Content;
//! let line = br#"{"schema":"neutral-traj/1","run_id":"1","steps":[]}"#;
//! let part = Content::of(line.to_vec(), "runs.jsonl");
//! assert!(format!("{part:?}").contains("runs.jsonl"));
//! ```

use super::io::file::{Chunks, Opened};
use super::io::source::Source;
use super::options::Options;
use super::problem::Problem;
use std::fmt;
use std::io::{Cursor, Read};

/// The content of a file, or whole records of it; plain, or packed with gzip or zstd.
pub enum Content {
    /// A file on disk.
    File(Source),
    /// Anything that can be read.
    Stream {
        /// The bytes, which are read in chunks and need not fit into the memory.
        input: Box<dyn Read + Send>,
        /// The name of the file: it helps to recognise the format, and names the dataset by default.
        file: String,
    },
}

impl Content {
    /// Creates the content of a file of this name.
    pub fn of(bytes: Vec<u8>, file: impl Into<String>) -> Content {
        Content::Stream { input: Box::new(Cursor::new(bytes)), file: file.into() }
    }

    /// Returns the name of the file.
    pub(crate) fn name(&self) -> String {
        match self {
            Content::File(source) => source.path().display().to_string(),
            Content::Stream { file, .. } => file.clone(),
        }
    }

    /// Opens the content and detects its format.
    pub(crate) fn open(self, options: &Options) -> Result<Opened, Problem> {
        match self {
            Content::File(source) => Chunks::open(&source, options),
            Content::Stream { input, file } => {
                Chunks::of(input, Source::file(&file), file, options)
            }
        }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::File(source) => f.debug_tuple("File").field(source).finish(),
            Content::Stream { file, .. } => f.debug_struct("Stream").field("file", file).finish(),
        }
    }
}
