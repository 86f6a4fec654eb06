//! Shows the watch rules each part of a run, and acts on the rules that fire.

use super::effect::{Effect, InjectionReason, RunEvent};
use super::guard::Flow;
use super::machine::Machine;
use super::watch::{RuleHit, WatchMode};
use super::watchers::{Watched, Watchers};
use crate::detector::Rule;
use crate::message::{ToolCall, ToolResult};
use crate::policy::{PolicyEnd, Stop};
use serde_json::Value;
use std::ops::ControlFlow::{Break, Continue};

impl Machine {
    /// Shows the rules the next part of a response. Returns the ending of a rule that ends the run
    /// now.
    pub(super) fn watch_piece(
        &mut self,
        piece: &str,
        may_stop: bool,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        // Skip the rest early, because this runs for every delta.
        if self.watchers.watches.is_empty() {
            return Continue(());
        }
        for (nth, evidence) in self.watchers.rule_set.on_delta(piece) {
            let turn = self.counts.turns + 1;
            let Some(watch) = self.watchers.watches.get(nth) else { continue };
            let (mode, name) = (watch.mode, watch.rule.name());
            let ends_as = watch.rule.ends_as();
            let fired = RuleHit { rule: watch.rule.to_string(), mode, turn, evidence };
            let shown = fired.evidence.clone();
            effects.push(Effect::Emit(RunEvent::RuleHit(fired.clone())));
            self.watchers.fired.push(fired);
            match mode {
                WatchMode::Observe | WatchMode::Warn => {}
                // A response is not interrupted to tell the model something.
                WatchMode::Nudge => self.watchers.nudges.push(shown),
                WatchMode::Stop if may_stop => {
                    let stop = Stop { ends_as, ..Stop::submitted(name, shown) };
                    return Break(self.mid_stream_ending(stop));
                }
                // The text may still be rejected (schema, stop hook), so the stop waits; the first
                // one counts.
                WatchMode::Stop => drop(self.watchers.deferred_stop.get_or_insert(nth)),
            }
        }
        Continue(())
    }

    /// Shows the rules a complete step.
    pub(super) fn watch(
        &mut self,
        text: &str,
        calls: &[(&ToolCall, &ToolResult)],
        effects: &mut Vec<Effect>,
    ) -> Watched {
        if self.watchers.watches.is_empty() {
            return Watched::default();
        }
        let cost = self.cost_so_far();
        let Watchers { rule_set, watches, fired, deferred_stop, nudges } = &mut self.watchers;
        rule_set.text(text);
        for (call, result) in calls {
            rule_set.call(&call.name, &call.arguments);
            rule_set.result(&result.content, result.status.is_error());
        }
        // The reward is an observation of the caller under this name; policies read the same one.
        if let Some(reward) = self.context.metrics.get("last_reward").and_then(Value::as_f64) {
            rule_set.reward(reward);
        }
        if let Some(cost) = cost {
            rule_set.cost_usd(cost);
        }
        if self.context.message_arrived {
            rule_set.message_arrived();
        }
        let now: Vec<usize> = rule_set.end().to_vec();
        let step = rule_set.facts().step;
        // A stop that was deferred mid-stream comes before the rules that fire now.
        let mut stop = deferred_stop.take();
        let mut of_text = stop.is_some();
        let mut nudges = std::mem::take(nudges);
        for nth in now {
            let Some(watch) = watches.get(nth) else { continue };
            let evidence = evidence(&watch.rule, calls);
            let one = RuleHit {
                rule: watch.rule.to_string(),
                mode: watch.mode,
                turn: self.counts.turns,
                evidence,
            };
            effects.push(Effect::Emit(RunEvent::RuleHit(one.clone())));
            match watch.mode {
                WatchMode::Observe | WatchMode::Warn => {}
                WatchMode::Nudge => nudges.push(one.evidence.clone()),
                WatchMode::Stop => {
                    of_text |= watch.rule.reads_stream();
                    stop.get_or_insert(nth);
                }
            }
            fired.push(one);
        }
        let stop = stop.and_then(|nth| watches.get(nth)).map(|watch| {
            let rule = &watch.rule;
            let found = fired.iter().find(|one| one.rule == rule.to_string());
            let evidence =
                found.map_or_else(|| format!("at step {step}"), |one| one.evidence.clone());
            let stop = Stop { ends_as: rule.ends_as(), ..Stop::submitted(rule.name(), evidence) };
            let called = calls
                .iter()
                // A rule that waits for a tool delivers that tool's last successful result as the
                // answer.
                .rfind(|(call, result)| !result.status.is_error() && rule.waits_for(&call.name));
            let stop = stop.or_else(called.map(|(_, result)| result.content.clone()));
            if stop.ends_as == PolicyEnd::Submitted { stop.answer(text) } else { stop }
        });
        // The run ends, so the model would never read the nudges.
        if stop.is_some() {
            nudges.clear();
        }
        Watched { stop, nudges, of_text }
    }

    /// Sends the observations of the rules to the model.
    pub(super) fn nudge(&mut self, nudges: Vec<String>, effects: &mut Vec<Effect>) {
        for evidence in nudges {
            let text = format!(
                "You seem to be stuck ({evidence}). Try a different approach, or say what is blocking you."
            );
            self.inject_message(InjectionReason::Watch, text, effects);
        }
    }

    /// The cost of the run so far, if every part of it has a known price.
    pub(super) fn cost_so_far(&self) -> Option<f64> {
        self.ledger.known_cost().map(crate::NanoUsd::to_usd)
    }
}

/// Describes why a rule fired: the rule, and the last call if the rule is about calls.
fn evidence(rule: &Rule, calls: &[(&ToolCall, &ToolResult)]) -> String {
    let about_text = matches!(
        rule,
        Rule::SameText { .. }
            | Rule::Monologue { .. }
            | Rule::TextMention(_)
            | Rule::Chanting { .. }
    );
    match calls.first() {
        Some((call, _)) if !about_text => {
            let arguments = super::progress::excerpt(&call.arguments);
            format!("{rule}, last {}({arguments})", call.name)
        }
        _ => rule.to_string(),
    }
}
