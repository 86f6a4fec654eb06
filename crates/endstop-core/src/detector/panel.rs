//! Many rules over one run at once: what a step did is computed once, each rule looks at it until it has
//! fired.
//!
//! ```
//! use endstop_core::detector::{Panel, Rule};
//! let mut panel = Panel::new([Rule::MaxSteps { steps: 2 }, Rule::NoNew { times: 1 }]);
//! panel.text("Hm.");
//! panel.end();
//! panel.text("Something else.");
//! assert_eq!(panel.end(), [0], "the first rule has fired now");
//! assert_eq!(panel.fired(), [Some(2), None]);
//! panel.reset();
//! assert_eq!(panel.fired(), [None, None]);
//! ```

use super::facts::{FactBook, Facts};
use super::rule::Rule;
use super::state::Detector;

/// Rules that look at one run.
#[derive(Debug, Default)]
pub struct Panel {
    book: FactBook,
    detectors: Vec<Detector>,
    /// Those that look at the words themselves.
    with_words: Vec<usize>,
    /// Those that have not fired.
    waiting: Vec<usize>,
    fired: Vec<Option<u32>>,
    now: Vec<usize>,
    facts: Facts,
}

impl Panel {
    /// These rules, at the beginning of a run.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Panel {
        let detectors: Vec<Detector> = rules.into_iter().map(Detector::new).collect();
        let with_words = detectors.iter().enumerate();
        let with_words = with_words.filter(|(_, d)| d.wants_words()).map(|(nth, _)| nth).collect();
        let waiting = (0..detectors.len()).collect();
        let fired = vec![None; detectors.len()];
        Panel { detectors, with_words, waiting, fired, ..Panel::default() }
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.detectors.is_empty()
    }

    /// The step's text.
    pub fn text(&mut self, text: &str) {
        self.book.text(text);
        for nth in &self.with_words {
            if self.fired[*nth].is_none() {
                self.detectors[*nth].text(text);
            }
        }
    }

    /// A call that the step makes; `arguments` is its JSON text.
    pub fn call(&mut self, name: &str, arguments: &str) {
        self.book.call(name, arguments);
        for nth in &self.with_words {
            if self.fired[*nth].is_none() {
                self.detectors[*nth].call(name);
            }
        }
    }

    /// What a call of the step gave.
    pub fn result(&mut self, content: &str, failed: bool) {
        self.book.result(content, failed);
    }

    /// Somebody else spoke before this step.
    pub fn somebody_spoke(&mut self) {
        self.book.somebody_spoke();
    }

    /// The reward after the step.
    pub fn reward(&mut self, reward: f64) {
        self.book.reward(reward);
    }

    /// What the run has cost, the step included.
    pub fn cost_usd(&mut self, cost: f64) {
        self.book.cost_usd(cost);
    }

    /// The step is whole; the rules that fire now, by their place.
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
        self.facts.clone_from(facts);
        &self.now
    }

    /// What the last step did.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// For each rule the step, from 1, at which it fired first.
    pub fn fired(&self) -> &[Option<u32>] {
        &self.fired
    }

    /// A run begins.
    pub fn reset(&mut self) {
        self.book.reset();
        self.detectors.iter_mut().for_each(Detector::reset);
        self.waiting.clear();
        self.waiting.extend(0..self.detectors.len());
        self.fired.fill(None);
        self.facts = Facts::default();
    }

    /// A response begins, or another attempt at it.
    pub(crate) fn begin_text(&mut self) {
        for nth in &self.with_words {
            self.detectors[*nth].begin_text();
        }
    }

    /// The next piece of a response: the rules that fire at it, with what they saw.
    pub(crate) fn look(&mut self, piece: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for nth in &self.with_words {
            if self.fired[*nth].is_some() {
                continue;
            }
            if let Some(evidence) = self.detectors[*nth].look(piece) {
                self.fired[*nth] = Some(self.facts.step + 1);
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
