//! Resume after the previous driver is gone: calls in flight are lost and answered as lost.
//!
//! A model call is repeated, and the lost one is booked with its reservation, because it may have
//! been billed. A tool call is repeated only if its tool is repeatable; otherwise the model reads
//! that the call may have run, because no process knows its result.

use super::tools::{OpenCalls, emit_ended};
use super::{Effect, EffectId, EventKind, Flow, Inner, Phase, Resumption};
use crate::usage::NanoUsd;

impl Inner {
    /// Handles a resumption: applies its changes, then repeats or answers what was lost.
    pub(super) fn resumed(&mut self, with: Resumption, fx: &mut Vec<Effect>) -> Flow {
        let Resumption { lost, call_again, limits, tools, model, provider, price, wall_ms: _ } =
            with;
        if let Some(limits) = limits {
            self.ledger.max_usd = limits.max_budget_usd.map(NanoUsd::from_usd);
            self.ledger.max_tokens = limits.max_tokens;
            self.state.iteration_limit = limits.max_turns;
            self.limits = limits;
        }
        if let Some(tools) = tools {
            self.tools = tools;
        }
        // Each value of the resumption replaces the old one only if it is set.
        self.model = model.or(self.model.take());
        self.provider = provider.or(self.provider.take());
        self.ledger.price = price.or(self.ledger.price);
        self.call_again = call_again;
        // The timer was in the old driver.
        self.armed = None;
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Calling(call) if lost.contains(&call.id) => {
                self.state.streaming.abort();
                self.settle_aborted(&call, fx);
                if !call.text.trim().is_empty() {
                    self.last_text = Some(call.text);
                }
                self.before_call(fx)
            }
            // The reservation was computed with the old limits and price. A grant of that size
            // would be mistaken for everything that the shared budget has, so ask again.
            Phase::Reserving { id } => {
                fx.push(Effect::Abandon { id });
                self.before_call(fx)
            }
            Phase::Tools(mut open) => {
                let starts = self.start_again(&mut open, &lost, fx);
                if !starts.is_empty() {
                    fx.push(Effect::StartTools { calls: starts });
                }
                self.phase = Phase::Tools(open);
                // Nothing is lost if a run is resumed after its ending was undone: its tool results
                // follow.
                if lost.is_empty() { Ok(()) } else { self.advance(fx) }
            }
            Phase::Stopping { ending, mut calls, until } => {
                for (at, started) in calls.lose(&lost) {
                    emit_ended(&calls, at, self.now.saturating_sub(started), fx);
                }
                self.phase = Phase::Stopping { ending, calls, until };
                self.on_stopping(&EventKind::Tick, fx)
            }
            other => {
                self.phase = other;
                Ok(())
            }
        }
    }

    /// Restarts the lost calls of repeatable tools, and answers the others as lost.
    fn start_again(
        &mut self,
        open: &mut OpenCalls,
        lost: &[EffectId],
        fx: &mut Vec<Effect>,
    ) -> Vec<super::ToolStart> {
        let mut starts = Vec::new();
        for id in lost {
            let Some(name) = open.name_of(*id) else { continue };
            let tool = self.tools.iter().find(|tool| tool.name == name);
            // A tool that was asked to stop, or that is denied now, is not restarted.
            let again =
                tool.filter(|tool| tool.repeatable && tool.permission != super::Permission::Deny);
            let Some(tool) = again else { continue };
            // Take the id without using it up: `begin_again` may decline, and ids must stay without
            // gaps in replays.
            let new = EffectId(self.next_effect);
            let limit = |arguments: &_| tool.time_limit(arguments, &self.limits);
            if let Some(start) = open.begin_again(*id, new, self.now, limit) {
                self.next_effect += 1;
                starts.push(start);
            }
        }
        // `lose` skips the calls that were restarted above, because they have a new id.
        for (at, started) in open.lose(lost) {
            emit_ended(open, at, self.now.saturating_sub(started), fx);
        }
        starts
    }
}
