//! Finds steps that are alike although no byte of them needs to be equal: the same calls with results that
//! differ only in numbers, times, ids, order or one word, or calls that differ so and get the same result.
//!
//! Every step is compared with the last eight. A word that has a digit counts as a number, whatever else is in
//! it, so that times, ids and process numbers need no pattern of their own. The cost of a step is linear in
//! its text, and the memory constant, because only hashes are stored.
//!
//! A result that moves toward an end is progress and not repetition: a percentage, `3/10`, `3 of 10` or
//! `7 remaining` that is further than in every step before. A number without an end is not, because a process
//! number grows as well.

use crate::call_key::{HASHER, call_key};
use std::hash::BuildHasher;

/// Number of previous steps that a step is compared with.
const WINDOW: usize = 8;

/// Maximum number of distinct words of a step in which a single changed word is looked for, and bytes that are
/// split into words at all; the rest of a longer text is compared exactly.
const WORDS: usize = 128;
const SPLIT: usize = 64 * 1024;

/// Maximum number of changed numbers in the results of calls that differ themselves. More of them are data,
/// such as the next page of a table.
const NUMBERS: usize = 8;

/// Maximum number of measures of progress in a step.
const GAUGES: usize = 16;

/// Words next to a number that counts down.
const LEFT: [&str; 5] = ["left", "remaining", "pending", "queued", "todo"];

/// Counts the steps in a row that are alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alike {
    /// The step that is being added.
    step: Step,
    recent: Vec<Shape>,
    /// Position in `recent` that the next step replaces.
    next: usize,
    /// The distinct words of the last step, with the hash of all its other words.
    without: Vec<(u64, u64)>,
    /// The hash of the words that all steps of this row share, once one of them differed in a word.
    shared: Option<u64>,
    /// The furthest measures of this row.
    best: Vec<f64>,
    points: u32,
    /// The steps of this row that made the same calls as an earlier one.
    same_calls: u32,
}

/// What is compared of a step. Hashes of words are added up, so that their order does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Shape {
    /// The names of the tools.
    names: u64,
    /// The calls as they are.
    calls: u64,
    /// The calls without their numbers.
    calls_without: u64,
    /// The results without their numbers.
    results: u64,
    /// The results without the first few numbers.
    results_nearly: u64,
}

#[derive(Clone, Debug, Default)]
struct Step {
    shape: Shape,
    calls: u32,
    /// The words of calls and results, numbers all as one.
    words: Vec<u64>,
    numbers: usize,
    gauges: Vec<f64>,
}

impl Alike {
    /// Adds a call of the step; `arguments` is JSON.
    pub(crate) fn call(&mut self, name: &str, arguments: &str) {
        let Step { shape, calls, words, .. } = &mut self.step;
        *calls += 1;
        add(&mut shape.calls, call_key(name, arguments));
        let name = hash(name.as_bytes());
        add(&mut shape.names, name);
        add(&mut shape.calls_without, name);
        split(arguments, |word| {
            add(&mut shape.calls_without, word.masked());
            words.push(word.masked());
        });
    }

    /// Adds the result of a call of the step.
    pub(crate) fn result(&mut self, content: &str, failed: bool) {
        let Step { shape, words, numbers, gauges, .. } = &mut self.step;
        let failed = u64::from(failed) + 1;
        add(&mut shape.results, failed);
        add(&mut shape.results_nearly, failed);
        let mut before = [Word::default(); 2];
        split(content, |word| {
            let masked = word.masked();
            add(&mut shape.results, masked);
            *numbers += usize::from(word.is_number);
            let is_data = word.is_number && *numbers > NUMBERS;
            let nearly = if is_data { hash(word.text.as_bytes()) } else { masked };
            add(&mut shape.results_nearly, nearly);
            words.push(nearly);
            if gauges.len() < GAUGES {
                gauges.extend(gauge(before, word));
            }
            before = [before[1], word];
        });
    }

    /// `true` if the step has a call so far.
    pub(crate) fn has_calls(&self) -> bool {
        self.step.calls > 0
    }

    /// Ends the step. Returns the half-points of the row: two for each step that makes the same calls as an
    /// earlier one, and one if its calls themselves differ, because a task may consist of such calls.
    pub(crate) fn end(&mut self) -> u32 {
        let step = std::mem::take(&mut self.step);
        // A text ends a row of calls: what follows is a new request, or a rejected answer.
        if step.calls == 0 {
            *self = Alike::default();
            return 0;
        }
        let Step { shape, words, gauges, .. } = step;
        let without = without(words);
        let found = self.recent.iter().fold(0, |found, earlier| {
            let same = earlier.calls == shape.calls;
            let alike = earlier.calls_without == shape.calls_without;
            found.max(match (same, alike) {
                (true, _) if earlier.results == shape.results => 2,
                (_, true) if earlier.results_nearly == shape.results_nearly => 1,
                _ => 0,
            })
        });
        let found = if found > 0 { found } else { self.one_word(&without, shape) };
        let is_further = |(now, best): (&f64, &f64)| now > best;
        let progress =
            gauges.len() == self.best.len() && gauges.iter().zip(&self.best).any(is_further);
        if found == 0 || progress {
            self.points = 0;
            self.same_calls = 0;
        }
        if found == 0 {
            self.shared = None;
            self.best = gauges;
        } else {
            self.best.resize(gauges.len(), f64::NEG_INFINITY);
            for (best, now) in self.best.iter_mut().zip(gauges) {
                *best = best.max(now);
            }
            if !progress {
                self.points = self.points.saturating_add(found);
                self.same_calls = self.same_calls.saturating_add(u32::from(found == 2));
            }
        }
        self.without = without;
        match self.recent.get_mut(self.next) {
            Some(oldest) => *oldest = shape,
            None => self.recent.push(shape),
        }
        self.next = (self.next + 1) % WINDOW;
        self.points
    }

    /// Returns the number of steps of the row that made the same calls as an earlier one, and of the others.
    pub(crate) fn row(&self) -> (u32, u32) {
        (self.same_calls, self.points.saturating_sub(self.same_calls.saturating_mul(2)))
    }

    /// Returns the half-points of a step that differs from the last one in a single word, wherever that occurs.
    /// All steps of a row must differ in the same place, so the other words stay the same.
    fn one_word(&mut self, without: &[(u64, u64)], shape: Shape) -> u32 {
        let last = self.recent.get((self.next + WINDOW - 1) % WINDOW);
        let Some(last) = last.filter(|last| last.names == shape.names) else { return 0 };
        let mut rests = without.iter().map(|(_, rest)| *rest);
        let shared = if let Some(shared) = self.shared {
            rests.find(|rest| *rest == shared)
        } else {
            let is_of_last = |rest: &u64| self.without.iter().any(|(_, other)| other == rest);
            // A step that is nothing but the changed word shares nothing.
            rests.filter(|rest| *rest != 0).find(is_of_last)
        };
        if shared.is_none() {
            return 0;
        }
        self.shared = shared;
        if last.calls == shape.calls { 2 } else { 1 }
    }

    /// Discards the state, for another run.
    pub(crate) fn reset(&mut self) {
        *self = Alike::default();
    }
}

/// A word: a run of letters, digits and the characters that join the parts of a number, a time or an id.
#[derive(Clone, Copy, Debug, Default)]
struct Word<'a> {
    text: &'a str,
    is_number: bool,
    /// The character after it, and the one before it.
    after: Option<u8>,
    before: Option<u8>,
}

impl Word<'_> {
    fn masked(&self) -> u64 {
        if self.is_number { hash(b"#") } else { hash(self.text.as_bytes()) }
    }

    fn number(&self) -> Option<f64> {
        let digits = self.text.trim_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok().filter(|_| self.is_number)
    }
}

/// Calls `each` with the words of a text.
fn split<'a>(text: &'a str, mut each: impl FnMut(Word<'a>)) {
    let bytes = text.as_bytes();
    let mut end = SPLIT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let is_part =
        |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || b"_.:+-".contains(byte);
    let mut at = 0;
    while at < end {
        let length = bytes[at..end].iter().position(|byte| !is_part(byte)).unwrap_or(end - at);
        if length == 0 {
            at += 1;
            continue;
        }
        // Both ends are next to ASCII characters, or ends of the text, so that this is a whole string.
        let word = text.get(at..at + length).unwrap_or_default();
        each(Word {
            text: word,
            is_number: word.bytes().any(|byte| byte.is_ascii_digit()),
            after: bytes.get(at + length).copied(),
            before: at.checked_sub(1).map(|before| bytes[before]),
        });
        at += length;
    }
    if let Some(rest) = text.get(end..).filter(|rest| !rest.is_empty()) {
        each(Word { text: rest, ..Word::default() });
    }
}

/// Returns the measure of progress that this word completes, if it does; a higher one is further.
fn gauge([second, last]: [Word<'_>; 2], word: Word<'_>) -> Option<f64> {
    let left = |word: Word<'_>| {
        let text = word.text.trim_end_matches([':', '.']);
        LEFT.iter().any(|left| text.eq_ignore_ascii_case(left))
    };
    // What is left of the model's own budget gets less without any progress.
    let is_budget = |word: Word<'_>| word.text.to_ascii_lowercase().starts_with("token");
    match word.number() {
        Some(number) if word.after == Some(b'%') => Some(number / 100.0),
        Some(end) => {
            let slash = last.after == Some(b'/') && word.before == Some(b'/');
            // Three numbers are a date.
            let is_date = last.before == Some(b'/') || word.after == Some(b'/');
            let done = match last.number() {
                Some(done) if slash && !is_date => Some(done),
                _ if last.text.eq_ignore_ascii_case("of") => second.number(),
                _ => None,
            };
            let share = done.filter(|done| *done <= end && end > 0.0).map(|done| done / end);
            share.or_else(|| (left(last) && !is_budget(second)).then_some(-end))
        }
        None if left(word) && !is_budget(last) => {
            last.number().or_else(|| second.number()).map(|number| -number)
        }
        None => None,
    }
}

/// Returns each distinct word with the hash of all other words; nothing if there are too many.
fn without(mut words: Vec<u64>) -> Vec<(u64, u64)> {
    if words.len() > 4 * WORDS {
        return Vec::new();
    }
    let all = words.iter().fold(0, |all: u64, word| all.wrapping_add(*word));
    words.sort_unstable();
    let each: Vec<(u64, u64)> = words
        .chunk_by(|one, other| one == other)
        .map(|same| (same[0], same.iter().fold(all, |rest, word| rest.wrapping_sub(*word))))
        .collect();
    if each.len() > WORDS { Vec::new() } else { each }
}

fn hash(bytes: &[u8]) -> u64 {
    HASHER.hash_one(bytes)
}

fn add(sum: &mut u64, hash: u64) {
    *sum = sum.wrapping_add(hash);
}
