//! Recognises the code in a message, fenced blocks and inline code, from left to right.
//!
//! ````text
//! ```python            a fenced block of backticks or tildes, to its closing fence or the end
//! FINAL('draft')
//! ```
//! Call `FINAL('x')`    inline code: a run of backticks to the next run of the same length in the
//!                      same paragraph; a run without a partner is text
//! ````
//!
//! Later text decides if a run has a partner; until then the calls after it are tentative. The
//! caller numbers its calls. The reader reports the number from which on calls are tentative, and
//! the calls that are code. Fences are recognised after any mix of blanks, quotation and list
//! markers. Source of the grammar: CommonMark 0.31, 4.5 and 6.1, simplified so that only a blank
//! line or a fence ends a paragraph.

use std::collections::HashMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
struct Fence {
    mark: char,
    len: usize,
}

/// A run of backticks, and the number of calls before it.
#[derive(Clone, Copy, Debug)]
struct Run {
    len: usize,
    calls: usize,
}

/// The position of the reader in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Only blanks and quotation marks so far.
    Blank,
    /// Also list markers.
    Marker,
    /// In the run of fence marks at the beginning of the line.
    Fence(usize),
    /// In the blanks after the fence marks.
    Tail(usize),
    /// Elsewhere.
    Text,
}

/// Returns the places at which `find` recognises something, except those in code. `find` reads the text
/// from each character on.
pub(crate) fn outside_code<T>(
    text: &str,
    mut find: impl FnMut(&str) -> Option<T>,
) -> Vec<(usize, T)> {
    let mut reader = Markdown::new();
    let mut found: Vec<Option<(usize, T)>> = Vec::new();
    for (at, c) in text.char_indices() {
        let here = find(&text[at..]).filter(|_| !reader.fenced());
        let before = found.len();
        found.extend(here.map(|what| Some((at, what))));
        reader.feed(c, before);
    }
    reader.finish(found.len());
    for range in reader.code {
        found[range].fill_with(|| None);
    }
    found.into_iter().flatten().collect()
}

/// The reader.
#[derive(Clone, Debug)]
pub(crate) struct Markdown {
    place: Place,
    fence: Option<Fence>,
    /// A fence that the line opens unless a backtick follows in it.
    opening: Option<(Fence, usize)>,
    /// Runs of this paragraph without a partner so far.
    runs: Vec<Run>,
    /// The length of the run that is being read.
    run: usize,
    /// Calls that are code, for the caller to take.
    pub(crate) code: Vec<Range<usize>>,
}

impl Markdown {
    pub(crate) fn new() -> Markdown {
        Markdown {
            place: Place::Blank,
            fence: None,
            opening: None,
            runs: Vec::new(),
            run: 0,
            code: Vec::new(),
        }
    }

    /// `true` if the reader is inside a fenced block.
    pub(crate) fn fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// Returns the number from which on calls may turn out to be code.
    pub(crate) fn tentative_from(&self) -> usize {
        let run = self.runs.first().map_or(usize::MAX, |r| r.calls);
        let opening = self.opening.map_or(usize::MAX, |(_, calls)| calls);
        run.min(opening)
    }

    /// Reads a character; `calls` is the number of calls before it.
    pub(crate) fn feed(&mut self, c: char, calls: usize) {
        if let Some(fence) = self.fence {
            self.in_fence(c, fence);
            return;
        }
        if c == '\n' {
            // Only a blank line ends a paragraph; inline code may span a single line break.
            let blank = self.place == Place::Blank;
            self.end_of_line(calls);
            if blank {
                self.end_of_paragraph();
            }
            self.place = Place::Blank;
            return;
        }
        match self.place {
            Place::Blank | Place::Marker if c == '`' || c == '~' => {
                self.place = Place::Fence(1);
                self.opening = Some((Fence { mark: c, len: 0 }, calls));
            }
            Place::Blank if matches!(c, ' ' | '\t' | '>' | '\r') => {}
            Place::Blank | Place::Marker
                if matches!(c, ' ' | '\t' | '>' | '-' | '*' | '+' | '.' | ')')
                    || c.is_ascii_digit() =>
            {
                self.place = Place::Marker;
            }
            Place::Fence(n) if self.opening.is_some_and(|(f, _)| f.mark == c) => {
                self.place = Place::Fence(n + 1);
            }
            Place::Fence(n) => {
                self.end_of_fence_marks(n);
                self.place = Place::Text;
                self.text(c, calls);
            }
            _ => {
                self.place = Place::Text;
                self.text(c, calls);
            }
        }
    }

    /// Ends the text.
    pub(crate) fn finish(&mut self, calls: usize) {
        if self.fence.is_none() {
            self.end_of_line(calls);
            self.end_of_paragraph();
        }
    }

    fn in_fence(&mut self, c: char, fence: Fence) {
        self.place = match (self.place, c) {
            (Place::Fence(n) | Place::Tail(n), '\n') => {
                // A closing fence is at least as long as the opening one (CommonMark 4.5).
                if n >= fence.len {
                    self.fence = None;
                }
                Place::Blank
            }
            (_, '\n') | (Place::Blank, ' ' | '\t' | '>' | '\r') => Place::Blank,
            (Place::Blank, c) if c == fence.mark => Place::Fence(1),
            (Place::Fence(n), c) if c == fence.mark => Place::Fence(n + 1),
            (Place::Fence(n) | Place::Tail(n), ' ' | '\t' | '\r') => Place::Tail(n),
            _ => Place::Text,
        };
    }

    /// Handles `n` fence marks at the beginning of a line: a possible fence, or a run of backticks.
    fn end_of_fence_marks(&mut self, n: usize) {
        if let Some((mut fence, calls)) = self.opening.take() {
            // Fewer than three marks are not a fence (CommonMark 4.5).
            if n >= 3 {
                fence.len = n;
                self.opening = Some((fence, calls));
            } else if fence.mark == '`' {
                self.end_of_run(n, calls);
            }
        }
    }

    fn text(&mut self, c: char, calls: usize) {
        match self.opening {
            Some((fence, before)) if fence.mark == '`' && c == '`' => {
                // The info string of a backtick fence contains no backtick (CommonMark 4.5), so
                // this is inline code.
                self.opening = None;
                self.end_of_run(fence.len, before);
            }
            Some(_) => return,
            None => {}
        }
        if c == '`' {
            self.run += 1;
        } else if self.run > 0 {
            let n = std::mem::take(&mut self.run);
            self.end_of_run(n, calls);
        }
    }

    fn end_of_run(&mut self, len: usize, calls: usize) {
        match self.runs.first() {
            // Decided early for the first run only, because runs between two partners are code and
            // cannot have partners of their own.
            Some(first) if first.len == len => {
                self.code.push(first.calls..calls);
                self.runs.clear();
            }
            _ => self.runs.push(Run { len, calls }),
        }
    }

    fn end_of_line(&mut self, calls: usize) {
        if let Place::Fence(n) = self.place {
            self.end_of_fence_marks(n);
        }
        if self.run > 0 {
            let n = std::mem::take(&mut self.run);
            self.end_of_run(n, calls);
        }
        if let Some((fence, before)) = self.opening.take() {
            self.end_of_paragraph();
            self.code.push(before..calls);
            self.fence = Some(fence);
        }
    }

    /// Pairs the remaining runs of the paragraph; a run without a partner is text.
    fn end_of_paragraph(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        // From the end, so that each run finds the next one of its length in linear time.
        let mut partner = vec![None; self.runs.len()];
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (i, run) in self.runs.iter().enumerate().rev() {
            partner[i] = last.insert(run.len, i);
        }
        let mut i = 0;
        while i < self.runs.len() {
            if let Some(j) = partner[i] {
                self.code.push(self.runs[i].calls..self.runs[j].calls);
                i = j;
            }
            i += 1;
        }
        self.runs.clear();
    }
}
