//! Shows the watch rules each part of a run, and collects what the rules that fire request.

use super::facts::Step;
use crate::detector::{Facts, Rule, RuleSet, sentence};
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::outcome::ending::excerpt;
use crate::kernel::setup::watch::{RuleHit, Watch, WatchMode};
use crate::message::{ToolCall, ToolResult};
use crate::policy::{StepContext, Stop};
use serde_json::Value;

/// The rules of one run, at least one, and their state.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    rule_set: RuleSet,
    watches: Vec<Watch>,
    pub(super) fired: Vec<RuleHit>,
    /// A rule that fired mid-stream but must wait for the complete turn.
    deferred_stop: Option<usize>,
    /// Messages for the model from rules that fired mid-stream; sent after the turn.
    nudges: Vec<String>,
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

    /// Resets the text state for a new response, or for another attempt at it, that continues this text.
    pub(super) fn begin_text(&mut self, before: &str) {
        self.nudges.clear();
        self.rule_set.begin_text(before);
    }

    /// Shows the rules the next part of a response. Returns the stop of a rule that ends the run
    /// now.
    pub(super) fn on_delta(
        &mut self,
        piece: &str,
        turn: u32,
        may_stop: bool,
        effects: &mut Vec<Effect>,
    ) -> Option<Stop> {
        for (nth, evidence) in self.rule_set.on_delta(piece) {
            let Some(watch) = self.watches.get(nth) else { continue };
            let mode = watch.mode;
            let fired = RuleHit { rule: watch.rule.to_string(), mode, turn, evidence };
            let shown = fired.evidence.clone();
            effects.push(Effect::Emit(RunEvent::RuleHit(fired.clone())));
            self.fired.push(fired);
            match mode {
                WatchMode::Observe | WatchMode::Warn => {}
                // A response is not interrupted to tell the model something.
                WatchMode::Nudge => self.nudges.push(shown),
                WatchMode::Stop if may_stop => {
                    // The text that is the answer is not complete here.
                    return Some(watch.rule.stop(shown, "", std::iter::empty()));
                }
                // The text may still be rejected (schema, stop hook), so the stop waits; the first
                // one counts.
                WatchMode::Stop => drop(self.deferred_stop.get_or_insert(nth)),
            }
        }
        None
    }

    /// Shows the rules a complete step.
    pub(super) fn on_step(
        &mut self,
        step: &Step<'_>,
        context: &StepContext,
        effects: &mut Vec<Effect>,
    ) -> Watched {
        let now = self.end_step(step, context);
        // A stop that was deferred mid-stream comes before the rules that fire now.
        let mut stop = self.deferred_stop.take();
        let mut of_text = stop.is_some();
        let mut nudges = std::mem::take(&mut self.nudges);
        for nth in now {
            let Some(watch) = self.watches.get(nth) else { continue };
            let hit = RuleHit {
                rule: watch.rule.to_string(),
                mode: watch.mode,
                turn: step.turn,
                evidence: evidence(&watch.rule, self.rule_set.facts(), step.calls),
            };
            effects.push(Effect::Emit(RunEvent::RuleHit(hit.clone())));
            match watch.mode {
                WatchMode::Observe | WatchMode::Warn => {}
                WatchMode::Nudge => nudges.push(hit.evidence.clone()),
                WatchMode::Stop => {
                    of_text |= watch.rule.reads_stream();
                    stop.get_or_insert(nth);
                }
            }
            self.fired.push(hit);
        }
        let stop = stop.and_then(|nth| self.watches.get(nth)).map(|watch| self.stop(watch, step));
        // The run ends, so the model would never read the nudges.
        if stop.is_some() {
            nudges.clear();
        }
        Watched { stop, nudges, of_text }
    }

    /// Ends the step of the rules. Returns the rules that fire at it.
    fn end_step(&mut self, step: &Step<'_>, context: &StepContext) -> Vec<usize> {
        let rule_set = &mut self.rule_set;
        rule_set.text(step.said.text);
        for (call, result) in step.calls {
            rule_set.set_aside(!step.compares(call, result));
            rule_set.call(&call.name, &call.arguments);
            rule_set.result(&call.name, &result.content, result.status.is_error());
        }
        // The reward is an observation of the caller under this name; policies read the same one.
        if let Some(reward) = context.metrics.get("last_reward").and_then(Value::as_f64) {
            rule_set.reward(reward);
        }
        if let Some(cost) = step.cost {
            rule_set.cost(cost);
        }
        if context.message_arrived {
            rule_set.message_arrived();
        }
        rule_set.end().to_vec()
    }

    /// Builds the stop of a rule that fired.
    fn stop(&self, watch: &Watch, step: &Step<'_>) -> Stop {
        let rule = &watch.rule;
        let found = self.fired.iter().find(|one| one.rule == rule.to_string());
        let at = self.rule_set.facts().step;
        let evidence = found.map_or_else(|| format!("at step {at}"), |one| one.evidence.clone());
        let succeeded = step.calls.iter().filter(|(_, result)| !result.status.is_error());
        let results = succeeded.map(|(call, result)| (call.name.as_str(), result.content.as_str()));
        rule.stop(evidence, step.said.text, results)
    }
}

/// Describes why a rule fired: its sentence, and the last call if the rule is about calls.
fn evidence(rule: &Rule, facts: &Facts, calls: &[(&ToolCall, &ToolResult)]) -> String {
    let about_text = matches!(
        rule,
        Rule::SameText { .. }
            | Rule::Monologue { .. }
            | Rule::TextMention(_)
            | Rule::Chanting { .. }
    );
    match calls.first() {
        Some((call, _)) if !about_text => {
            format!("{}: {}({})", sentence(rule, facts), call.name, excerpt(&call.arguments))
        }
        _ => sentence(rule, facts),
    }
}
