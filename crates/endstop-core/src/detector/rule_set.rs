//! Evaluates many rules over one run at once: the facts of a step are computed once, and each rule
//! sees them until it has fired.
//!
//! ```
//! use endstop_core::detector::{RuleSet, Rule};
//! let mut rule_set = RuleSet::new([Rule::MaxSteps { steps: 2 }, Rule::NoNew { times: 1 }]);
//! rule_set.text("Hm.");
//! rule_set.end();
//! rule_set.text("Something else.");
//! assert_eq!(rule_set.end(), [0], "the first rule has fired now");
//! assert_eq!(rule_set.fired(), [Some(2), None]);
//! rule_set.reset();
//! assert_eq!(rule_set.fired(), [None, None]);
//! ```

use super::facts::{Facts, StepFacts};
use super::rule::Rule;
use super::state::Detector;
use crate::usage::NanoUsd;

/// A set of rules that are evaluated over one run.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    book: StepFacts,
    detectors: Vec<Detector>,
    /// Indices of the rules that read the text or the tool names, not only the facts.
    with_words: Vec<usize>,
    /// Indices of the rules that have not fired.
    waiting: Vec<usize>,
    /// For each rule, the step at which it fired first.
    fired: Vec<Option<u32>>,
    /// Indices of the rules that fired at the last step; kept to reuse the allocation.
    now: Vec<usize>,
}

impl RuleSet {
    /// Creates the set in its state at the beginning of a run.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> RuleSet {
        let detectors: Vec<Detector> = rules.into_iter().map(Detector::new).collect();
        let book = StepFacts::of(detectors.iter().map(Detector::rule));
        let with_words = detectors.iter().enumerate();
        let with_words = with_words.filter(|(_, d)| d.wants_words()).map(|(nth, _)| nth).collect();
        let waiting = (0..detectors.len()).collect();
        let fired = vec![None; detectors.len()];
        RuleSet { book, detectors, with_words, waiting, fired, ..RuleSet::default() }
    }

    /// `true` if the set has no rules.
    pub fn is_empty(&self) -> bool {
        self.detectors.is_empty()
    }

    /// Adds the text of the step.
    pub fn text(&mut self, text: &str) {
        self.book.text(text);
        for nth in &self.with_words {
            // A rule that has fired is skipped: only its first step counts.
            if self.fired[*nth].is_none() {
                self.detectors[*nth].text(text);
            }
        }
    }

    /// Adds a call of the step; `arguments` is JSON.
    pub fn call(&mut self, name: &str, arguments: &str) {
        self.book.call(name, arguments);
    }

    /// Adds the result of a call of the step.
    pub fn result(&mut self, tool: &str, content: &str, failed: bool) {
        self.book.result(content, failed);
        for nth in &self.with_words {
            if !failed && self.fired[*nth].is_none() {
                self.detectors[*nth].succeeded(tool);
            }
        }
    }

    /// Sets if the calls and results that follow in this step are left out of the search for similar steps.
    pub(crate) fn set_aside(&mut self, aside: bool) {
        self.book.set_aside(aside);
    }

    /// Records that a message which the model did not write arrived before this step.
    pub fn message_arrived(&mut self) {
        self.book.message_arrived();
    }

    /// Sets the reward after the step.
    pub fn reward(&mut self, reward: f64) {
        self.book.reward(reward);
    }

    /// Sets the cost of the run, including this step.
    pub fn cost(&mut self, cost: NanoUsd) {
        self.book.cost(cost);
    }

    /// Ends the step and returns the indices of the rules that fire at it.
    pub fn end(&mut self) -> &[usize] {
        let facts = self.book.end();
        let (detectors, fired, now) = (&mut self.detectors, &mut self.fired, &mut self.now);
        now.clear();
        self.waiting.retain(|nth| {
            if detectors[*nth].step(facts) {
                fired[*nth] = Some(facts.step);
                now.push(*nth);
                return false;
            }
            true
        });
        &self.now
    }

    /// Returns the facts of the last step.
    pub fn facts(&self) -> &Facts {
        self.book.last()
    }

    /// Returns for each rule the step (from 1) at which it fired first.
    pub fn fired(&self) -> &[Option<u32>] {
        &self.fired
    }

    /// Resets all state for the next run.
    pub fn reset(&mut self) {
        self.book.reset();
        self.detectors.iter_mut().for_each(Detector::reset);
        self.waiting.clear();
        self.waiting.extend(0..self.detectors.len());
        self.fired.fill(None);
    }

    /// Discards the text read by [`on_delta`](Self::on_delta), but for the text that the next response
    /// continues. Called before each response, and before every further attempt at it.
    pub(crate) fn begin_text(&mut self, before: &str) {
        for nth in &self.with_words {
            self.detectors[*nth].begin_text();
            // What it finds there, it has found before.
            self.detectors[*nth].on_delta(before);
        }
    }

    /// Reads the next chunk of a response and returns the rules that fire at it, with evidence.
    pub(crate) fn on_delta(&mut self, piece: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for nth in &self.with_words {
            if self.fired[*nth].is_some() {
                continue;
            }
            if let Some(evidence) = self.detectors[*nth].on_delta(piece) {
                // The facts still describe the step before, because this one is not complete.
                self.fired[*nth] = Some(self.book.last().step + 1);
                found.push((*nth, evidence));
            }
        }
        if !found.is_empty() {
            let fired = &self.fired;
            self.waiting.retain(|nth| fired[*nth].is_none());
        }
        found
    }
}
