//! `matching = "call"`: finds the calls of `FINAL`, `FINAL_VAR` and `SUBMIT` in a stream of text.
//!
//! A left-to-right scanner with these properties, for any text:
//!
//! - the result does not depend on how the text is split into chunks;
//! - the work is linear in the text, even for a hundred thousand nested open calls;
//! - text without an open call is only searched for the next opening, at the speed of `memchr`;
//! - a call that never closes does not hide a later call.
//!
//! A call that is not a declaration is prose, and does not hide a later call either. The argument
//! of a declaration belongs to it: with [`Pick::First`] the declaration that begins first counts,
//! with [`Pick::Last`] the one that ends last.
//!
//! ```
//! use endstop_core::policy::final_pattern::{Pick, Scanner, ScannerOptions};
//! let mut s = Scanner::new(ScannerOptions { prose: true, ..ScannerOptions::default() });
//! s.push("I am done: FIN");
//! s.push("AL('Par");
//! assert!(s.decided().is_none());
//! s.push("is')");
//! assert_eq!(s.decided().unwrap().argument(), "'Paris'");
//! ```

use super::argument;
use super::brackets::{Brackets, Closed};
use super::declaration::{Callee, Declaration, Pick, ScannerOptions};
use super::opening::Openings;
use crate::visible::markdown::Markdown;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not closed so far.
    Open,
    /// Closed at this byte; counts if it ends its line.
    Awaiting(usize),
    /// Closed at this byte; counts.
    Declared(usize),
    /// Does not count.
    Dead,
}

#[derive(Clone, Debug)]
struct Call {
    callee: Callee,
    at: usize,
    /// The first byte of the argument.
    argument: usize,
    begins_line: bool,
    state: State,
}

/// The identifier that may be a callee's name.
#[derive(Clone, Copy, Debug)]
struct Word {
    start: usize,
    end: usize,
    begins_line: bool,
    /// `true` if blanks follow the word.
    over: bool,
}

/// The scanner.
#[derive(Clone, Debug)]
pub struct Scanner {
    options: ScannerOptions,
    text: String,
    openings: Openings,
    /// `true` if no call is open or waits for the end of its line, so that text is only searched
    /// for the next opening.
    idle: bool,
    /// Number of bytes that the Markdown reader has read.
    read: usize,
    /// Steps of bracket matching by earlier matchers.
    work: u64,
    calls: Vec<Call>,
    /// All calls before this one are dead.
    front: usize,
    brackets: Brackets,
    markdown: Option<Markdown>,
    word: Option<Word>,
    /// `true` if only blanks and list or quotation marks precede on the line.
    at_line_start: bool,
    after_word: bool,
    /// `true` after an `=` that belongs to a keyword unless another `=` follows.
    equals: bool,
    awaiting: Vec<u32>,
    closed: Vec<Closed>,
    finished: bool,
}

impl Scanner {
    /// Creates a scanner at the start of a text.
    pub fn new(options: ScannerOptions) -> Scanner {
        Scanner {
            options,
            text: String::new(),
            openings: Openings::new(options.case_sensitive),
            idle: true,
            read: 0,
            work: 0,
            calls: Vec::new(),
            front: 0,
            brackets: Brackets::default(),
            markdown: options.prose.then(Markdown::new),
            word: None,
            at_line_start: true,
            after_word: false,
            equals: false,
            awaiting: Vec::new(),
            closed: Vec::new(),
            finished: false,
        }
    }

    /// Reads the next chunk. Chunks after [`finish`](Self::finish) are ignored.
    pub fn push(&mut self, piece: &str) {
        if !self.skip(piece) {
            self.read(piece);
        }
    }

    /// Reads a chunk that [`skip`](Self::skip) has left.
    pub(super) fn read(&mut self, piece: &str) {
        if self.finished {
            return;
        }
        let mut at = self.text.len();
        self.text.push_str(piece);
        while at < self.text.len() {
            if self.idle {
                let Some(bracket) = self.openings.next(&self.text, at) else { return };
                self.catch_up(bracket);
                self.idle = false;
                at = bracket;
            }
            let Some(c) = self.text.get(at..).and_then(|rest| rest.chars().next()) else { return };
            self.character(at, c);
            at += c.len_utf8();
            self.read = at;
            self.rest_if_possible();
        }
    }

    /// Stores a chunk that cannot change the result, and returns `true`; leaves any other chunk to
    /// [`read`](Self::read).
    #[inline]
    pub(super) fn skip(&mut self, piece: &str) -> bool {
        // Models stream a few bytes at a time, and most chunks have no bracket after a name. For a
        // few bytes a loop costs less than the call of a vectorised search.
        let bytes = piece.as_bytes();
        let opens = match bytes.len() {
            0..16 => bytes.iter().fold(0, |found, byte| found | u8::from(*byte == b'(')) != 0,
            _ => self.openings.may_be_in(bytes),
        };
        let skipped = self.idle && !opens && !self.finished;
        if skipped {
            self.text.push_str(piece);
        }
        skipped
    }

    /// Ends the text.
    pub fn finish(&mut self) {
        if self.finished {
            return;
        }
        self.finished = true;
        // Without a call there is nothing to decide, so the skipped text need not be read.
        if self.calls.is_empty() {
            return;
        }
        if self.idle {
            self.read_markdown(self.text.len());
        }
        if let Some(markdown) = &mut self.markdown {
            markdown.finish(self.calls.len());
        }
        self.kill_code();
        self.end_of_line(true);
        for call in &mut self.calls {
            if call.state == State::Open {
                call.state = State::Dead;
            }
        }
    }

    /// Returns the declaration if no later text can change it; in mid-text only for
    /// [`Pick::First`].
    pub fn decided(&mut self) -> Option<Declaration<'_>> {
        if self.options.pick == Pick::Last {
            return None;
        }
        while self.calls.get(self.front).is_some_and(|c| c.state == State::Dead) {
            self.front += 1;
        }
        let tentative = self.markdown.as_ref().map_or(usize::MAX, Markdown::tentative_from);
        let call = self.calls.get(self.front)?;
        match call.state {
            // A later backtick may still turn a tentative call into inline code.
            State::Declared(end) if self.front < tentative => Some(self.declaration(call, end)),
            _ => None,
        }
    }

    /// Returns all declarations, starting with the one that counts. Call it after
    /// [`finish`](Self::finish).
    pub fn declarations(&self) -> Vec<Declaration<'_>> {
        let mut found: Vec<(usize, &Call)> = self
            .calls
            .iter()
            .filter_map(|c| match c.state {
                State::Declared(end) => Some((end, c)),
                _ => None,
            })
            .collect();
        if self.options.pick == Pick::Last {
            // The one that ends last counts; if two end together, the one that begins first.
            found.sort_by_key(|(end, c)| std::cmp::Reverse((*end, std::cmp::Reverse(c.at))));
        }
        found.into_iter().map(|(end, c)| self.declaration(c, end)).collect()
    }

    /// Returns the number of elementary steps of the bracket matching so far.
    #[doc(hidden)]
    pub fn work(&self) -> u64 {
        self.text.len() as u64 + self.work + self.brackets.work()
    }

    fn declaration<'a>(&'a self, call: &Call, end: usize) -> Declaration<'a> {
        Declaration {
            callee: call.callee,
            at: call.at,
            argument: self.text.get(call.argument..end).unwrap_or_default(),
        }
    }

    /// Stops reading character by character if nothing depends on the next ones.
    fn rest_if_possible(&mut self) {
        while self.calls.get(self.front).is_some_and(|c| c.state == State::Dead) {
            self.front += 1;
        }
        let all_dead = self.front == self.calls.len();
        if all_dead {
            // Dead calls may still have open brackets; their state is dropped to save work.
            self.work += self.brackets.work();
            self.brackets = Brackets::default();
            self.awaiting.clear();
            self.equals = false;
        }
        // Text after the first declaration can still decide about it, for example the rest of its
        // paragraph, so `Pick::First` may not rest here.
        let settled = self.brackets.is_empty() && self.awaiting.is_empty();
        self.idle = all_dead || (settled && self.options.pick == Pick::Last);
    }

    /// Reads text that was only searched so far, up to the bracket of an opening.
    fn catch_up(&mut self, bracket: usize) {
        let skipped = self.text.get(self.read..bracket).unwrap_or_default();
        if let Some(end) = skipped.rfind(['\n', '\r']) {
            // Only the Markdown reader has state that spans more than a line.
            self.read_markdown(self.read + end + 1);
            self.word = None;
            self.after_word = false;
            self.at_line_start = true;
        }
        while self.read < bracket {
            let rest = self.text.get(self.read..).unwrap_or_default();
            let Some(c) = rest.chars().next() else { return };
            self.character(self.read, c);
            self.read += c.len_utf8();
        }
    }

    /// Lets the Markdown reader read up to `end`, in text without openings.
    fn read_markdown(&mut self, end: usize) {
        let calls = self.calls.len();
        let from = std::mem::replace(&mut self.read, end);
        let Some(markdown) = &mut self.markdown else { return };
        for c in self.text.get(from..end).unwrap_or_default().chars() {
            markdown.feed(c, calls);
            for range in markdown.code.drain(..) {
                for call in self.calls.get_mut(range).into_iter().flatten() {
                    call.state = State::Dead;
                }
            }
        }
    }

    fn character(&mut self, at: usize, c: char) {
        self.line_end(c);
        if let Some(markdown) = &mut self.markdown {
            markdown.feed(c, self.calls.len());
        }
        self.kill_code();

        // `==` is a comparison and not a keyword, so the decision waits for the next character.
        if self.equals && c != '=' && self.keyword_before(at - 1) {
            self.brackets.keyword();
        }
        self.equals = c == '=' && !self.equals && !self.brackets.is_empty();

        self.brackets.feed(c, self.after_word, &mut self.closed);
        self.close(at);

        if c == '(' {
            self.open(at);
        }
        self.read_word(at, c);
    }

    /// Tracks the identifier before the reader, and if it is at the beginning of its line.
    fn read_word(&mut self, at: usize, c: char) {
        let in_word = c == '_' || c.is_alphanumeric();
        if in_word {
            match &mut self.word {
                Some(w) if !w.over => w.end = at + c.len_utf8(),
                _ => {
                    self.word = Some(Word {
                        start: at,
                        end: at + c.len_utf8(),
                        begins_line: self.at_line_start,
                        over: false,
                    });
                }
            }
        } else if c == ' ' || c == '\t' {
            if let Some(w) = &mut self.word {
                w.over = true;
            }
        } else {
            self.word = None;
        }
        self.after_word = in_word;
        // Quotation and list marks of Markdown may precede a call at the beginning of its line.
        self.at_line_start = c == '\n'
            || c == '\r'
            || (self.at_line_start && matches!(c, ' ' | '\t' | '>' | '-' | '*' | '#'));
    }

    fn open(&mut self, at: usize) {
        let fenced = self.markdown.as_ref().is_some_and(Markdown::fenced);
        let Some(word) = self.word.filter(|_| !fenced) else {
            return;
        };
        let name = self.text.get(word.start..word.end).unwrap_or_default();
        let Some(callee) = Callee::named(name, self.options.case_sensitive) else {
            return;
        };
        let Ok(id) = u32::try_from(self.calls.len()) else {
            return;
        };
        self.calls.push(Call {
            callee,
            at: word.start,
            argument: at + 1,
            begins_line: word.begins_line,
            state: State::Open,
        });
        self.brackets.open(id);
    }

    /// Classifies the calls that the bracket at `end` closed.
    fn close(&mut self, end: usize) {
        for closed in self.closed.drain(..) {
            let Some(call) = self.calls.get_mut(closed.id as usize) else {
                continue;
            };
            if call.state != State::Open {
                continue;
            }
            let argument = self.text.get(call.argument..end).unwrap_or_default();
            let bare = match call.callee {
                // A keyword argument does not occur in prose, so `SUBMIT` counts anywhere.
                Callee::Submit if closed.keyword => Some(false),
                Callee::Submit => None,
                Callee::Final => argument::is_bare(argument),
                Callee::FinalVar => argument::is_bare_name(argument),
            };
            call.state = match bare {
                None => State::Dead,
                Some(true) if !call.begins_line => {
                    self.awaiting.push(closed.id);
                    State::Awaiting(end)
                }
                Some(_) => State::Declared(end),
            };
        }
    }

    fn line_end(&mut self, c: char) {
        match c {
            ' ' | '\t' | '.' | '!' | '*' => {}
            '\n' | '\r' => self.end_of_line(true),
            _ => self.end_of_line(false),
        }
    }

    /// Decides about the calls that wait for the end of their line: `ends` is `false` if other text
    /// follows them.
    fn end_of_line(&mut self, ends: bool) {
        for id in self.awaiting.drain(..) {
            if let Some(call) = self.calls.get_mut(id as usize) {
                if let State::Awaiting(end) = call.state {
                    call.state = if ends { State::Declared(end) } else { State::Dead };
                }
            }
        }
    }

    fn kill_code(&mut self) {
        if let Some(markdown) = &mut self.markdown {
            for range in markdown.code.drain(..) {
                for call in self.calls.get_mut(range).into_iter().flatten() {
                    call.state = State::Dead;
                }
            }
        }
    }

    /// `true` if an identifier at the beginning of an argument precedes the `=` at this byte.
    fn keyword_before(&self, equals: usize) -> bool {
        let before = self.text.get(..equals).unwrap_or_default().trim_end();
        let rest = before.trim_end_matches(|c: char| c == '_' || c.is_alphanumeric());
        let name = before.get(rest.len()..).unwrap_or_default();
        argument::is_keyword(name) && rest.trim_end().ends_with(['(', ','])
    }
}

#[cfg(test)]
mod tests;
