//! A run that would end as a success: validation against the schema, repairs, the stop hook and the
//! verifier. The verifier comes last, so that nothing can change an accepted answer.
//!
//! ```text
//! success ─► Verify ─► accepted ─► end as the success
//!               ▲         rejected ─► message to the model ─► Boundary, at most `verify_rounds` times
//! ```
//!
//! With `verify_rounds`, only an accepted answer is a success: every other ending carries the answer.
//! Without, the verdict is stored in the outcome and does not change the ending.
//!
//! The answers of hooks to all questions that are not about a tool call arrive here, too.

use crate::kernel::ceilings::precheck::check_deadline;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, InjectionReason, RunEvent};
use crate::kernel::event::HookDecision;
use crate::kernel::outcome::VerifyRound;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow, misplaced, without_middle};
use crate::kernel::phase::{Next, Phase, Point};
use crate::kernel::tools::background;
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
pub(super) fn succeed(ending: Box<Ending>, candidate: Value, context: &RunContext) -> Flow<Next> {
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
fn reply_answered(
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
            ending.outranked.push(*misplaced(&Decision::ReplyHook, answer.name()));
        }
        HookDecision::Proceed | HookDecision::OutputCap(_) | HookDecision::WithNote { .. } => {}
    }
    let candidate = candidate(&ending, context);
    succeed(ending, candidate, context)
}

/// Handles the stop hook's answer: the success goes to the verifier, or is vetoed.
fn stop_hook_answered(
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
            ending.outranked.push(*misplaced(&Decision::StopHook, answer.name()));
            ask_verifier(ending, context)
        }
        HookDecision::Proceed | HookDecision::OutputCap(_) | HookDecision::WithNote { .. } => {
            ask_verifier(ending, context)
        }
    }
}

/// Maximum length in bytes of the verifier's output as the model reads it. The output comes from a
/// program that runs the model's work, so it may be of any size.
const MOST_OUTPUT: usize = 16 * 1024;

/// Asks the verifier about a success, or ends the run with it if there is none.
fn ask_verifier(mut success: Box<Ending>, context: &RunContext) -> Flow<Next> {
    if !context.settings.verifier {
        return Break(success);
    }
    // The verifier may take minutes, so it does not start after the deadline.
    if let Break(mut timeout) = check_deadline(context) {
        if context.needs_verdict() {
            timeout.carry(&success);
            return Break(timeout);
        }
        success.outranked.push(*timeout);
        return Break(success);
    }
    Continue(Next::Verify { success })
}

/// Requests a verdict on a success.
pub(crate) fn request_verdict(
    success: Box<Ending>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    let id = context.effect_id();
    let answer = success.answer(context.said.visible());
    let round = context.verdicts.count().saturating_add(1);
    effects.push(Effect::Verify { id, round, answer });
    Next::Wait(Phase::Verifying { id, success, since: context.now })
}

/// Handles a tick: a verifier that took too long has rejected the answer.
pub(crate) fn verdict_timed_out(
    phase: Phase,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let (id, success, since) = match phase {
        Phase::Verifying { id, success, since } => (id, success, since),
        other => return Continue(Next::Wait(other)),
    };
    let limit = context.settings.limits.verify_timeout;
    let Some(limit) = limit.filter(|limit| since.saturating_add(*limit) <= context.now) else {
        return Continue(Next::Wait(Phase::Verifying { id, success, since }));
    };
    effects.push(Effect::Abandon { id });
    let output = format!("the verifier did not end within {limit:?} and was stopped");
    judged(success, false, &output, context, effects)
}

/// Handles a verdict: the success stands, or the model receives the reason, or the run ends.
pub(crate) fn judged(
    mut success: Box<Ending>,
    passed: bool,
    output: &str,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let output = without_middle(output.trim(), MOST_OUTPUT);
    let turn = context.counts.turns;
    context.verdicts.rounds.push(VerifyRound { turn, passed, output: output.clone() });
    let (round, rounds) = (context.verdicts.count(), context.settings.limits.verify_rounds);
    effects.push(Effect::Emit(RunEvent::Verified {
        round,
        rounds,
        passed,
        output: output.clone(),
    }));
    let Some(most) = rounds.filter(|_| !passed) else { return Break(success) };
    context.verdicts.rejected = Some(success.clone());
    // The answer is withdrawn, so an ending that it outranked takes its place.
    if let Some(ending) = success.next_in_rank() {
        return Break(ending);
    }
    if round >= most {
        let evidence = match most {
            1 => "the verifier rejected the answer".to_owned(),
            _ => format!("the verifier rejected the answer in each of {most} rounds"),
        };
        let termination = Termination::ErrorNotVerified;
        let ending = Ending::at_limit(Limit::VerifyRounds, termination, evidence);
        return Break(ending.diagnostic(output));
    }
    let shown = if output.is_empty() { "It printed nothing." } else { &output };
    let message = format!(
        "The result was verified and rejected (round {round} of {most}). Output of the verifier:\n\n{shown}\n\nFix the cause, then give your answer again."
    );
    context.inject_message(InjectionReason::Verification, message, effects);
    Continue(Next::Boundary)
}

/// Handles an answer to a question at this point.
pub(crate) fn consulted(
    point: Point,
    answer: HookDecision,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let (notes, answer) = answer.split_notes();
    for note in notes {
        context.inject_message(InjectionReason::Hook, note, effects);
    }
    let (decision, next) = match point {
        Point::Stop { success, .. } => {
            return stop_hook_answered(success, answer, context, effects);
        }
        Point::Reply(success) => return reply_answered(success, answer, context),
        Point::Background => return background::reviewed(answer, context, effects),
        Point::Prompt => (Decision::PromptHook, Next::Boundary),
        Point::PreIteration => (Decision::PreIterationHook, Next::Params),
        Point::ChatParams => (Decision::ChatParamsHook, Next::PreCall),
        Point::PreCall => (Decision::PreCallHook, Next::Call),
    };
    match answer {
        // Before a turn there is nothing to deny but the turn itself, so a denial ends the run too.
        HookDecision::Halt(reason) | HookDecision::Deny(reason) => {
            return Break(Ending::halted(Layer::Hook, decision, reason));
        }
        HookDecision::ProceedWith(text) => {
            context.inject_message(InjectionReason::Hook, text, effects);
        }
        HookDecision::OutputCap(cap) => context.output_cap = Some(cap),
        HookDecision::ChangeCall(_) | HookDecision::ChangeResult(_) | HookDecision::Park(_) => {
            return Break(misplaced(&decision, answer.name()));
        }
        // `split_notes` leaves no `WithNote`.
        HookDecision::Proceed | HookDecision::WithNote { .. } => {}
    }
    Continue(next)
}
