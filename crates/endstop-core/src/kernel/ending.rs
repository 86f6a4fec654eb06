//! The end of a run: stop running work, complete the conversation, and assemble the outcome.

use super::decided_by::{Decision, Layer};
use super::effect::{Effect, RunEvent};
use super::event::EventKind;
use super::guard::{Flow, fault};
use super::machine::{Machine, Phase, Point};
use super::open_calls::GIVE_UP;
use super::open_calls::OpenCalls;
use super::outcome::{Ending, Outcome};
use super::tools::emit_ended;
use crate::message::{Part, Role, ToolStatus};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

impl Machine {
    /// Builds the ending of a terminate, which carries a declared answer and an earlier cause.
    pub(super) fn terminated(&mut self) -> Box<Ending> {
        let ending = Ending::new(
            Termination::Terminated,
            Layer::Caller,
            Decision::Terminate,
            "the loop was terminated",
        );
        let mut ending = self.outrank(ending);
        // Terminate during a stop: the run ends now, but keeps the answer and the cause it already
        // had.
        if let Phase::Stopping { ending: earlier, .. } = &self.phase {
            ending.carry(earlier);
            ending.outranked.push((**earlier).clone());
        }
        ending
    }

    /// Resolves a conflict between an ending and an answer that was declared before it: the answer
    /// stands. Only the caller's cancel and terminate outrank it, and they carry the answer along.
    ///
    /// An answer that is still being validated may not be one; it is carried as well.
    pub(super) fn outrank(&mut self, mut ending: Box<Ending>) -> Box<Ending> {
        let by_caller =
            matches!(ending.termination, Termination::Cancelled | Termination::Terminated);
        match self.declared() {
            Some(answer) if by_caller => {
                ending.carry(&answer);
                ending
            }
            Some(mut answer) => {
                answer.outranked.push(*ending);
                answer
            }
            None => {
                if let Phase::Validating { success, .. } = &self.phase {
                    ending.carry(success);
                }
                ending
            }
        }
    }

    /// Returns the answer that is declared at this point: it waits for the stop or reply hook, or
    /// `finish` is valid while other calls of its turn still run.
    fn declared(&mut self) -> Option<Box<Ending>> {
        match &mut self.phase {
            Phase::Consulting { point: Point::Stop(answer) | Point::Reply(answer), .. } => {
                Some(answer.clone())
            }
            Phase::Tools(_) => self.declared_by_finish(),
            _ => None,
        }
    }

    /// Cancels the run.
    pub(super) fn cancel(&mut self, effects: &mut Vec<Effect>) -> Flow {
        // The run is already being stopped; the first cause stands.
        if matches!(self.phase, Phase::Stopping { .. }) {
            return Continue(());
        }
        let ending = Ending::new(
            Termination::Cancelled,
            Layer::Caller,
            Decision::Cancel,
            "the caller cancelled the run",
        );
        self.stop(ending, effects)
    }

    /// Handles a failure of the driver's user code. A run that is being stopped ends now with the
    /// ending it had, because cancel, deadline and halt outrank a failure that happens while they
    /// are carried out.
    pub(super) fn faulted(&mut self, name: String, message: String) -> Box<Ending> {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Stopping { mut ending, calls, .. } => {
                // `conclude` closes calls in the `Tools` phase, so hand them over there.
                self.phase = Phase::Tools(calls);
                ending.diagnostic.get_or_insert_with(|| message.clone());
                ending.outranked.push(*fault(name, message));
                ending
            }
            other => {
                self.phase = other;
                self.outrank(fault(name, message))
            }
        }
    }

    /// Ends the run with this ending as soon as its running tools have ended, unless an answer
    /// stands.
    pub(super) fn stop(&mut self, ending: Box<Ending>, effects: &mut Vec<Effect>) -> Flow {
        let ending = self.outrank(ending);
        let mut open = match std::mem::replace(&mut self.phase, Phase::New) {
            // Without running tools there is nothing to wait for.
            Phase::Tools(open) if !open.running().is_empty() => open,
            other => {
                self.phase = other;
                return Break(ending);
            }
        };
        let ids = open.running();
        let grace = self.settings.limits.cancel_grace;
        effects.push(Effect::Emit(RunEvent::Stopping {
            reason: ending.termination.as_str().to_owned(),
            running: ids.len() as u32,
        }));
        effects.push(Effect::AbortTools { ids, grace });
        // Dismiss the approval prompts of calls that will not be made.
        effects.extend(open.take_asked().into_iter().map(|id| Effect::Abandon { id }));
        let until = self.now.saturating_add(grace).saturating_add(GIVE_UP);
        // The old tick is void: during a stop only `until` counts, and it may be later than the
        // armed one.
        self.armed = None;
        self.phase = Phase::Stopping { ending, calls: open, until };
        Continue(())
    }

    /// Handles an event while the run is being stopped: tools end, or are abandoned after the grace
    /// period.
    pub(super) fn on_stopping(&mut self, event: &EventKind, effects: &mut Vec<Effect>) -> Flow {
        let now = self.now;
        let Phase::Stopping { calls, until, .. } = &mut self.phase else {
            return Continue(());
        };
        if let EventKind::ToolEnded { tool, report } = event {
            if let Some((at, started)) = calls.report(*tool, report) {
                emit_ended(calls, at, now.saturating_sub(started), effects);
            }
        }
        if !calls.running().is_empty() && self.now < *until {
            return Continue(());
        }
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Stopping { ending, calls, .. } => {
                self.phase = Phase::Tools(calls);
                Break(ending)
            }
            other => {
                self.phase = other;
                Continue(())
            }
        }
    }

    /// Assembles the outcome, and aborts what still runs.
    pub(super) fn conclude(mut self, ending: Ending, effects: &mut Vec<Effect>) -> Outcome {
        let termination = ending.termination;
        let by_caller = matches!(
            termination,
            Termination::Cancelled | Termination::Terminated | Termination::ErrorTimeout
        );
        match std::mem::replace(&mut self.phase, Phase::New) {
            // The partial text stays in the conversation, so that a resumed run contains it.
            Phase::Calling(call) => {
                effects.push(Effect::AbortModel { id: call.id });
                self.settle_aborted(&call, effects);
                if !call.text.trim().is_empty() {
                    self.last_text = Some(call.text.clone());
                    self.state.push(Role::Assistant, vec![Part::Text { text: call.text }]);
                }
            }
            Phase::Tools(open) | Phase::Stopping { calls: open, .. } => {
                self.close_calls(open, termination, by_caller, effects);
            }
            // The driver must withdraw these, or a prompt would stay open and a budget reservation
            // be lost.
            Phase::Consulting { id, .. }
            | Phase::Reserving { id }
            | Phase::Compacting { id, .. }
            | Phase::Validating { id, .. } => effects.push(Effect::Abandon { id }),
            Phase::Backoff { .. } | Phase::New => {}
        }
        if self.state.streaming != StreamingState::Idle {
            self.state.streaming.abort();
        }
        self.state.end(termination);
        // Computed after the last call was booked, so that its cost counts.
        let mut also: Vec<Termination> = Vec::new();
        for other in self.also_true().into_iter().chain(ending.outranked_terminations()) {
            // A success in the last allowed turn has not exceeded the turn limit.
            let crossed = other != Termination::ErrorMaxTurns || !termination.is_success();
            if crossed && other != termination && !also.contains(&other) {
                also.push(other);
            }
        }
        // Fall back to an outranked failure's details: they are lost otherwise.
        let diagnostic = ending
            .diagnostic
            .or_else(|| ending.outranked.into_iter().find_map(|outranked| outranked.diagnostic));
        let snapshot = (termination == Termination::ErrorNoProgress)
            .then(|| self.progress.snapshot().cloned())
            .flatten();
        let (cost_upper, tokens_upper) = (self.ledger.cost_upper(), self.ledger.tokens_upper());
        Outcome {
            termination,
            decided_by: ending.decided_by,
            also,
            last_text: self.last_text,
            deliverable: ending.deliverable,
            summary: ending.summary,
            structured: ending.structured,
            messages: self.state.messages,
            epoch: self.state.epoch,
            signal: self.last_signal,
            usage: self.ledger.usage,
            cost: self.ledger.spent,
            cost_upper,
            cost_unknown: self.ledger.cost_unknown,
            tokens_upper,
            overrun: self.ledger.overrun,
            duration: self.now,
            turns: self.counts.turns,
            model_calls: self.counts.model_calls,
            tool_calls: self.counts.tool_calls,
            compactions: self.compactions.tried,
            fired: self.watchers.into_fired(),
            retry_after: ending.retry_after,
            no_progress_snapshot: snapshot,
            error_diagnostic: diagnostic,
            would_fit: ending.would_fit,
            halted_reason: ending.halted_reason,
            model: self.answered_model.or(self.settings.model),
            provider: self.settings.provider,
            run_id: self.settings.run_id,
            verified: None,
        }
    }

    /// Answers all open calls, so that the conversation is valid, and kills what still runs.
    fn close_calls(
        &mut self,
        mut open: OpenCalls,
        termination: Termination,
        by_caller: bool,
        effects: &mut Vec<Effect>,
    ) {
        if open.is_empty() {
            return;
        }
        let ids = open.running();
        if !ids.is_empty() {
            effects.push(Effect::AbortTools { ids, grace: Duration::ZERO });
        }
        effects.extend(open.take_asked().into_iter().map(|id| Effect::Abandon { id }));
        // `aborted` if the caller or the deadline stopped the tools, `skipped` if the run ended for
        // its own reasons.
        let status = if by_caller { ToolStatus::Aborted } else { ToolStatus::Skipped };
        let cut = open.close(status, &format!("the run ended as {termination}"));
        // An observer that saw a call begin must also see it end.
        for (at, started) in cut {
            emit_ended(&open, at, self.now.saturating_sub(started), effects);
        }
        self.record_results(open);
    }
}
