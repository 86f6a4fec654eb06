//! No-progress detection: a turn is unproductive if it repeats one of the last four turns and adds
//! no new text. A turn is similar if it is like one of the last eight but for numbers, times, ids, order or
//! one word, whatever its text is (`alike.rs`).
//!
//! Turns are compared by their actions (tool names, canonical arguments, results) and their text.
//! Call ids and key order do not matter, and a poll with a changed result is progress. The cost per
//! turn is constant, because only hashes are stored.

use crate::alike::Alike;
use crate::call_key::{HASHER, call_key};
use crate::kernel::outcome::ending::excerpt;
use crate::kernel::outcome::{NoProgressSnapshot, RepeatedCall};
use crate::message::{ToolCall, ToolResult};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// Number of similar turns that weigh as much as an unproductive one, because polls look alike as well.
const SIMILAR: u32 = 3;

/// The same for turns whose calls differ as well, because a task may consist of such turns, one for each file. Such a
/// turn with a new text is not counted.
const SIMILAR_CALLS: u32 = 11;

/// Number of previous turns that a turn is compared with; detects cycles of up to four turns.
pub(super) const WINDOW: usize = 4;

/// The no-progress state of a run.
#[derive(Default)]
pub(super) struct Progress {
    /// Fingerprints of the last turns, as a ring buffer.
    recent: [Option<u64>; WINDOW],
    next: usize,
    texts: HashSet<u64>,
    /// Number of consecutive turns that repeat an earlier one.
    equal: u32,
    alike: Alike,
    /// The similar turns in a row: those that made the same calls, and those of the others that said nothing new.
    similar: (u32, u32),
    /// The similar turns in a row whose calls differ.
    other: u32,
    /// The number of consecutive unproductive turns, before the last turn.
    before: u32,
    last: Option<NoProgressSnapshot>,
}

/// Prints the texts in order, because hash sets iterate in random order and equal states must print
/// the same.
impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { recent, next, texts, equal, alike, similar, other, before, last } = self;
        f.debug_struct("Progress")
            .field("recent", recent)
            .field("next", next)
            .field("texts", &texts.iter().collect::<BTreeSet<_>>())
            .field("equal", equal)
            .field("alike", alike)
            .field("similar", similar)
            .field("other", other)
            .field("before", before)
            .field("last", last)
            .finish()
    }
}

impl Progress {
    /// Records a turn of text alone, for example an answer that was rejected. A new text is progress.
    pub(super) fn said(&mut self, text: &str) {
        self.alike.reset();
        self.similar = (0, 0);
        self.other = 0;
        if self.is_new(text) {
            self.equal = 0;
            self.last = None;
        }
    }

    /// `true` for a text that is not blank and that the run has not said before.
    fn is_new(&mut self, text: &str) -> bool {
        let text = text.trim();
        // All texts of the run count, not only the recent ones: alternating between two texts is
        // not progress.
        !text.is_empty() && self.texts.insert(hash_of(text))
    }

    /// Records a turn that called tools; returns the number of consecutive unproductive turns.
    pub(super) fn record(&mut self, text: &str, calls: &[(&ToolCall, &ToolResult)]) -> u32 {
        self.before = self.unproductive();
        let fingerprint = fingerprint(calls);
        let repeated = self.recent.contains(&Some(fingerprint));
        let trimmed = text.trim();
        let new_text = self.is_new(trimmed);
        self.recent[self.next] = Some(fingerprint);
        self.next = (self.next + 1) % WINDOW;
        self.compare(calls, new_text);
        self.equal = if repeated && !new_text { self.equal + 1 } else { 0 };
        if self.unproductive() > 0 {
            self.last = Some(NoProgressSnapshot {
                unproductive_turns: self.unproductive(),
                calls: calls
                    .iter()
                    // Enough to show a pattern without a large outcome.
                    .take(8)
                    .map(|(call, result)| RepeatedCall {
                        name: call.name.clone(),
                        arguments: excerpt(&call.arguments),
                        result: excerpt(&result.content),
                    })
                    .collect(),
                text: excerpt(trimmed),
            });
        } else {
            self.last = None;
        }
        self.unproductive()
    }

    /// Compares a turn with those before it, without the calls whose results are not all text.
    fn compare(&mut self, calls: &[(&ToolCall, &ToolResult)], new_text: bool) {
        for (call, result) in calls.iter().filter(|(_, result)| result.attachments.is_empty()) {
            self.alike.call(&call.name, &call.arguments);
            self.alike.result(&result.content, result.status.is_error());
        }
        if self.alike.has_calls() {
            self.alike.end();
            let (same, other) = self.alike.row();
            let silent = match other.cmp(&self.other) {
                Ordering::Greater => self.similar.1 + u32::from(!new_text),
                Ordering::Equal => self.similar.1,
                Ordering::Less => 0,
            };
            self.other = other;
            self.similar = (same, silent);
        }
    }

    /// The number of consecutive unproductive turns.
    pub(super) fn unproductive(&self) -> u32 {
        self.equal.max(self.weight())
    }

    /// The number of unproductive turns that the similar ones weigh as much as.
    fn weight(&self) -> u32 {
        let (same, other) = self.similar;
        let parts =
            same.saturating_mul(SIMILAR_CALLS).saturating_add(other.saturating_mul(SIMILAR));
        parts / (SIMILAR * SIMILAR_CALLS)
    }

    /// The number of consecutive similar turns, if they decide the number of unproductive ones.
    pub(super) fn similar(&self) -> Option<u32> {
        let (same, other) = self.similar;
        (self.weight() > self.equal).then_some(same.saturating_add(other))
    }

    /// Returns the warning for the model about its repetition, once, one turn before the limit.
    pub(super) fn warning(&self, limit: Option<u32>) -> Option<String> {
        let unproductive = self.unproductive();
        // Several similar turns weigh the same.
        if unproductive == 0 || limit != Some(unproductive + 1) || self.before == unproductive {
            return None;
        }
        let call = |call: &RepeatedCall| format!("{}({})", call.name, call.arguments);
        let repeated: Vec<String> =
            self.snapshot().map_or_else(Vec::new, |last| last.calls.iter().map(call).collect());
        let same = if self.similar().is_none() { "the same" } else { "nearly the same" };
        Some(format!(
            "You are repeating yourself: {} gave {same} result as before. Try a different approach, or say what is blocking you.",
            repeated.join(", ")
        ))
    }

    pub(super) fn snapshot(&self) -> Option<&NoProgressSnapshot> {
        self.last.as_ref()
    }
}

fn hash_of(value: impl Hash) -> u64 {
    HASHER.hash_one(value)
}

/// A hash of the calls of a turn and their results.
fn fingerprint(calls: &[(&ToolCall, &ToolResult)]) -> u64 {
    let mut parts: Vec<(u64, u64)> = calls
        .iter()
        .map(|(call, result)| {
            (
                call_key(&call.name, &call.arguments),
                hash_of((result.status, &result.content, &result.attachments)),
            )
        })
        .collect();
    // Parallel calls may be written in any order.
    parts.sort_unstable();
    hash_of(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ToolStatus;

    fn turn(progress: &mut Progress, text: &str, arguments: &str, result: &str) -> u32 {
        let call = ToolCall { id: "x".into(), name: "read".into(), arguments: arguments.into() };
        let result = ToolResult {
            call_id: "x".into(),
            name: "read".into(),
            status: ToolStatus::Ok,
            content: result.into(),
            attachments: Vec::new(),
            started: true,
            pinned: false,
        };
        progress.record(text, &[(&call, &result)])
    }

    #[test]
    fn key_order_and_number_notation_ignored() {
        let mut p = Progress::default();
        assert_eq!(turn(&mut p, "", r#"{"a":1,"b":{"c":2.0}}"#, "r"), 0);
        assert_eq!(turn(&mut p, "", r#"{"b":{"c":2},"a":1.0}"#, "r"), 1);
        assert_eq!(turn(&mut p, "", r#"{"b":{"c":2},"a":2}"#, "r"), 0);
    }

    #[test]
    fn changed_result_or_text_is_progress() {
        let mut p = Progress::default();
        assert_eq!(turn(&mut p, "look", "{}", "no file"), 0);
        assert_eq!(turn(&mut p, "look", "{}", "one line"), 0);
        assert_eq!(turn(&mut p, "look", "{}", "one line"), 1);
        assert_eq!(turn(&mut p, "look again", "{}", "one line"), 0);
        assert_eq!(turn(&mut p, "look", "{}", "one line"), 1);
        assert_eq!(turn(&mut p, "  look again ", "{}", "one line"), 2);
    }
}
