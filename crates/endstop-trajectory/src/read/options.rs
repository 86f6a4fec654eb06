//! Options of a reader.
//!
//! ```
//! use endstop_trajectory::read::Options;
//! let mut options = Options::default();
//! options.format = Some("codex".to_owned());
//! ```

/// Options for reading files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The name of a format in [`formats`](crate::read::formats); `None` detects the format of each file.
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
