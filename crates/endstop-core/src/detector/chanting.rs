//! `chanting`: detects, while it is streamed, a response that repeats the same section of text
//! again and again, which is how models degenerate.
//!
//! ```
//! use endstop_core::{Registry, StepContext, TerminationPolicy};
//! let mut policy = Registry::new().build_text("chanting")?;
//! policy.begin_turn();
//! let stop = (0..100).find_map(|_| policy.on_delta("Let me try that once more. ", &StepContext::default()));
//! assert_eq!(stop.unwrap().evidence, "\"Let me try that once more. \" 14 times in a row, up to character 400");
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! A text is periodic if each character equals the one a fixed distance before it. The detector
//! guesses the distance from the previous occurrence of the last [`WINDOW`] characters, and then
//! checks it character by character. So the work per character is constant, and the result does
//! not depend on how the text is split into chunks. A section without a letter (a line of dashes,
//! a table of numbers) is not a chant.

use std::collections::HashMap;

/// Length in characters of the window whose previous occurrence gives the period.
// Shorter periods are found as well, because a window of a periodic text recurs after one period.
const WINDOW: usize = 16;
/// Longest period that is searched for, in characters.
const LONGEST: usize = 4096;

/// The search through one response.
#[derive(Clone, Debug)]
pub(super) struct Chant {
    times: usize,
    min_chars: usize,
    /// The most recent characters.
    last: Vec<char>,
    /// Number of characters before those, which were dropped.
    dropped: usize,
    /// Position of the last occurrence of each window, by its hash.
    windows: HashMap<u64, usize>,
    /// Rolling hash of the last window.
    hash: u64,
    /// The distance that is being checked; 0 if there is none.
    period: usize,
    /// Number of characters in a row that equal the one a period before.
    held: usize,
    /// The evidence, once the response has chanted.
    found: Option<String>,
}

/// Base of the polynomial rolling hash, modulo 2^64.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
/// `BASE` to the power of [`WINDOW`], the factor of the character that leaves the window.
const OLDEST: u64 = power(BASE, WINDOW as u32);

const fn power(base: u64, exponent: u32) -> u64 {
    base.wrapping_pow(exponent)
}

impl Chant {
    pub(super) fn new(times: u32, min_chars: u32) -> Chant {
        Chant {
            times: times as usize,
            min_chars: min_chars as usize,
            last: Vec::new(),
            dropped: 0,
            windows: HashMap::new(),
            hash: 0,
            period: 0,
            held: 0,
            found: None,
        }
    }

    /// Resets the state for the next response.
    pub(super) fn reset(&mut self) {
        self.last.clear();
        self.dropped = 0;
        self.windows.clear();
        self.hash = 0;
        self.period = 0;
        self.held = 0;
        self.found = None;
    }

    /// Reads a complete response, and forgets everything read before.
    pub(super) fn whole(&mut self, text: &str) {
        // The streamed chunks of the same response may have been read already.
        self.reset();
        let _ = self.on_delta(text);
    }

    /// `true` if the response chanted.
    pub(super) fn found(&self) -> bool {
        self.found.is_some()
    }

    /// Reads the next chunk; returns the evidence once the response chants.
    pub(super) fn on_delta(&mut self, piece: &str) -> Option<String> {
        for c in piece.chars() {
            if self.found.is_some() {
                break;
            }
            self.next(c);
        }
        self.found.clone()
    }

    fn next(&mut self, c: char) {
        let at = self.last.len();
        let holds = self.period > 0 && self.last[at - self.period] == c;
        self.last.push(c);
        self.held = if holds { self.held + 1 } else { 0 };
        if !holds {
            self.period = 0;
        }
        // The `+ 1` gives NUL a weight; otherwise leading NULs would not change the hash.
        self.hash = self.hash.wrapping_mul(BASE).wrapping_add(u64::from(u32::from(c)) + 1);
        if at >= WINDOW {
            let oldest = u64::from(u32::from(self.last[at - WINDOW])) + 1;
            self.hash = self.hash.wrapping_sub(oldest.wrapping_mul(OLDEST));
        }
        if at + 1 >= WINDOW {
            let place = self.dropped + at;
            // A collision of hashes only suggests a wrong period, which `guess` rejects.
            if let Some(before) = self.windows.insert(self.hash, place) {
                if self.period == 0 {
                    self.guess(place - before);
                }
            }
        }
        if self.period > 0 && self.held >= (self.times - 1) * self.period {
            self.judge();
        }
        if self.last.len() >= 4 * LONGEST {
            self.forget();
        }
    }

    /// Checks a candidate period backwards, as far as it holds.
    fn guess(&mut self, period: usize) {
        if period > LONGEST || period >= self.last.len() {
            return;
        }
        let holds = (period..self.last.len()).rev();
        // Enough characters to decide; without this bound a guess could read the whole text again.
        let most = self.times * period + self.min_chars;
        let held = holds.take(most).take_while(|at| self.last[*at] == self.last[*at - period]);
        self.held = held.count();
        self.period = if self.held >= WINDOW.min(period) { period } else { 0 };
    }

    /// Decides if a period that has held often enough is a chant, and records the evidence.
    fn judge(&mut self) {
        let chars = self.held + self.period;
        if chars < self.min_chars {
            return;
        }
        let end = self.last.len();
        let stretch: String = self.last[end - self.period..].iter().collect();
        if !stretch.chars().any(char::is_alphabetic) {
            return;
        }
        let shown: String = from_a_beginning(&stretch).chars().take(60).collect();
        self.found = Some(format!(
            "{shown:?} {} times in a row, up to character {}",
            chars / self.period,
            self.dropped + end
        ));
    }

    /// Drops characters that are too far back for any period.
    fn forget(&mut self) {
        // Half is dropped at a time, so that the cost per character stays constant. Twice the
        // longest period is kept, because a guess compares one period with the one before it.
        let keep = 2 * LONGEST;
        let gone = self.last.len() - keep;
        self.last.drain(..gone);
        self.dropped += gone;
        let first = self.dropped + WINDOW;
        self.windows.retain(|_, place| *place >= first);
    }
}

/// Rotates the section so that it starts at its likely beginning: at a word with a capital letter,
/// else at a word.
fn from_a_beginning(stretch: &str) -> String {
    let chars: Vec<char> = stretch.chars().collect();
    let before = |at: usize| chars[(at + chars.len() - 1) % chars.len()];
    let is_word = |at: &usize| chars[*at].is_alphanumeric() && !before(*at).is_alphanumeric();
    let words = || (0..chars.len()).filter(is_word);
    let begin =
        words().find(|at| chars[*at].is_uppercase()).or_else(|| words().next()).unwrap_or(0);
    chars[begin..].iter().chain(&chars[..begin]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chants(text: &str) -> bool {
        let mut chant = Chant::new(10, 400);
        chant.whole(text);
        chant.found()
    }

    #[test]
    fn only_repeated_text_chants() {
        assert!(chants(&"I will now fix the test. ".repeat(20)));
        assert!(chants(&format!("At first sense. {}", "no ".repeat(200))));
        assert!(chants(&"x".repeat(400)), "a period of one");
        let paragraph =
            "A paragraph of some length, which has a thing, and another thing.\n".repeat(3);
        assert!(chants(&(paragraph + "and so on\n").repeat(12)));
        assert!(!chants(&"I will now fix the test. ".repeat(9)), "too few times");
        assert!(!chants(&"no ".repeat(50)), "too short");
        assert!(!chants(&"-".repeat(5000)), "a rule");
        assert!(!chants(&"| 0 | 0 | 0 |\n".repeat(300)), "a table of numbers");
        let list: Vec<String> = (0..200).map(|n| format!("{n}. item number {n}\n")).collect();
        assert!(!chants(&list.concat()));
    }

    #[test]
    fn chant_after_long_text_is_found() {
        let lines: Vec<String> = (0..20_000).map(|n| format!("line {n} of it\n")).collect();
        let long = lines.concat();
        assert!(!chants(&long));
        assert!(chants(&format!("{long}{}", "Wait, I have to think again. ".repeat(30))));
    }

    proptest! {
        /// Splitting the text does not change the result, and every long repetition is found.
        #[test]
        fn chunk_boundaries_do_not_matter(
            before in "[a-c ]{0,40}",
            stretch in "[a-d é]{1,30}",
            times in 1usize..40,
            cuts in proptest::collection::vec(0usize..2000, 0..20),
        ) {
            let text = before + &stretch.repeat(times);
            let mut whole = Chant::new(10, 100);
            whole.whole(&text);
            let mut pieces = Chant::new(10, 100);
            let mut cuts: Vec<usize> =
                cuts.into_iter().filter(|at| *at < text.len() && text.is_char_boundary(*at)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                let _ = pieces.on_delta(&text[pair[0]..pair[1]]);
            }
            prop_assert_eq!(&whole.found, &pieces.found);
            // The margin covers the characters that the first guess needs.
            let long = stretch.chars().count() * (times - 1) >= 100 + 2 * WINDOW && times > 12;
            if long && stretch.chars().any(char::is_alphabetic) {
                prop_assert!(whole.found());
            }
        }
    }
}
