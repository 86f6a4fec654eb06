//! The watch rules of one run, and their state.

use super::watch::{RuleHit, Watch};
use crate::detector::RuleSet;
use crate::policy::Stop;

/// The rules of one run, and their state.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    pub(super) rule_set: RuleSet,
    pub(super) watches: Vec<Watch>,
    pub(super) fired: Vec<RuleHit>,
    /// A rule that fired mid-stream but must wait for the complete turn.
    pub(super) deferred_stop: Option<usize>,
    /// Messages for the model from rules that fired mid-stream; sent after the turn.
    pub(super) nudges: Vec<String>,
}

/// The actions that the rules request after a step.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Ends the run.
    pub(super) stop: Option<Stop>,
    /// Messages for the model.
    pub(super) nudges: Vec<String>,
    /// The rule that stops the run objects to the text itself, so the text is not an answer.
    pub(super) of_text: bool,
}

impl Watchers {
    pub(super) fn new(watches: Vec<Watch>) -> Watchers {
        let rule_set = RuleSet::new(watches.iter().map(|watch| watch.rule.clone()));
        Watchers { rule_set, watches, ..Watchers::default() }
    }

    pub(super) fn fired(&self) -> &[RuleHit] {
        &self.fired
    }

    pub(super) fn into_fired(self) -> Vec<RuleHit> {
        self.fired
    }

    /// Resets the text state for a new response, or for another attempt at it.
    pub(super) fn begin_text(&mut self) {
        self.nudges.clear();
        self.rule_set.begin_text();
    }
}
