//! Chanting: one response that repeats the same stretch of text again and again, as models do that lose
//! their thread. Found while it is generated.
//!
//! ```
//! use endstop_core::{Registry, StepContext, TerminationPolicy};
//! let mut policy = Registry::new().build_text("chanting")?;
//! policy.begin_turn();
//! let stop = (0..100).find_map(|_| policy.look("Let me try that once more. ", &StepContext::default()));
//! assert_eq!(stop.unwrap().evidence, "\"Let me try that once more. \" 14 times in a row, up to character 400");
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! The text is periodic where each character is that of some fixed distance before. The distance is
//! guessed from the last [`WINDOW`] characters, which are looked up among those before, and then checked
//! character by character; so it costs the same for each character, and the answer does not depend on
//! how the text was cut into pieces. A stretch without a letter (a rule of dashes, a table of numbers) is
//! no chant.

use std::collections::HashMap;

/// A stretch this long is looked for among those before. Shorter periods are found by it too.
const WINDOW: usize = 16;
/// Longer periods are not looked for, in characters.
const LONGEST: usize = 4096;

/// The search through one response.
#[derive(Debug)]
pub(super) struct Chant {
    times: usize,
    min_chars: usize,
    /// The last characters.
    last: Vec<char>,
    /// How many there were before those.
    dropped: usize,
    /// Where a window was seen last, by its hash.
    windows: HashMap<u64, usize>,
    hash: u64,
    /// The distance that is checked, and for how many characters it has held.
    period: usize,
    held: usize,
    found: Option<String>,
}

/// Windows are hashed by a polynomial in this, modulo 2^64.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
/// `BASE` to the power of [`WINDOW`].
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

    /// A response begins.
    pub(super) fn reset(&mut self) {
        self.last.clear();
        self.dropped = 0;
        self.windows.clear();
        self.hash = 0;
        self.period = 0;
        self.held = 0;
        self.found = None;
    }

    /// A whole response, whatever was looked at before.
    pub(super) fn whole(&mut self, text: &str) {
        self.reset();
        let _ = self.look(text);
    }

    /// Whether the response chanted.
    pub(super) fn found(&self) -> bool {
        self.found.is_some()
    }

    /// The next piece; what it repeats, from where on it does.
    pub(super) fn look(&mut self, piece: &str) -> Option<String> {
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
        self.hash = self.hash.wrapping_mul(BASE).wrapping_add(u64::from(u32::from(c)) + 1);
        if at >= WINDOW {
            let oldest = u64::from(u32::from(self.last[at - WINDOW])) + 1;
            self.hash = self.hash.wrapping_sub(oldest.wrapping_mul(OLDEST));
        }
        if at + 1 >= WINDOW {
            let place = self.dropped + at;
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

    /// Checks a distance backwards, as far as it holds.
    fn guess(&mut self, period: usize) {
        if period > LONGEST || period >= self.last.len() {
            return;
        }
        let holds = (period..self.last.len()).rev();
        let most = self.times * period + self.min_chars;
        let held = holds.take(most).take_while(|at| self.last[*at] == self.last[*at - period]);
        self.held = held.count();
        self.period = if self.held >= WINDOW.min(period) { period } else { 0 };
    }

    /// The distance has held often enough: is it a chant?
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

    /// Lets go of what is too far back.
    fn forget(&mut self) {
        let keep = 2 * LONGEST;
        let gone = self.last.len() - keep;
        self.last.drain(..gone);
        self.dropped += gone;
        let first = self.dropped + WINDOW;
        self.windows.retain(|_, place| *place >= first);
    }
}

/// The stretch from where it begins as far as one can see: at a capital behind a gap, else at a word.
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
    fn what_repeats_is_found_and_what_does_not_is_not() {
        assert!(chants(&"I will now fix the test. ".repeat(20)));
        assert!(chants(&format!("At first sense. {}", "no ".repeat(200))));
        assert!(chants(&"x".repeat(400)), "a period of one");
        let paragraph =
            "A paragraph of some length, which says a thing, and another thing.\n".repeat(3);
        assert!(chants(&(paragraph + "and so on\n").repeat(12)));
        assert!(!chants(&"I will now fix the test. ".repeat(9)), "too few times");
        assert!(!chants(&"no ".repeat(50)), "too short");
        assert!(!chants(&"-".repeat(5000)), "a rule");
        assert!(!chants(&"| 0 | 0 | 0 |\n".repeat(300)), "a table of numbers");
        let list: Vec<String> = (0..200).map(|n| format!("{n}. item number {n}\n")).collect();
        assert!(!chants(&list.concat()));
    }

    #[test]
    fn a_chant_behind_a_long_text_is_found() {
        let lines: Vec<String> = (0..20_000).map(|n| format!("line {n} of it\n")).collect();
        let long = lines.concat();
        assert!(!chants(&long));
        assert!(chants(&format!("{long}{}", "Wait, I have to think again. ".repeat(30))));
    }

    proptest! {
        /// Pieces change nothing, and what is found is there.
        #[test]
        fn pieces_change_nothing(
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
                let _ = pieces.look(&text[pair[0]..pair[1]]);
            }
            prop_assert_eq!(&whole.found, &pieces.found);
            // What repeats so often is found, where it has a letter and is long enough.
            let long = stretch.chars().count() * (times - 1) >= 100 + 2 * WINDOW && times > 12;
            if long && stretch.chars().any(char::is_alphabetic) {
                prop_assert!(whole.found());
            }
        }
    }
}
