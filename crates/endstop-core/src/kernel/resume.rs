//! Resume after the previous driver is gone: calls in flight are lost and answered as lost.
//!
//! A model call is repeated, and the lost one is booked with its reservation, because it may have
//! been billed. A tool call is repeated only if its tool is repeatable; otherwise the model reads
//! that the call may have run, because no process knows its result.

use super::effect::{Effect, EffectId};
use super::event::{EventKind, Resumption};
use super::guard::Flow;
use super::machine::{Machine, Phase};
use super::open_calls::OpenCalls;
use super::tools::emit_ended;
use crate::usage::NanoUsd;
use std::ops::ControlFlow::Continue;

impl Machine {
    /// Handles a resumption: applies its changes, then repeats or answers what was lost.
    pub(super) fn resumed(&mut self, with: Resumption, effects: &mut Vec<Effect>) -> Flow {
        let Resumption { lost, call_again, limits, tools, model, provider, price, wall_ms: _ } =
            with;
        if let Some(limits) = limits {
            self.ledger.max_usd = limits.max_budget_usd.map(NanoUsd::from_usd);
            self.ledger.max_tokens = limits.max_tokens;
            self.state.iteration_limit = limits.max_turns;
            self.settings.limits = limits;
        }
        if let Some(tools) = tools {
            self.settings.tools = tools;
        }
        // Each value of the resumption replaces the old one only if it is set.
        self.settings.model = model.or(self.settings.model.take());
        self.settings.provider = provider.or(self.settings.provider.take());
        self.ledger.price = price.or(self.ledger.price);
        self.attempts.call_again = call_again;
        // The timer was in the old driver.
        self.armed = None;
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Calling(call) if lost.contains(&call.id) => {
                self.state.streaming.abort();
                self.settle_aborted(&call, effects);
                if !call.text.trim().is_empty() {
                    self.last_text = Some(call.text);
                }
                self.before_call(effects)
            }
            // The reservation was computed with the old limits and price. A grant of that size
            // would be mistaken for everything that the shared budget has, so ask again.
            Phase::Reserving { id } => {
                effects.push(Effect::Abandon { id });
                self.before_call(effects)
            }
            Phase::Tools(mut open) => {
                let starts = self.start_again(&mut open, &lost, effects);
                if !starts.is_empty() {
                    effects.push(Effect::StartTools { calls: starts });
                }
                self.phase = Phase::Tools(open);
                // Nothing is lost if a run is resumed after its ending was undone: its tool results
                // follow.
                if lost.is_empty() { Continue(()) } else { self.advance(effects) }
            }
            Phase::Stopping { ending, mut calls, until } => {
                for (at, started) in calls.mark_lost(&lost) {
                    emit_ended(&calls, at, self.now.saturating_sub(started), effects);
                }
                self.phase = Phase::Stopping { ending, calls, until };
                self.on_stopping(&EventKind::Tick, effects)
            }
            other => {
                self.phase = other;
                Continue(())
            }
        }
    }

    /// Restarts the lost calls of repeatable tools, and answers the others as lost.
    fn start_again(
        &mut self,
        open: &mut OpenCalls,
        lost: &[EffectId],
        effects: &mut Vec<Effect>,
    ) -> Vec<super::ToolStart> {
        let mut starts = Vec::new();
        for id in lost {
            let Some(name) = open.name_of(*id) else { continue };
            let tool = self.settings.tools.iter().find(|tool| tool.name == name);
            // A tool that was asked to stop, or that is denied now, is not restarted.
            let again =
                tool.filter(|tool| tool.repeatable && tool.permission != super::Permission::Deny);
            let Some(tool) = again else { continue };
            // Take the id without using it up: `restart_call` may decline, and ids must stay without
            // gaps in replays.
            let new = EffectId(self.next_effect);
            let limit = |arguments: &_| tool.time_limit(arguments, &self.settings.limits);
            if let Some(start) = open.restart_call(*id, new, self.now, limit) {
                self.next_effect += 1;
                starts.push(start);
            }
        }
        // `lose` skips the calls that were restarted above, because they have a new id.
        for (at, started) in open.mark_lost(lost) {
            emit_ended(open, at, self.now.saturating_sub(started), effects);
        }
        starts
    }
}
