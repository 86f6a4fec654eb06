//! Finds the brackets that may open a call, without reading the text between them.
//!
//! An opening is a `(` after a name that can be called, possibly with blanks between them. In `The
//! answer (see below) is FINAL (42)` the second bracket is one. Names and brackets are rare, so the
//! search jumps from a name to a bracket and from there to the next name: text with many names and
//! no bracket, or the reverse, costs one search. Blocks bound the search, so that a caller that
//! stops at each opening does not search the same text for names repeatedly.

use super::declaration::Callee;
use memchr::{memchr, memchr_iter, memmem};

/// Number of bytes that are searched at once.
const BLOCK: usize = 4096;

/// Length in bytes below which checking each bracket is faster than searching names.
const SHORT: usize = 256;

const NAMES: [Callee; 3] = [Callee::Final, Callee::FinalVar, Callee::Submit];

/// The search for openings.
#[derive(Clone, Debug)]
pub(super) struct Openings {
    /// Prefixes of the names; `FINAL` is also a prefix of `FINAL_VAR`. `None` if names count in any
    /// case.
    names: Option<[memmem::Finder<'static>; 2]>,
}

impl Openings {
    pub(super) fn new(case_sensitive: bool) -> Openings {
        let names = || [memmem::Finder::new("FINAL"), memmem::Finder::new("SUBMIT")];
        Openings { names: case_sensitive.then(names) }
    }

    /// Returns the first bracket of an opening from this byte on.
    pub(super) fn next(&self, text: &str, from: usize) -> Option<usize> {
        let mut begin = from;
        while begin < text.len() {
            let end = text.len().min(begin + BLOCK);
            if let Some(found) = self.in_block(text, begin, end) {
                return Some(found);
            }
            begin = end;
        }
        None
    }

    /// Returns `false` if no bracket in this chunk can be one of an opening, judged by the byte before
    /// it. A bracket whose name may be in an earlier chunk returns `true`.
    #[inline]
    pub(super) fn may_be_in(&self, chunk: &[u8]) -> bool {
        memchr_iter(b'(', chunk).any(|bracket| {
            let before = chunk.get(..bracket).unwrap_or_default();
            let last = before.iter().rev().find(|byte| !matches!(byte, b' ' | b'\t'));
            last.is_none_or(|last| self.ends_name(*last))
        })
    }

    /// Returns `true` if a name can end in this byte. Most words do not, so this check is cheap.
    fn ends_name(&self, byte: u8) -> bool {
        match byte {
            b'L' | b'R' | b'T' => true,
            b'l' | b'r' | b't' => self.names.is_none(),
            _ => false,
        }
    }

    fn in_block(&self, text: &str, begin: usize, end: usize) -> Option<usize> {
        let bytes = text.as_bytes().get(begin..end)?;
        // The name of the first bracket may be in an earlier block.
        let mut bracket = memchr(b'(', bytes)?;
        let mut ahead = [0; 2];
        loop {
            if self.is_opening(text, begin + bracket) {
                return Some(begin + bracket);
            }
            let mut from = bracket + 1;
            if let Some(names) = self.names.as_ref().filter(|_| bytes.len() > SHORT) {
                // No bracket before the next name can be an opening, so the search skips them.
                for (next, name) in ahead.iter_mut().zip(names) {
                    if *next < from {
                        let found = name.find(bytes.get(from..)?);
                        *next = found.map_or(usize::MAX, |at| from + at);
                    }
                }
                from = ahead[0].min(ahead[1]);
            } else {
                // A bracket directly after another one has no name before it.
                while bytes.get(from) == Some(&b'(') {
                    from += 1;
                }
            }
            bracket = from + memchr(b'(', bytes.get(from..)?)?;
        }
    }

    /// `true` if the word before the bracket is a name.
    fn is_opening(&self, text: &str, bracket: usize) -> bool {
        let mut before = text.as_bytes().get(..bracket).unwrap_or_default();
        while let [rest @ .., b' ' | b'\t'] = before {
            before = rest;
        }
        if !before.last().is_some_and(|last| self.ends_name(*last)) {
            return false;
        }
        NAMES.iter().any(|callee| {
            let name = callee.as_str().as_bytes();
            let split = before.len().checked_sub(name.len());
            let Some((rest, word)) = split.and_then(|at| before.split_at_checked(at)) else {
                return false;
            };
            let is_name = match self.names {
                Some(_) => word == name,
                None => word.eq_ignore_ascii_case(name),
            };
            // A name is ASCII, so a whole character ends before it.
            let ahead = || text.get(..rest.len()).and_then(|rest| rest.chars().next_back());
            is_name && !ahead().is_some_and(|c| c == '_' || c.is_alphanumeric())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all openings by the definition: a name, blanks, a bracket.
    fn literal(text: &str, case_sensitive: bool) -> Vec<usize> {
        let is_word = |c: char| c == '_' || c.is_alphanumeric();
        let opens = |bracket: usize| {
            let before = text[..bracket].trim_end_matches([' ', '\t']);
            let word = &before[before.trim_end_matches(is_word).len()..];
            NAMES.iter().any(|name| {
                if case_sensitive {
                    word == name.as_str()
                } else {
                    word.eq_ignore_ascii_case(name.as_str())
                }
            })
        };
        text.match_indices('(').map(|(at, _)| at).filter(|at| opens(*at)).collect()
    }

    fn all(text: &str, case_sensitive: bool) -> Vec<usize> {
        let openings = Openings::new(case_sensitive);
        let mut from = 0;
        std::iter::from_fn(|| {
            let found = openings.next(text, from)?;
            from = found + 1;
            Some(found)
        })
        .collect()
    }

    #[test]
    fn openings_are_found_at_every_offset() {
        let unit = "FINAL(1) FINAL (2) FINAL_VAR\t(x) (((SUBMIT( xFINAL( \u{e9}FINAL( _SUBMIT( \
                    FINALLY( FINAL\n( final( Submit ( FINAL FINAL FINAL ( f(FINAL(";
        for pad in [0, 1, 2, 30, 4000, 4060, 4090, 4095, 4096] {
            for fill in ["y", " ", "(", "FINAL "] {
                let text = format!("{}{unit}{}{unit}", fill.repeat(pad), fill.repeat(4096 - pad));
                for case_sensitive in [true, false] {
                    assert_eq!(all(&text, case_sensitive), literal(&text, case_sensitive));
                }
            }
        }
    }
}
