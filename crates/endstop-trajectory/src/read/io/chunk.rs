//! A chunk of a file, and the decoding of the runs in it.
//!
//! ```
//! use endstop_trajectory::read::{ReadStats, Chunk};
//! fn count(chunk: &Chunk, stats: &mut ReadStats) {
//!     chunk.each(&mut |run| match run {
//!         Ok(run) => stats.run(&run),
//!         Err(problem) => stats.problem(&problem),
//!     });
//! }
//! ```
//!
//! Runs borrow the bytes of their chunk. The chunk completes what a reader leaves out: the origin
//! of each run, and a name if the file has none.

use super::memory;
use super::open::open_regular;
use super::repair::repaired;
use super::source::Source;
use super::truncated::is_half;
use super::unpack::{Input, is_zip};
use crate::model::Trajectory;
use crate::read::format::{Format, Part, Place, Shape, Sink};
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use endstop_wire::stream::json_end::is_space;
use memchr::{memchr, memchr_iter};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

/// Maximum length in bytes of a file that accompanies a run.
const BESIDE: u64 = 16 << 20;

/// Maximum weight of that file, in bytes of parsed values.
const BESIDE_VALUES: u64 = 128 << 20;

/// A chunk of a file.
pub struct Chunk {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: Records,
    /// The number of the first line or element, from 1.
    pub(crate) at: u64,
    /// The offset in the unpacked file at which the chunk begins.
    pub(crate) offset: u64,
    pub(crate) place: Arc<Whereabouts>,
    /// The members of the object that precede the list.
    pub(crate) context: Arc<Map<String, Value>>,
    pub(crate) max_record: u64,
}

/// The layout of the records in a chunk.
pub(crate) enum Records {
    Lines,
    Elements(Vec<Range<usize>>),
    Whole,
}

/// The origin of a chunk.
pub(crate) struct Whereabouts {
    pub(crate) source: Source,
    pub(crate) file: String,
    /// The file's name without its extensions; the default id of a run.
    pub(crate) stem: String,
    pub(crate) format: &'static Format,
    pub(crate) shape: &'static Shape,
}

impl Chunk {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `true` if the chunk is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the name of the format.
    pub fn format(&self) -> &'static str {
        self.place.format.name
    }

    /// Decodes the records and passes each run and each problem to `out`, in order.
    pub fn each(&self, out: &mut Sink<'_>) {
        match (self.place.shape, &self.records) {
            (Shape::Lines(read), _) => self.lines(&mut |at, offset, line| {
                self.record(Some(at), offset, line, out, &mut |line, sink| read(line, sink));
            }),
            (Shape::Elements(_, read), Records::Elements(ranges)) => {
                self.elements(ranges, &mut |at, offset, bytes| {
                    self.record(Some(at), offset, bytes, out, &mut |bytes, sink| read(bytes, sink));
                });
            }
            (Shape::Parts(_, read), Records::Elements(ranges)) => {
                self.elements(ranges, &mut |at, offset, bytes| {
                    let place = &self.place;
                    let part = Part { stem: &place.stem, context: &self.context };
                    self.record(Some(at), offset, bytes, out, &mut |bytes, sink| {
                        read(bytes, &part, sink);
                    });
                });
            }
            (Shape::Whole(read) | Shape::Session(read) | Shape::Archive(read), _) => {
                let beside = |name: &str| self.beside(name);
                let file_of = |id: &str| self.file_of(id);
                let place = Place { file: &self.place.file, beside: &beside, file_of: &file_of };
                let read = &mut |bytes: &[u8], sink: &mut Sink<'_>| read(bytes, &place, sink);
                self.record(None, self.offset, &self.bytes, out, read);
            }
            // Unreachable: `Chunks` creates the records that the shape of the format requires.
            (Shape::Elements(..) | Shape::Parts(..), _) => {}
        }
    }

    fn lines(&self, each: &mut dyn FnMut(u64, u64, &[u8])) {
        let (mut from, mut at) = (0, self.at);
        while from < self.bytes.len() {
            let rest = &self.bytes[from..];
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = trimmed(&rest[..end]);
            if !line.is_empty() {
                each(at, self.offset + from as u64, line);
            }
            from += end + 1;
            at += 1;
        }
    }

    fn elements(&self, ranges: &[Range<usize>], each: &mut dyn FnMut(u64, u64, &[u8])) {
        for (range, at) in ranges.iter().zip(self.at..) {
            each(at, self.offset + range.start as u64, &self.bytes[range.clone()]);
        }
    }

    /// Decodes one record, and completes the runs and problems that its reader returns.
    fn record(
        &self,
        at: Option<u64>,
        offset: u64,
        bytes: &[u8],
        out: &mut Sink<'_>,
        read: &mut dyn FnMut(&[u8], &mut Sink<'_>),
    ) {
        let file = &self.place.file;
        if bytes.len() as u64 > self.max_record {
            let what =
                format!("{} bytes, which is more than {}; not read", bytes.len(), self.max_record);
            out(Err(Problem { file: file.clone(), at, kind: ProblemKind::TooLong, what }));
            return;
        }
        let text = repaired(bytes);
        let room = match self.place.shape {
            // An archive is compressed, so its weight is not known here. Its reader checks each entry
            // instead.
            Shape::Archive(_) if is_zip(bytes) => Ok(None),
            Shape::Session(_) => Ok(memory::turn_for(&text)),
            Shape::Lines(_)
            | Shape::Elements(..)
            | Shape::Parts(..)
            | Shape::Whole(_)
            | Shape::Archive(_) => memory::room_for(&text),
        };
        let _turn = match room {
            Ok(turn) => turn,
            Err(problem) => {
                return out(Err(Problem { file: file.clone(), at, ..problem }));
            }
        };
        // A text that was not changed is valid, and a character that is cut off at the end is not invalid.
        let changed = matches!(text, Cow::Owned(_));
        let invalid = changed.then(|| std::str::from_utf8(bytes).err()).flatten();
        let invalid = invalid.filter(|error| error.error_len().is_some());
        let mut not_text = invalid.map(|error| {
            let byte = error.valid_up_to();
            let line = memchr_iter(b'\n', &bytes[..byte]).count() as u64 + 1;
            let what = format!("not UTF-8 at byte {} of the file", offset + byte as u64);
            (at.or(Some(line)), what)
        });
        // Reset for each record: the runs of one record are numbered from 1.
        let mut unnamed = 0;
        read(&text, &mut |given| match given {
            Ok(mut run) => {
                if run.run_id.is_empty() {
                    unnamed += 1;
                    run.run_id = self.name(at.unwrap_or(unnamed));
                }
                self.fill_in(&mut run, at);
                out(Ok(run));
            }
            Err(mut problem) => {
                if problem.file.is_empty() {
                    problem.file.clone_from(file);
                }
                problem.at = problem.at.or(at);
                // Find the more specific cause. Readers only see that the JSON is invalid, not that
                // the file is truncated or is not text.
                if problem.kind == ProblemKind::Malformed {
                    if let Some((_, what)) = not_text.take_if(|_| problem.at == at) {
                        problem.what = what;
                    } else if problem.at == at && is_half(bytes) {
                        let Problem { kind, what, .. } = Problem::half(bytes);
                        (problem.kind, problem.what) = (kind, what);
                    }
                }
                out(Err(problem));
            }
        });
        // The record was read, but not exactly as it was written.
        if let Some((at, what)) = not_text {
            let what = format!("{what}; invalid bytes are replaced");
            out(Err(Problem { file: file.clone(), at, kind: ProblemKind::Malformed, what }));
        }
    }

    /// Returns the file's stem for its first run, and the stem with a number for the others.
    fn name(&self, number: u64) -> Cow<'static, str> {
        let stem = &self.place.stem;
        if number == 1 { stem.clone().into() } else { format!("{stem}#{number}").into() }
    }

    fn fill_in(&self, run: &mut Trajectory<'_>, at: Option<u64>) {
        run.origin.format = self.place.format.name;
        run.origin.file.clone_from(&self.place.file);
        run.origin.at = run.origin.at.or(at);
        for child in &mut run.children {
            self.fill_in(child, at);
        }
    }

    fn file_of(&self, id: &str) -> Option<Vec<u8>> {
        let path = self.place.source.file_of(id)?;
        let mut input = Input::new(Box::new(open_regular(&path).ok()?)).ok()?;
        let mut bytes = Vec::new();
        while bytes.len() as u64 <= self.max_record {
            // A file that cannot be read further has the lines before that.
            match input.fill(&mut bytes, 1 << 20) {
                Ok(0) | Err(_) => return Some(repaired(&bytes).into_owned()),
                Ok(_) => {}
            }
        }
        None
    }

    fn beside(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.place.source.beside(name)?;
        let mut bytes = Vec::new();
        let mut file = open_regular(&path).ok()?.take(BESIDE + 1);
        file.read_to_end(&mut bytes).ok()?;
        // One byte more than the maximum was requested, in order to detect a longer file.
        let fits = bytes.len() as u64 <= BESIDE;
        (fits && bounded_json::check(&bytes, BESIDE_VALUES).is_ok())
            .then(|| repaired(&bytes).into_owned())
    }
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunk")
            .field("file", &self.place.file)
            .field("at", &self.at)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = line {
        if !is_space(*first) {
            break;
        }
        line = rest;
    }
    while let [rest @ .., last] = line {
        if !is_space(*last) {
            break;
        }
        line = rest;
    }
    line
}
