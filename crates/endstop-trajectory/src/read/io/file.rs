//! Splits a file into chunks that can be decoded independently: blocks of whole lines or list
//! elements of about a megabyte, or the whole file if it is one run.
//!
//! ```no_run
//! use endstop_trajectory::read::{Chunks, Opened, Options, Source};
//! let opened = Chunks::open(&Source::file("runs.jsonl"), &Options::default())?;
//! if let Opened::Runs(mut chunks) = opened {
//!     while let Some(chunk) = chunks.next() {
//!         let chunk = chunk?;                // could go to another thread here
//!         chunk.each(&mut |run| { /* Ok(Trajectory) or Err(Problem) */ });
//!         chunks.reuse(chunk);
//!     }
//! }
//! # Ok::<(), endstop_trajectory::read::Problem>(())
//! ```
//!
//! Only the format determines the chunk boundaries. Each chunk knows its position in the file, so
//! that a run has the same name and number regardless of the number of threads.

use super::chunk::{Chunk, Records, Whereabouts};
use super::detect::{self, Found};
use super::json_list::{Split, Step};
use super::open::{open_named, open_regular};
use super::repair::repaired;
use super::source::{Source, bare_name, stem, unreadable};
use super::truncated::is_half;
use super::unpack::Input;
use crate::read::format::{Head, Shape};
use crate::read::options::Options;
use crate::read::problem::{Problem, ProblemKind, json_says};
use endstop_core::bounded_json;
use memchr::{memchr, memchr_iter, memrchr};
use serde_json::{Map, Value};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

/// Number of bytes per read.
const BLOCK: usize = 1 << 20;

/// Maximum weight of the members next to a list, in bytes of parsed values.
const CONTEXT: u64 = 128 << 20;

/// The result of opening a file.
#[derive(Debug)]
pub enum Opened {
    /// The file is in a known format.
    Runs(Box<Chunks>),
    /// The file was found in a folder and is obviously not a run: a licence, an image, a program.
    /// Holds the reason.
    Skipped(&'static str),
}

/// An iterator over the chunks of a file.
pub struct Chunks {
    input: Input,
    pub(crate) place: Arc<Whereabouts>,
    max_record: u64,
    /// The number of the next line or element.
    at: u64,
    /// The offset in the unpacked file at which `window` begins.
    offset: u64,
    /// The bytes that were read and are not yet part of a chunk.
    window: Vec<u8>,
    spare: Vec<u8>,
    split: Split,
    context: Arc<Map<String, Value>>,
    /// The estimated memory of `context`.
    context_weight: u64,
    /// A problem to report after the chunk that was returned last.
    after: Option<Problem>,
    done: bool,
}

impl Chunks {
    /// Opens a file and detects its format.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not in a known format, or is not in the format given in
    /// `options`.
    pub fn open(source: &Source, options: &Options) -> Result<Opened, Problem> {
        let file = source.path().display().to_string();
        let raw: Box<dyn Read + Send> = if source.is_stdin() {
            Box::new(io::stdin())
        } else {
            let opened = if source.is_found() {
                // A walk can meet pipes and devices; a path that the user named is opened as it is.
                open_regular(source.path()).map(|file| Box::new(file) as Box<dyn Read + Send>)
            } else {
                open_named(source.path())
            };
            opened.map_err(|error| unreadable(source.path(), &error))?
        };
        Chunks::of(raw, source.clone(), file, options)
    }

    /// As [`Chunks::open`], for any reader. `file` is the name used in reports.
    ///
    /// # Errors
    ///
    /// As [`Chunks::open`].
    pub fn of(
        raw: Box<dyn Read + Send>,
        source: Source,
        file: String,
        options: &Options,
    ) -> Result<Opened, Problem> {
        let input = Input::new(raw).map_err(|error| Problem {
            file: file.clone(),
            at: None,
            kind: ProblemKind::Unreadable,
            what: format!("cannot be read: {error}"),
        })?;
        let name = if source.is_stdin() { "" } else { bare_name(&file) };
        let text = repaired(input.head());
        let first = detect::first_value(&text);
        let head = Head::new(name, &text, first.as_ref());
        let (format, shape) = match detect::find(&head, options, source.is_found()) {
            Found::Format(format, shape) => (format, shape),
            Found::NotMeant(why) => return Ok(Opened::Skipped(why)),
            Found::None(kind, what) => return Err(Problem { file, at: None, kind, what }),
        };
        let split = match shape {
            Shape::Elements(key, _) => Split::new(*key, false),
            Shape::Parts(key, _) => Split::new(*key, true),
            Shape::Lines(_) | Shape::Whole(_) | Shape::Session(_) | Shape::Archive(_) => {
                Split::new(None, false)
            }
        };
        let stem = if name.is_empty() { "-".to_owned() } else { stem(name).to_owned() };
        let offset = input.mark;
        Ok(Opened::Runs(Box::new(Chunks {
            input,
            place: Arc::new(Whereabouts { source, file, stem, format, shape }),
            max_record: options.max_record.max(1),
            at: 1,
            offset,
            window: Vec::new(),
            spare: Vec::new(),
            split,
            context: Arc::default(),
            context_weight: 0,
            after: None,
            done: false,
        })))
    }

    /// Returns the name of the format.
    pub fn format(&self) -> &'static str {
        self.place.format.name
    }

    /// Takes back the buffer of a chunk, so that the next chunk needs no allocation.
    pub fn reuse(&mut self, chunk: Chunk) {
        // A buffer that grew for one very long record is freed, so that it does not stay in memory.
        if chunk.bytes.capacity() > self.spare.capacity() && chunk.bytes.capacity() <= 4 * BLOCK {
            self.spare = chunk.bytes;
        }
    }

    fn problem(&self, at: Option<u64>, kind: ProblemKind, what: String) -> Problem {
        Problem { file: self.place.file.clone(), at, kind, what }
    }

    /// Reads more into the window and returns `false` at the end. If a packed file is truncated,
    /// the problem is reported after the content before the break.
    fn fill(&mut self, most: usize) -> bool {
        let room = self.window.capacity() - self.window.len();
        // Grow by a quarter: doubling would take twice the memory of the longest record.
        let more = most.max(self.window.len() / 4);
        if room < most && self.window.try_reserve_exact(more + 32).is_err() {
            let what =
                format!("not enough memory for a record of more than {} bytes", self.window.len());
            self.after = Some(self.problem(None, ProblemKind::TooLong, what));
            return false;
        }
        match self.input.fill(&mut self.window, most) {
            Ok(n) => n > 0,
            Err(error) => {
                let (kind, what) = if error.kind() == io::ErrorKind::UnexpectedEof {
                    (ProblemKind::Half, "the packed file is truncated".to_owned())
                } else {
                    (ProblemKind::Unreadable, format!("cannot continue reading: {error}"))
                };
                self.after = Some(self.problem(None, kind, what));
                false
            }
        }
    }

    /// Splits the front of the window off as a chunk; the rest stays in the window.
    fn cut(&mut self, end: usize, records: Records, at: u64) -> Chunk {
        let mut rest = std::mem::take(&mut self.spare);
        rest.clear();
        rest.extend_from_slice(&self.window[end..]);
        let mut bytes = std::mem::replace(&mut self.window, rest);
        bytes.truncate(end);
        let offset = self.offset;
        self.offset += end as u64;
        Chunk {
            bytes,
            records,
            at,
            offset,
            place: Arc::clone(&self.place),
            context: Arc::clone(&self.context),
            max_record: self.max_record,
        }
    }

    fn next_lines(&mut self) -> Option<Result<Chunk, Problem>> {
        // The rest of the window is searched as well, because it may contain whole lines after a
        // line that was skipped.
        let mut had = 0;
        loop {
            if !self.fill(BLOCK) {
                self.done = true;
                if self.window.is_empty() {
                    return self.after.take().map(Err);
                }
                let end = self.window.len();
                return Some(Ok(self.cut(end, Records::Lines, self.at)));
            }
            if let Some(end) = memrchr(b'\n', &self.window[had..]).map(|n| had + n + 1) {
                let at = self.at;
                self.at += memchr_iter(b'\n', &self.window[..end]).count() as u64;
                return Some(Ok(self.cut(end, Records::Lines, at)));
            }
            if self.window.len() as u64 > self.max_record {
                return Some(Err(self.skip_line()));
            }
            had = self.window.len();
        }
    }

    /// Skips a line that is too long, without holding it in memory.
    fn skip_line(&mut self) -> Problem {
        let mut length = self.window.len() as u64;
        self.offset += length;
        self.window.clear();
        loop {
            if !self.fill(BLOCK) {
                self.done = true;
                break;
            }
            if let Some(end) = memchr(b'\n', &self.window) {
                length += end as u64;
                self.offset += end as u64 + 1;
                self.window.drain(..=end);
                break;
            }
            length += self.window.len() as u64;
            self.offset += self.window.len() as u64;
            self.window.clear();
        }
        let at = self.at;
        self.at += 1;
        self.problem(Some(at), ProblemKind::TooLong, too_long("a line", length, self.max_record))
    }

    fn next_elements(&mut self) -> Option<Result<Chunk, Problem>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let first = self.at;
        loop {
            // Collect the complete items of the window.
            loop {
                match self.split.step(&self.window, self.max_record) {
                    Step::More => break,
                    Step::Element(range) => {
                        // Ranges are relative to the window, so the window must not move until the
                        // chunk is cut.
                        found.push(range);
                        self.at += 1;
                    }
                    Step::Member(name, value) => {
                        let value = &self.window[value];
                        // The members are held until the file ends, so their sum is limited, not
                        // each one.
                        self.context_weight += bounded_json::weight(value);
                        if self.context_weight > CONTEXT {
                            let what =
                                format!("{name}: the members next to the list are too large");
                            let problem = self.problem(None, ProblemKind::TooManyValues, what);
                            return Some(self.with_problem(found, first, problem));
                        }
                        match serde_json::from_slice::<Value>(&repaired(value)) {
                            Ok(value) => {
                                Arc::make_mut(&mut self.context).insert(name, value);
                            }
                            Err(error) => {
                                let what = format!("{name}: {}", json_says(&error));
                                let problem = self.problem(None, ProblemKind::Malformed, what);
                                return Some(self.with_problem(found, first, problem));
                            }
                        }
                    }
                    Step::TooLong { element, length } => {
                        let at = element.then_some(self.at);
                        let kind = if element { "an element" } else { "a member" };
                        if element {
                            self.at += 1;
                        }
                        let what = too_long(kind, length, self.max_record);
                        let problem = self.problem(at, ProblemKind::TooLong, what);
                        return Some(self.with_problem(found, first, problem));
                    }
                    Step::Malformed(what) => {
                        self.done = true;
                        let at = Some(self.at);
                        self.after = Some(self.problem(at, ProblemKind::Malformed, what));
                        break;
                    }
                }
            }
            let settled = self.split.settled();
            if !found.is_empty() && (settled >= BLOCK || self.done) {
                // The splitter's offsets must follow, because `cut` moves the window's front.
                self.split.forget(settled);
                return Some(Ok(self.cut(settled, Records::Elements(found), first)));
            }
            if self.done {
                return self.after.take().map(Err);
            }
            if found.is_empty() {
                // No element refers to this part of the window any more.
                self.window.drain(..settled);
                self.offset += settled as u64;
                self.split.forget(settled);
            }
            if !self.fill(BLOCK) {
                self.done = true;
                if self.after.is_none() && !self.split.is_over() {
                    let what = "the file ends in the middle of its list".to_owned();
                    self.after = Some(self.problem(Some(self.at), ProblemKind::Half, what));
                }
            }
        }
    }

    /// Returns the elements found so far as a chunk, and the problem after it; or the problem at
    /// once if there are none.
    fn with_problem(
        &mut self,
        found: Vec<Range<usize>>,
        first: u64,
        problem: Problem,
    ) -> Result<Chunk, Problem> {
        if found.is_empty() {
            return Err(problem);
        }
        self.after = Some(problem);
        let end = self.split.settled();
        self.split.forget(end);
        Ok(self.cut(end, Records::Elements(found), first))
    }

    fn whole(&mut self) -> Result<Chunk, Problem> {
        self.done = true;
        while self.fill(BLOCK) {
            if self.window.len() as u64 > self.max_record {
                self.window = Vec::new();
                let what = format!("one record of more than {} bytes; not read", self.max_record);
                return Err(self.problem(None, ProblemKind::TooLong, what));
            }
        }
        // A truncated JSON document is not a run. A file of lines is still read: its complete lines
        // are valid.
        if is_half(&self.window)
            && let Some(problem) = self.after.take()
        {
            return Err(problem);
        }
        let end = self.window.len();
        Ok(self.cut(end, Records::Whole, 1))
    }
}

/// Yields the chunks in order. An error concerns only the record that it names, and further chunks
/// may follow.
impl Iterator for Chunks {
    type Item = Result<Chunk, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let (false, Some(problem)) = (self.done, self.after.as_ref()) {
            // More chunks follow, for example after an element that was too long, so report the
            // problem now.
            let problem = problem.clone();
            self.after = None;
            return Some(Err(problem));
        }
        if self.done {
            return self.after.take().map(Err);
        }
        match self.place.shape {
            Shape::Lines(_) => self.next_lines(),
            Shape::Elements(..) | Shape::Parts(..) => self.next_elements(),
            Shape::Whole(_) | Shape::Session(_) | Shape::Archive(_) => Some(self.whole()),
        }
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunks")
            .field("file", &self.place.file)
            .field("format", &self.format())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

fn too_long(what: &str, length: u64, most: u64) -> String {
    format!("{what} of {length} bytes, which is more than {most}; not read")
}
