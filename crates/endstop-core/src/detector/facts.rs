//! What a step did, in numbers that can be compared: computed once a step, however many detectors
//! look at it.
//!
//! ```
//! use endstop_core::detector::FactBook;
//! let mut book = FactBook::default();
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
//! Equal numbers stand for equal contents: they are hashes of 64 bits, of which a run has too few for
//! two to meet by chance. Zero stands for nothing: no call, no text.

mod canonical;

use foldhash::fast::FixedState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

pub(crate) use canonical::arguments_key;

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Which step it is, from 1.
    pub step: u32,
    /// Its calls (names and arguments) in order; 0: none.
    pub turn: u64,
    /// What its tools said, in order; 0: nothing.
    pub results: u64,
    /// What the first failure among its results said; `None`: none failed, `Some(0)`: it said nothing.
    pub error: Option<u64>,
    /// Steps in a row up to this one that had a failure.
    pub failures: u32,
    /// Its text, in lower case and without a difference in white space; 0: blank.
    pub text: u64,
    /// Steps in a row up to this one that brought nothing new: no call, no text and no result that
    /// was not there in an earlier step.
    pub stale: u32,
    /// How often the call that was made most often was made up to here.
    pub most_calls: u32,
    /// Steps in a row up to this one without a call, while nobody else spoke.
    pub alone: u32,
    /// Of its calls, that which repeats itself most: half-points for each time that it gave the same
    /// answer as before. Two where nothing new was done since, one where a call that is new to the run
    /// has succeeded since; an answer that has changed takes them all.
    pub repeats: u32,
    /// The reward after it, where there is one.
    pub reward: Option<f64>,
    /// What the run has cost up to here, in US dollars, where that is known.
    pub cost_usd: Option<f64>,
}

/// Makes the facts of a run's steps, one step at a time.
#[derive(Debug, Default)]
pub struct FactBook {
    calls_seen: HashMap<u64, Seen, FixedState>,
    texts_seen: HashSet<u64, FixedState>,
    results_seen: HashSet<u64, FixedState>,
    facts: Facts,

    /// The last step in which a call that was new to the run succeeded.
    fresh: u32,

    calls: Vec<u64>,
    results: Vec<u64>,
    failed: Vec<bool>,
    error: Option<u64>,
    text: u64,
    spoke: bool,
    reward: Option<f64>,
    cost_usd: Option<f64>,
    room: Vec<u8>,
}

/// What is known of a call.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    times: u32,
    /// In which step the last time.
    step: u32,
    answer: u64,
    points: u32,
}

impl FactBook {
    /// The step's text.
    pub fn text(&mut self, text: &str) {
        self.text = normal(text, &mut self.room);
    }

    /// A call that the step makes; `arguments` is its JSON text.
    pub fn call(&mut self, name: &str, arguments: &str) {
        self.calls.push(arguments_key(name, arguments));
    }

    /// What a call of the step gave.
    pub fn result(&mut self, content: &str, failed: bool) {
        self.results.push(hash_of(content));
        self.failed.push(failed);
        if failed && self.error.is_none() {
            let said = content.trim_matches(is_space);
            self.error = Some(if said.is_empty() { 0 } else { hash_of(said) });
        }
    }

    /// Somebody else spoke before this step.
    pub fn somebody_spoke(&mut self) {
        self.spoke = true;
    }

    /// The reward after the step.
    pub fn reward(&mut self, reward: f64) {
        self.reward = Some(reward);
    }

    /// What the run has cost, the step included.
    pub fn cost_usd(&mut self, cost: f64) {
        self.cost_usd = Some(cost);
    }

    /// The step is whole.
    pub fn end(&mut self) -> &Facts {
        let step = self.facts.step + 1;
        // None was made in this step yet.
        let calls_known = self.calls.iter().all(|call| self.calls_seen.contains_key(call));
        let results_known = self.results.iter().all(|result| self.results_seen.contains(result));
        let text_known = self.text == 0 || self.texts_seen.contains(&self.text);
        let stale = step > 1 && calls_known && results_known && text_known;
        // Each call with its answer, where there are as many.
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
        self.results_seen.extend(&self.results);
        self.texts_seen.insert(self.text);
        let facts = &mut self.facts;
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
        facts.cost_usd = self.cost_usd.take();
        self.calls.clear();
        self.results.clear();
        self.failed.clear();
        self.text = 0;
        self.spoke = false;
        &self.facts
    }

    /// A run begins.
    pub fn reset(&mut self) {
        self.calls_seen.clear();
        self.texts_seen.clear();
        self.results_seen.clear();
        self.facts = Facts::default();
        self.fresh = 0;
        self.calls.clear();
        self.results.clear();
        self.failed.clear();
        self.error = None;
        self.text = 0;
        self.spoke = false;
        self.reward = None;
        self.cost_usd = None;
    }
}

/// Hashes the same in every process: what was recorded replays to the same.
const HASHER: FixedState = FixedState::with_seed(0x0065_6e64_7374_6f70);

/// The hash of a text: never 0, which stands for none.
fn hash_of(text: &str) -> u64 {
    HASHER.hash_one(text).max(1)
}

/// The hash of a list in its order; of an empty one 0.
fn all_of(hashes: &[u64]) -> u64 {
    match hashes {
        [] => 0,
        [one] => *one,
        several => HASHER.hash_one(several).max(1),
    }
}

/// What Python calls white space.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The hash of a text in lower case whose words stand one space apart; of a blank one 0.
fn normal(text: &str, room: &mut Vec<u8>) -> u64 {
    room.clear();
    if text.is_ascii() {
        let is_space = |byte: &u8| matches!(byte, b' ' | 0x09..=0x0d | 0x1c..=0x1f);
        for word in text.as_bytes().split(is_space).filter(|word| !word.is_empty()) {
            room.extend_from_slice(word);
            room.push(b' ');
        }
        room.make_ascii_lowercase();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn step(
        book: &mut FactBook,
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
    fn text_is_compared_by_its_words() {
        let mut room = Vec::new();
        let mut hash = |text: &str| normal(text, &mut room);
        assert_eq!(hash("  Look\tat\x1fIT \n"), hash("look at it"));
        assert_eq!(hash("ÄRGER\u{a0}im Haus"), hash("ärger im haus"));
        assert_ne!(hash("look at it"), hash("lookat it"));
        assert_eq!(hash(" \u{85}\u{3000}\x1c"), 0);
        assert_eq!(hash(""), 0);
    }

    #[test]
    fn a_first_step_is_never_stale_and_a_parrot_is() {
        let mut book = FactBook::default();
        assert_eq!(step(&mut book, "", &[], &[]).stale, 0);
        assert_eq!(step(&mut book, "", &[], &[]).stale, 1);
        assert_eq!(step(&mut book, "hm", &[], &[]).stale, 0);
        assert_eq!(step(&mut book, "HM", &[], &[]).stale, 1);
        assert_eq!(step(&mut book, "", &[("a", "{}")], &[("x", false)]).stale, 0);
        assert_eq!(step(&mut book, "", &[("a", "{}")], &[("y", false)]).stale, 0);
        assert_eq!(step(&mut book, "", &[("a", "{}")], &[("x", false)]).stale, 1);
    }

    #[test]
    fn a_call_twice_in_its_own_step_is_not_known_before() {
        let mut book = FactBook::default();
        step(&mut book, "", &[("b", "{}")], &[("x", false)]);
        let facts = step(&mut book, "", &[("a", "{}"), ("a", "{}")], &[("x", false), ("x", false)]);
        assert_eq!((facts.stale, facts.most_calls), (0, 2));
        let facts = step(&mut book, "", &[("a", "{}")], &[("x", false)]);
        assert_eq!((facts.stale, facts.most_calls), (1, 3));
    }

    #[test]
    fn a_repetition_counts_half_behind_something_new_and_a_changed_answer_wipes_it() {
        let mut book = FactBook::default();
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
    fn the_first_failure_is_the_steps_error() {
        let mut book = FactBook::default();
        let facts = step(&mut book, "", &[], &[("fine", false), (" no \n", true), ("other", true)]);
        let again = step(&mut book, "", &[], &[("no", true)]);
        assert!(facts.error.is_some() && facts.error == again.error);
        assert_eq!(step(&mut book, "", &[], &[(" \t", true)]).error, Some(0));
        assert_eq!(step(&mut book, "", &[], &[("no", false)]).error, None);
    }

    #[test]
    fn who_talks_alone_is_counted_until_somebody_speaks() {
        let mut book = FactBook::default();
        assert_eq!(step(&mut book, "a", &[], &[]).alone, 1);
        assert_eq!(step(&mut book, "b", &[], &[]).alone, 2);
        book.somebody_spoke();
        assert_eq!(step(&mut book, "c", &[], &[]).alone, 1);
        assert_eq!(step(&mut book, "d", &[("a", "{}")], &[]).alone, 0);
        assert_eq!(step(&mut book, "e", &[], &[]).alone, 1);
    }
}
