//! The description of a format: how a file of it is recognised, and how it is split into records.
//!
//! ```text
//! pub(crate) const FORMATS: &[Format] =
//!     &[Format { name: "x", about: "X: its logs", recognises, of_a_person: false,
//!     shape: Some(Shape::Whole(read)) }];
//! ```

use super::io::truncated::is_half;
use super::io::unpack::LINE;
use super::problem::Problem;
use crate::model::Trajectory;
use serde_json::{Map, Value};
use std::cell::OnceCell;

/// A format that the crate recognises.
pub(crate) struct Format {
    /// The format's name, as `--format` spells it.
    pub(crate) name: &'static str,
    /// One line for the user: the program that writes the format.
    pub(crate) about: &'static str,
    /// Returns `true` if the beginning of a file looks like this format.
    pub(crate) recognises: fn(&Head<'_>) -> bool,
    /// `true` if a run is a session of a person with an agent, which may have several prompts.
    pub(crate) of_a_person: bool,
    /// The way a file is split into records, and the function that reads one; `None` in a build
    /// without the feature `benchmarks`, if it is one of these.
    pub(crate) shape: Option<Shape>,
}

/// The beginning of a file, for format detection.
pub(crate) struct Head<'h> {
    /// The file's name, without its folder and without `.gz` or `.zst`; empty for standard input.
    pub(crate) name: &'h str,
    /// The first bytes, unpacked; the whole file if it is short.
    pub(crate) bytes: &'h [u8],
    /// The first record, if it is JSON: the first line, or the whole of a short file.
    pub(crate) first: Option<&'h Value>,
    /// The objects of the first lines, and those of the lines after them. Most formats look at them, so
    /// they are parsed once; `json_lines` fills them.
    pub(crate) objects: OnceCell<Vec<Map<String, Value>>>,
    pub(crate) more_objects: OnceCell<Vec<Map<String, Value>>>,
}

impl<'h> Head<'h> {
    /// Creates the beginning of a file, of which no line was parsed.
    pub(crate) fn new(name: &'h str, bytes: &'h [u8], first: Option<&'h Value>) -> Head<'h> {
        let (objects, more_objects) = (OnceCell::new(), OnceCell::new());
        Head { name, bytes, first, objects, more_objects }
    }

    /// Returns `true` if the file is JSON lines: a second value follows the first on a line of its
    /// own. A first line that is longer than the part that was read also counts as one of several
    /// lines.
    pub(crate) fn is_lines(&self) -> bool {
        match memchr::memchr(b'\n', self.bytes) {
            None => self.bytes.len() >= LINE,
            Some(end) => {
                let (line, rest) = self.bytes.split_at(end);
                // A line that is an incomplete value belongs to a pretty-printed document.
                (line.trim_ascii().is_empty() || !is_half(line)) && !rest.trim_ascii().is_empty()
            }
        }
    }

    /// Returns a member of the first record, if that record is an object.
    pub(crate) fn member(&self, name: &str) -> Option<&Value> {
        self.first?.as_object()?.get(name)
    }

    /// Returns the first element of the first record, if that record is a list.
    pub(crate) fn element(&self) -> Option<&Value> {
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
    #[cfg_attr(not(feature = "benchmarks"), expect(dead_code, reason = "only benchmarks have it"))]
    Parts(Option<&'static str>, fn(&[u8], &Part<'_>, &mut Sink<'_>)),
    /// The file is one run, or a few runs that belong together.
    Whole(fn(&[u8], &Place<'_>, &mut Sink<'_>)),
    /// As `Whole`, for a file of lines. The reader limits the memory of each line, so that a line that is
    /// too heavy loses only itself.
    Session(fn(&[u8], &Place<'_>, &mut Sink<'_>)),
    /// As `Whole`, for a file that may be a zip archive. The reader limits the memory of each entry
    /// of an archive, because the length of an archive does not show how much it unpacks to.
    Archive(fn(&[u8], &Place<'_>, &mut Sink<'_>)),
}

/// The location of a file that is read as a whole.
pub(crate) struct Place<'p> {
    /// The file's path, as the user gave it; `-` for standard input.
    pub(crate) file: &'p str,
    /// Reads a file in the same folder, if it exists (`result.json`); never outside the folder that
    /// the user named.
    pub(crate) beside: &'p dyn Fn(&str) -> Option<Vec<u8>>,
    /// Reads the file of another session, by the id at the end of its name: in the same folder, or elsewhere
    /// in the folder that the user named.
    pub(crate) file_of: &'p dyn Fn(&str) -> Option<Vec<u8>>,
}

/// The location of a list element.
#[cfg_attr(not(feature = "benchmarks"), expect(dead_code, reason = "for the shape `Parts`"))]
pub(crate) struct Part<'p> {
    /// The file's name, without its folder and its extension.
    pub(crate) stem: &'p str,
    /// The members that precede the list in its object.
    pub(crate) context: &'p Map<String, Value>,
}
