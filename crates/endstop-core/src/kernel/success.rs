//! A run that would end as a success: validation against the schema, repairs, and the stop hook.

use super::decided_by::{Decision, Layer};
use super::effect::{ConsultPoint, Effect, EffectId, InjectionReason};
use super::event::Answer;
use super::guard::Flow;
use super::machine::{Machine, Phase, Point};
use super::outcome::Ending;
use crate::message::{Part, Role};
use crate::termination::Termination;
use serde_json::Value;
use std::ops::ControlFlow::{Break, Continue};

/// Maximum number of successes that a stop hook may veto in one run, so that a hook that always
/// vetoes cannot keep a run alive.
const MOST_VETOES: u32 = 3;

impl Machine {
    /// Ends the run with this ending; a success is first validated and shown to the stop hook.
    pub(super) fn end_or_succeed(
        &mut self,
        ending: Box<Ending>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        if !ending.termination.is_success() {
            return Break(ending);
        }
        let candidate = ending
            .deliverable
            .clone()
            .or_else(|| self.last_text.clone().map(Value::String))
            .unwrap_or(Value::Null);
        self.succeed(ending, candidate, effects)
    }

    /// Handles a run that would end as a success: validates it against the schema, then asks the
    /// stop hook.
    pub(super) fn succeed(
        &mut self,
        ending: Box<Ending>,
        candidate: Value,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        // Calls that have not run must be answered in any case, because a call without a result
        // makes the conversation invalid.
        self.answer_unrun("not run: the run ended");
        if self.settings.output_schema {
            let id = self.effect_id();
            self.phase = Phase::Validating { id, success: ending };
            effects.push(Effect::Validate { id, candidate });
            return Continue(());
        }
        self.ask_stop_hook(ending, effects)
    }

    /// Handles the result of a validation: the answer stands, is repaired, or ends the run.
    pub(super) fn validated(
        &mut self,
        id: EffectId,
        result: Result<Value, String>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        let mut success = match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Validating { id: waited, success } if waited == id => success,
            other => {
                self.phase = other;
                return Continue(());
            }
        };
        let problem = match result {
            Ok(value) => {
                success.structured = Some(value);
                return self.ask_stop_hook(success, effects);
            }
            Err(problem) => problem,
        };
        // The candidate is not an answer, so an ending that it outranked takes its place.
        if let Some(ending) = success.next_in_rank() {
            return Break(ending);
        }
        let max = self.settings.limits.max_structured_output_retries;
        if max.is_none_or(|max| self.counts.repairs < max) {
            self.counts.repairs += 1;
            self.inject_message(
                InjectionReason::Repair,
                format!("Your answer does not satisfy the required schema: {problem}. Answer again with one JSON value that does, and nothing else."),
                effects,
            );
            return self.before_turn(effects);
        }
        // With no repair allowed, the failure is the first answer's own; otherwise the limit is the
        // cause.
        let (termination, evidence) = if max == Some(0) {
            (Termination::ErrorSchemaValidation, problem.clone())
        } else {
            (
                Termination::ErrorMaxStructuredOutputRetries,
                format!("after {} repairs: {problem}", self.counts.repairs),
            )
        };
        Break(
            Ending::new(termination, Layer::Limit, Decision::MaxStructuredOutputRetries, evidence)
                .diagnostic(problem),
        )
    }

    /// Asks the stop hook about a success, or ends the run with it.
    pub(super) fn ask_stop_hook(&mut self, ending: Box<Ending>, effects: &mut Vec<Effect>) -> Flow {
        if !self.settings.hooks.stop || self.counts.vetoes >= MOST_VETOES {
            return Break(ending);
        }
        let answer = match ending.deliverable.as_ref().or(ending.structured.as_ref()) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => Some(value.to_string()),
            None => self.last_text.clone(),
        };
        self.consult(Point::Stop(ending), ConsultPoint::Stop { answer }, effects);
        Continue(())
    }

    /// Handles the reply to a text answer: the run continues with it, or ends if there is none.
    pub(super) fn reply_answered(
        &mut self,
        mut ending: Box<Ending>,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        match answer {
            Answer::Halt(reason) => {
                ending.outranked.push(*Ending::halted(Layer::Hook, Decision::ReplyHook, reason));
                let candidate = self.last_text.clone().map_or(Value::Null, Value::String);
                self.succeed(ending, candidate, effects)
            }
            Answer::Deny(text) | Answer::ProceedWith(text) => {
                // A failure that the answer had outranked decides now, because the conversation was
                // over anyway.
                if let Some(ending) = ending.next_in_rank() {
                    return Break(ending);
                }
                self.context.message_arrived = true;
                self.state.push(Role::User, vec![Part::Text { text }]);
                self.before_turn(effects)
            }
            Answer::Proceed | Answer::OutputCap(_) => {
                let candidate = self.last_text.clone().map_or(Value::Null, Value::String);
                self.succeed(ending, candidate, effects)
            }
        }
    }

    /// Handles the stop hook's answer: the success stands, or is vetoed.
    pub(super) fn stop_hook_answered(
        &mut self,
        mut ending: Box<Ending>,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        match answer {
            Answer::Halt(reason) => {
                ending.outranked.push(*Ending::halted(Layer::Hook, Decision::StopHook, reason));
                Break(ending)
            }
            // A veto withdraws the answer, so an ending that it outranked takes its place.
            Answer::Deny(reason) => {
                if let Some(ending) = ending.next_in_rank() {
                    return Break(ending);
                }
                self.counts.vetoes += 1;
                self.inject_message(InjectionReason::Veto, reason, effects);
                self.before_turn(effects)
            }
            // The run ends here; the model reads the message only if the conversation is continued.
            Answer::ProceedWith(text) => {
                self.inject_message(InjectionReason::Hook, text, effects);
                Break(ending)
            }
            Answer::Proceed | Answer::OutputCap(_) => Break(ending),
        }
    }
}
