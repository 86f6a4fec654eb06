//! Facts of a step: hashes and counters that rules compare. They are computed once per step,
//! however many rules read them.
//!
//! ```
//! use endstop_core::detector::StepFacts;
//! let mut book = StepFacts::default();
//! let mut step = |arguments: &str| {
//!     book.text("I look.");
//!     book.call("read", arguments);
//!     book.result("12 lines", false);
//!     book.end().clone()
//! };
//! let (first, again) = (step(r#"{"a": 1, "b": 2}"#), step(r#"{"b":2,"a":1}"#));
//! assert_eq!(first.turn, again.turn, "the order of keys does not matter");
//! assert_eq!((first.stale, again.stale), (0, 1), "the second brought nothing new");
//! ```
//!
//! Equal hashes mean equal contents. Hashes have 64 bits, and a run has far too few of them for a
//! collision by chance. Zero means that there is nothing: no call, no text.

use super::rule::Rule;
use crate::alike::Alike;
use crate::call_key::{HASHER, call_key};
use crate::usage::NanoUsd;
use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

/// The facts of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Number of the step, from 1.
    pub step: u32,
    /// Hash of its calls (names and arguments) in order; 0 if there are none.
    pub turn: u64,
    /// Hash of its tool results in order; 0 if there are none.
    pub results: u64,
    /// Hash of the text of the first failure among its results. `None` if none failed, `Some(0)` if
    /// the text is blank.
    pub error: Option<u64>,
    /// Number of steps in a row, up to this one, that had a failure.
    pub failures: u32,
    /// Hash of its text in lower case with normalised white space; 0 if it is blank.
    pub text: u64,
    /// Number of steps in a row, up to this one, that brought nothing new: every call, text and
    /// result was in an earlier step.
    pub stale: u32,
    /// Number of times that the most frequent call of the run was made so far.
    pub most_calls: u32,
    /// Number of steps in a row, up to this one, without a call and without another message
    /// between.
    pub alone: u32,
    /// Repetition score of the call of this step that repeats most, in half-points. Each time that
    /// a call returns the same answer as before it gets two half-points, or one if a call that is
    /// new to the run has succeeded since. A changed answer resets the score of its call to 0.
    pub repeats: u32,
    /// Half-points of the steps in a row, up to this one, that are like one of the eight steps before them
    /// but for numbers, times, ids, order or one word: two for each step that made the same calls, one if its
    /// calls differ so. 0 unless a rule reads it.
    pub alike: u32,
    /// Reward after the step, if there is one.
    pub reward: Option<f64>,
    /// Cost of the run so far, if it is known.
    pub cost: Option<NanoUsd>,
}

/// Computes the facts of a run, one step at a time.
#[derive(Clone, Debug, Default)]
pub struct StepFacts {
    calls_seen: HashMap<u64, Seen, FixedState>,
    texts_seen: HashSet<u64, FixedState>,
    results_seen: HashSet<u64, FixedState>,
    facts: Facts,

    /// `None` if no rule reads it, because every text is split into words for it.
    alike: Option<Box<Alike>>,
    /// `true` if the calls that follow in this step are not compared in `alike`.
    aside: bool,

    /// The last step in which a call that was new to the run succeeded.
    // Used to halve repetitions after it, because the new call may have changed something.
    fresh: u32,

    calls: Vec<u64>,
    results: Vec<u64>,
    failed: Vec<bool>,
    error: Option<u64>,
    text: u64,
    spoke: bool,
    reward: Option<f64>,
    cost: Option<NanoUsd>,
    /// Buffer for the normalised text, reused because texts are hashed at every step.
    room: Vec<u8>,
}

/// The history of one call.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    times: u32,
    /// Step in which it was made last.
    step: u32,
    /// Hash of its last answer.
    answer: u64,
    /// Repetition score in half-points.
    points: u32,
}

impl StepFacts {
    /// Creates the facts for these rules.
    pub(super) fn of<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> StepFacts {
        let compares = rules.into_iter().any(Rule::reads_alike);
        StepFacts { alike: compares.then(Box::default), ..StepFacts::default() }
    }

    /// Sets the text of the step.
    pub fn text(&mut self, text: &str) {
        self.text = normal(text, &mut self.room);
    }

    /// Adds a call of the step; `arguments` is JSON.
    pub fn call(&mut self, name: &str, arguments: &str) {
        self.calls.push(call_key(name, arguments));
        if let Some(alike) = self.alike.as_mut().filter(|_| !self.aside) {
            alike.call(name, arguments);
        }
    }

    /// Sets if the calls and results that follow in this step are left out of `Facts::alike`, because
    /// repeating them is not repetition: they waited, for example.
    pub(super) fn set_aside(&mut self, aside: bool) {
        self.aside = aside;
    }

    /// Adds the result of a call of the step.
    pub fn result(&mut self, content: &str, failed: bool) {
        self.results.push(hash_of(content));
        self.failed.push(failed);
        if let Some(alike) = self.alike.as_mut().filter(|_| !self.aside) {
            alike.result(content, failed);
        }
        if failed && self.error.is_none() {
            // Trimmed, because the errors of some tools end with a line break.
            let said = content.trim_matches(is_space);
            self.error = Some(if said.is_empty() { 0 } else { hash_of(said) });
        }
    }

    /// Records that a message which the model did not write arrived before this step.
    pub fn message_arrived(&mut self) {
        self.spoke = true;
    }

    /// Sets the reward after the step.
    pub fn reward(&mut self, reward: f64) {
        self.reward = Some(reward);
    }

    /// Sets the cost of the run, including this step.
    pub fn cost(&mut self, cost: NanoUsd) {
        self.cost = Some(cost);
    }

    /// Ends the step and returns its facts.
    pub fn end(&mut self) -> &Facts {
        let step = self.facts.step + 1;
        // Compared before this step's own calls are stored: a call that the step makes twice is
        // new.
        let calls_known = self.calls.iter().all(|call| self.calls_seen.contains_key(call));
        let results_known = self.results.iter().all(|result| self.results_seen.contains(result));
        let text_known = self.text == 0 || self.texts_seen.contains(&self.text);
        // The first step is never stale, not even an empty one, because nothing precedes it.
        let stale = step > 1 && calls_known && results_known && text_known;
        // Recorded runs may have fewer results than calls. The results then cannot be assigned, so
        // that every call gets all of them as its answer.
        let paired = self.calls.len() == self.results.len();
        let all_answers = all_of(&self.results);
        let mut repeats = 0;
        let mut new_call = false;
        for (nth, call) in self.calls.iter().enumerate() {
            let answer = if paired { self.results[nth] } else { all_answers };
            let failed = if paired { self.failed[nth] } else { self.failed.contains(&true) };
            let seen = self.calls_seen.entry(*call).or_default();
            if seen.times == 0 {
                new_call |= !failed;
            } else if seen.answer == answer {
                seen.points += if self.fresh > seen.step { 1 } else { 2 };
                repeats = repeats.max(seen.points);
            } else {
                seen.points = 0;
            }
            seen.times += 1;
            seen.step = step;
            seen.answer = answer;
            self.facts.most_calls = self.facts.most_calls.max(seen.times);
        }
        if new_call {
            self.fresh = step;
        }
        // Stored after the comparison above.
        self.results_seen.extend(&self.results);
        self.texts_seen.insert(self.text);
        let facts = &mut self.facts;
        // A step whose calls are all left out neither counts nor ends the row.
        let compared = |alike: &&mut Box<Alike>| self.calls.is_empty() || alike.has_calls();
        facts.alike = self.alike.as_mut().filter(compared).map_or(0, |alike| alike.end());
        self.aside = false;
        facts.step = step;
        facts.turn = all_of(&self.calls);
        facts.results = all_answers;
        facts.error = self.error.take();
        facts.failures = if facts.error.is_some() { facts.failures + 1 } else { 0 };
        facts.text = self.text;
        facts.stale = if stale { facts.stale + 1 } else { 0 };
        let alone = self.calls.is_empty();
        facts.alone = match (alone, self.spoke) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => facts.alone + 1,
        };
        facts.repeats = repeats;
        facts.reward = self.reward.take();
        facts.cost = self.cost.take();
        self.calls.clear();
        self.results.clear();
        self.failed.clear();
        self.text = 0;
        self.spoke = false;
        &self.facts
    }

    /// Returns the facts of the last step that ended.
    pub(crate) fn last(&self) -> &Facts {
        &self.facts
    }

    /// Resets all state for the next run.
    pub fn reset(&mut self) {
        self.calls_seen.clear();
        self.texts_seen.clear();
        self.results_seen.clear();
        self.facts = Facts::default();
        if let Some(alike) = &mut self.alike {
            alike.reset();
        }
        self.aside = false;
        self.fresh = 0;
        self.calls.clear();
        self.results.clear();
        self.failed.clear();
        self.error = None;
        self.text = 0;
        self.spoke = false;
        self.reward = None;
        self.cost = None;
    }
}

/// Returns the hash of a string; never 0, which means that there is none.
fn hash_of(text: &str) -> u64 {
    HASHER.hash_one(text).max(1)
}

/// Returns the hash of a list in its order; 0 if it is empty.
fn all_of(hashes: &[u64]) -> u64 {
    match hashes {
        [] => 0,
        [one] => *one,
        several => HASHER.hash_one(several).max(1),
    }
}

/// `true` if Python counts the character as white space, because the reference implementation of
/// the rules is in Python. Rust does not count the separators U+001C to U+001F.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Returns the hash of a string in lower case with one space between words; 0 if it is blank.
fn normal(text: &str, room: &mut Vec<u8>) -> u64 {
    room.clear();
    // Most texts are ASCII, and `to_lowercase` of a `str` allocates.
    if text.is_ascii() {
        room.extend_from_slice(text.as_bytes());
        fold_ascii(room);
    } else {
        for word in text.to_lowercase().split(is_space).filter(|word| !word.is_empty()) {
            room.extend_from_slice(word.as_bytes());
            room.push(b' ');
        }
    }
    if room.is_empty() {
        return 0;
    }
    let mut hasher = HASHER.build_hasher();
    hasher.write(room);
    hasher.finish().max(1)
}

/// Converts ASCII to lower case, with one space after each word and none before the first.
#[expect(clippy::needless_bitwise_bool, reason = "a lazy operator is a branch")]
fn fold_ascii(text: &mut Vec<u8>) {
    // Passes without a branch, of which the compiler makes vector instructions, because this runs for
    // the text of every recorded step.
    for byte in text.iter_mut() {
        let space = (byte.wrapping_sub(b'\t') < 5) | (byte.wrapping_sub(0x1c) < 5);
        let upper = byte.wrapping_sub(b'A') < 26;
        *byte = if space { b' ' } else { *byte | u8::from(upper) << 5 };
    }
    if text.last().is_some_and(|last| *last != b' ') {
        text.push(b' ');
    }
    let next = text.get(1..).unwrap_or_default();
    let doubled = |found: bool, (a, b): (&u8, &u8)| found | ((*a == b' ') & (*b == b' '));
    if text.first() == Some(&b' ') || text.iter().zip(next).fold(false, doubled) {
        let mut before = b' ';
        text.retain(|byte| std::mem::replace(&mut before, *byte) != b' ' || *byte != b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ascii_folds_like_other_text(text in "[a-cX-Z@\\[`{ \t\r\n\u{b}\u{c}\u{1b}-\u{20}]{0,40}") {
            let words = text.split(is_space).filter(|word| !word.is_empty());
            let expected: String = words.map(|word| word.to_lowercase() + " ").collect();
            let mut room = text.into_bytes();
            fold_ascii(&mut room);
            prop_assert_eq!(String::from_utf8(room).unwrap(), expected);
        }
    }

    fn step(
        book: &mut StepFacts,
        text: &str,
        calls: &[(&str, &str)],
        said: &[(&str, bool)],
    ) -> Facts {
        book.text(text);
        for (name, arguments) in calls {
            book.call(name, arguments);
        }
        for (content, failed) in said {
            book.result(content, *failed);
        }
        book.end().clone()
    }

    #[test]
    fn text_comparison_ignores_white_space() {
        let mut room = Vec::new();
        let mut hash = |text: &str| normal(text, &mut room);
        assert_eq!(hash("  Look\tat\x1fIT \n"), hash("look at it"));
        assert_eq!(hash("ÄRGER\u{a0}im Haus"), hash("ärger im haus"));
        assert_ne!(hash("look at it"), hash("lookat it"));
        assert_eq!(hash(" \u{85}\u{3000}\x1c"), 0);
        assert_eq!(hash(""), 0);
    }

    #[test]
    fn first_step_is_never_stale() {
        let mut book = StepFacts::default();
        assert_eq!(step(&mut book, "", &[], &[]).stale, 0);
        assert_eq!(step(&mut book, "", &[], &[]).stale, 1);
        assert_eq!(step(&mut book, "hm", &[], &[]).stale, 0);
        assert_eq!(step(&mut book, "HM", &[], &[]).stale, 1);
        assert_eq!(step(&mut book, "", &[("a", "{}")], &[("x", false)]).stale, 0);
        assert_eq!(step(&mut book, "", &[("a", "{}")], &[("y", false)]).stale, 0);
        assert_eq!(step(&mut book, "", &[("a", "{}")], &[("x", false)]).stale, 1);
    }

    #[test]
    fn call_repeated_within_step_is_new() {
        let mut book = StepFacts::default();
        step(&mut book, "", &[("b", "{}")], &[("x", false)]);
        let facts = step(&mut book, "", &[("a", "{}"), ("a", "{}")], &[("x", false), ("x", false)]);
        assert_eq!((facts.stale, facts.most_calls), (0, 2));
        let facts = step(&mut book, "", &[("a", "{}")], &[("x", false)]);
        assert_eq!((facts.stale, facts.most_calls), (1, 3));
    }

    #[test]
    fn new_call_halves_repetition_score() {
        let mut book = StepFacts::default();
        let mut repeats = |call: &str, answer: &str, failed: bool| {
            step(&mut book, "", &[(call, "{}")], &[(answer, failed)]).repeats
        };
        assert_eq!(repeats("test", "2 failed", true), 0);
        assert_eq!(repeats("test", "2 failed", true), 2);
        assert_eq!(repeats("edit", "saved", false), 0);
        assert_eq!(repeats("test", "2 failed", true), 3);
        assert_eq!(repeats("edit2", "no such file", true), 0, "a failure is nothing new");
        assert_eq!(repeats("test", "2 failed", true), 5);
        assert_eq!(repeats("test", "1 failed", true), 0);
        assert_eq!(repeats("test", "1 failed", true), 2);
    }

    #[test]
    fn first_failure_is_the_step_error() {
        let mut book = StepFacts::default();
        let facts = step(&mut book, "", &[], &[("fine", false), (" no \n", true), ("other", true)]);
        let again = step(&mut book, "", &[], &[("no", true)]);
        assert!(facts.error.is_some() && facts.error == again.error);
        assert_eq!(step(&mut book, "", &[], &[(" \t", true)]).error, Some(0));
        assert_eq!(step(&mut book, "", &[], &[("no", false)]).error, None);
    }

    #[test]
    fn other_message_resets_monologue_count() {
        let mut book = StepFacts::default();
        assert_eq!(step(&mut book, "a", &[], &[]).alone, 1);
        assert_eq!(step(&mut book, "b", &[], &[]).alone, 2);
        book.message_arrived();
        assert_eq!(step(&mut book, "c", &[], &[]).alone, 1);
        assert_eq!(step(&mut book, "d", &[("a", "{}")], &[]).alone, 0);
        assert_eq!(step(&mut book, "e", &[], &[]).alone, 1);
    }
}
