//! A run that would end as a success: validation against the schema, repairs, and the stop hook. The
//! verifier (`verification.rs`) comes last, so that nothing can change an accepted answer.

use super::verification::ask_verifier;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, InjectionReason};
use crate::kernel::event::HookDecision;
use crate::kernel::next::Next;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::Ending;
use crate::kernel::outcome::guard::{Flow, misplaced};
use crate::kernel::phase::Point;
use crate::kernel::tools::open_calls::OpenCalls;
use crate::kernel::tools::results::answer_unrun;
use crate::limits::Limit;
use crate::message::{Part, Role};
use crate::termination::Termination;
use serde_json::Value;
use std::ops::ControlFlow::{Break, Continue};

/// Maximum number of successes that a stop hook may veto in one run, so that a hook that always
/// vetoes cannot keep a run alive.
const MOST_VETOES: u32 = 3;

/// Ends the run with this ending; a success is first validated and shown to the stop hook. `calls`
/// are the calls of the turn that have not run.
pub(crate) fn end_or_succeed(
    ending: Box<Ending>,
    calls: OpenCalls,
    context: &mut RunContext,
) -> Flow<Next> {
    if !ending.termination.is_success() {
        return Continue(Next::End { ending, calls });
    }
    // They must be answered in any case, because a call without a result makes the conversation
    // invalid.
    answer_unrun(calls, "the run ended", context);
    let candidate = candidate(&ending, context);
    succeed(ending, candidate, context)
}

/// Returns the answer that is validated: the declared one, or else the text.
fn candidate(ending: &Ending, context: &RunContext) -> Value {
    let text = || context.said.visible().map(Value::from);
    ending.deliverable.clone().or_else(text).unwrap_or(Value::Null)
}

/// Handles a run that would end as a success: validates it against the schema, then asks the stop
/// hook.
pub(crate) fn succeed(ending: Box<Ending>, candidate: Value, context: &RunContext) -> Flow<Next> {
    if context.settings.output_schema {
        return Continue(Next::Validate { success: ending, candidate });
    }
    ask_stop_hook(ending, context)
}

/// Handles the result of a validation: the answer stands, is repaired, or ends the run.
pub(crate) fn validated(
    mut success: Box<Ending>,
    result: Result<Value, String>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let problem = match result {
        Ok(value) => {
            success.structured = Some(value);
            return ask_stop_hook(success, context);
        }
        Err(problem) => problem,
    };
    // The candidate is not an answer, so an ending that it outranked takes its place.
    if let Some(ending) = success.next_in_rank() {
        return Break(ending);
    }
    let max = context.settings.limits.max_structured_output_retries;
    if max.is_none_or(|max| context.counts.repairs < max) {
        context.counts.repairs += 1;
        context.inject_message(
            InjectionReason::Repair,
            format!("Your answer does not satisfy the required schema: {problem}. Answer again with one JSON value that does, and nothing else."),
            effects,
        );
        return Continue(Next::Boundary);
    }
    // With no repair allowed, the failure is the first answer's own; otherwise the limit is the
    // cause.
    let (termination, evidence) = if max == Some(0) {
        (Termination::ErrorSchemaValidation, problem.clone())
    } else {
        (
            Termination::ErrorMaxStructuredOutputRetries,
            format!("after {} repairs: {problem}", context.counts.repairs),
        )
    };
    Break(
        Ending::at_limit(Limit::MaxStructuredOutputRetries, termination, evidence)
            .diagnostic(problem),
    )
}

/// Asks the stop hook about a success, or else the verifier.
fn ask_stop_hook(ending: Box<Ending>, context: &RunContext) -> Flow<Next> {
    if !context.settings.hooks.stop || context.counts.vetoes >= MOST_VETOES {
        return ask_verifier(ending, context);
    }
    let answer = ending.answer(context.said.visible());
    Continue(Next::Consult {
        point: Point::Stop { success: ending, asked: context.now },
        ask: ConsultPoint::Stop { answer },
    })
}

/// Handles the reply to a text answer: the run continues with it, or ends if there is none.
pub(crate) fn reply_answered(
    mut ending: Box<Ending>,
    answer: HookDecision,
    context: &mut RunContext,
) -> Flow<Next> {
    match answer {
        HookDecision::Halt(reason) => {
            ending.outranked.push(*Ending::halted(Layer::Hook, Decision::ReplyHook, reason));
        }
        HookDecision::Deny(text) | HookDecision::ProceedWith(text) => {
            // A failure that the answer had outranked decides now, because the conversation was
            // over anyway.
            if let Some(ending) = ending.next_in_rank() {
                return Break(ending);
            }
            context.judge.context.message_arrived = true;
            context.state.push(Role::User, vec![Part::Text { text }]);
            return Continue(Next::Boundary);
        }
        HookDecision::ChangeCall(_) | HookDecision::ChangeResult(_) | HookDecision::Park(_) => {
            ending.outranked.push(*misplaced(&Decision::ReplyHook, &answer));
        }
        HookDecision::Proceed | HookDecision::OutputCap(_) | HookDecision::WithNote { .. } => {}
    }
    let candidate = candidate(&ending, context);
    succeed(ending, candidate, context)
}

/// Handles the stop hook's answer: the success goes to the verifier, or is vetoed.
pub(crate) fn stop_hook_answered(
    mut ending: Box<Ending>,
    answer: HookDecision,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    match answer {
        HookDecision::Halt(reason) => {
            ending.outranked.push(*Ending::halted(Layer::Hook, Decision::StopHook, reason));
            ask_verifier(ending, context)
        }
        // A veto withdraws the answer, so an ending that it outranked takes its place.
        HookDecision::Deny(reason) => {
            if let Some(ending) = ending.next_in_rank() {
                return Break(ending);
            }
            context.counts.vetoes += 1;
            context.inject_message(InjectionReason::Veto, reason, effects);
            Continue(Next::Boundary)
        }
        // The model reads the message only if the conversation is continued.
        HookDecision::ProceedWith(text) => {
            context.inject_message(InjectionReason::Hook, text, effects);
            ask_verifier(ending, context)
        }
        // A finished answer takes precedence over a fault.
        HookDecision::ChangeCall(_) | HookDecision::ChangeResult(_) | HookDecision::Park(_) => {
            ending.outranked.push(*misplaced(&Decision::StopHook, &answer));
            ask_verifier(ending, context)
        }
        HookDecision::Proceed | HookDecision::OutputCap(_) | HookDecision::WithNote { .. } => {
            ask_verifier(ending, context)
        }
    }
}
