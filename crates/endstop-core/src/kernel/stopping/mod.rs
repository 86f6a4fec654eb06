//! Commands and failures that end a run in any phase: cancel, terminate, a deadline, a halt, a fault.
//! Running tools get a grace period; a declared answer stands.
//!
//! `abort` ends what a run waits for: the model call, the tools and the open questions.

pub(super) mod conclude;
pub(super) mod wrap_up;

use super::answer::success::end_or_succeed;
use super::ceilings::booking::settle_aborted;
use super::context::RunContext;
use super::effect::{Effect, RunEvent};
use super::event::EventKind;
use super::outcome::decided_by::{Decision, Layer};
use super::outcome::ending::{Ending, Flow, fault};
use super::phase::{Next, Phase, Point, Stage};
use super::setup::guest_mode::Capability;
use super::tools::finish::declared_by_finish;
use super::tools::open_calls::{GIVE_UP, OpenCalls};
use super::tools::results::{emit_ended, record_results, withhold_results};
use crate::message::{Part, Role, ToolStatus};
use crate::termination::Termination;
use crate::visible::is_blank;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// Builds the ending of a terminate, which carries a declared answer and an earlier cause.
pub(super) fn terminated(phase: &mut Phase, context: &RunContext) -> Box<Ending> {
    let ending = Ending::new(
        Termination::Terminated,
        Layer::Caller,
        Decision::Terminate,
        "the loop was terminated",
    );
    let (mut ending, _) = outrank(phase, ending, context);
    // Terminate during a stop: the run ends now, but keeps the answer and the cause it already had.
    let earlier = match phase {
        Phase::Stopping { ending, .. } => Some(&**ending),
        Phase::WrappingUp(wrap_up) => Some(&*wrap_up.ending),
        _ => None,
    };
    if let Some(earlier) = earlier {
        ending.carry(earlier);
        ending.outranked.push(earlier.clone());
    }
    ending
}

/// Builds the ending of a cancel.
pub(super) fn cancelled() -> Box<Ending> {
    Ending::new(
        Termination::Cancelled,
        Layer::Caller,
        Decision::Cancel,
        "the caller cancelled the run",
    )
}

/// Handles a failure of the driver's user code. A run that is being stopped ends now with the
/// ending it had, because cancel, deadline and halt outrank a failure that happens while they are
/// carried out.
pub(super) fn faulted(
    phase: &mut Phase,
    name: String,
    message: String,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    Break(match phase.take() {
        Phase::Stopping { mut ending, calls, .. } => {
            // `conclude` closes calls in the `Tools` phase, so hand them over there.
            *phase = Phase::Tools(calls);
            ending.diagnostic.get_or_insert_with(|| message.clone());
            ending.outranked.push(*fault(name, message));
            ending
        }
        Phase::WrappingUp(wrap_up) => {
            let mut ending = wrap_up.ending.clone();
            ending.diagnostic.get_or_insert_with(|| message.clone());
            ending.outranked.push(*fault(name, message));
            // The hand-over is aborted when the run is concluded.
            *phase = Phase::WrappingUp(wrap_up);
            ending
        }
        other => {
            *phase = other;
            let (ending, checked) = outrank(phase, fault(name, message), context);
            if !checked {
                return check(phase, ending, context, effects);
            }
            ending
        }
    })
}

/// Validates an answer that outranks the ending of the run, and asks the stop hook, as for any other
/// answer. If they refuse it, the ending that it outranks decides.
fn check(
    phase: &mut Phase,
    answer: Box<Ending>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let termination = answer.termination;
    abort(phase.take(), termination, context, effects);
    end_or_succeed(answer, OpenCalls::default(), context)
}

/// Resolves a conflict between an ending and an answer that was declared before it: the answer
/// stands. Only the caller's cancel and terminate outrank it, and they carry the answer along. So does
/// every ending if the answer still needs a verdict.
///
/// An answer that is still being validated may not be one; it is carried as well. Returns `false` with an
/// answer that neither the schema nor the stop hook has seen.
pub(super) fn outrank(
    phase: &mut Phase,
    mut ending: Box<Ending>,
    context: &RunContext,
) -> (Box<Ending>, bool) {
    let checked =
        !matches!(phase, Phase::Tools(_) | Phase::Consulting { point: Point::Reply(_), .. });
    let by_caller = matches!(ending.termination, Termination::Cancelled | Termination::Terminated);
    // With verification rounds an answer is a success only if the verifier has accepted it.
    match declared(phase, context) {
        Some(answer) if by_caller || context.needs_verdict() => {
            ending.carry(&answer);
            (ending, true)
        }
        Some(mut answer) => {
            answer.outranked.push(*ending);
            (answer, checked)
        }
        None => {
            if let Phase::Validating { success, .. } = phase {
                ending.carry(success);
            }
            (ending, true)
        }
    }
}

/// Returns the answer that is declared at this point: it waits for a hook or the verifier, or
/// `finish` is valid while other calls of its turn still run, or a guest may call again.
fn declared(phase: &mut Phase, context: &RunContext) -> Option<Box<Ending>> {
    match phase {
        Phase::Consulting {
            point: Point::Stop { success: answer, .. } | Point::Reply(answer),
            ..
        }
        | Phase::Verifying { success: answer, .. } => Some(answer.clone()),
        // An answer of a guest's run that waits for the end of the loop.
        Phase::Guest(idle) => {
            idle.provisional.clone().filter(|ending| ending.termination.is_success())
        }
        Phase::Tools(open) => declared_by_finish(open, &context.turn_text(), &context.counts),
        _ => None,
    }
}

/// Ends the run with this ending as soon as its running tools have ended, unless an answer stands.
pub(super) fn stop(
    phase: &mut Phase,
    ending: Box<Ending>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let (ending, checked) = outrank(phase, ending, context);
    let mut open = match phase.take() {
        // Without running tools there is nothing to wait for.
        Phase::Tools(open) if !open.running().is_empty() && context.may(Capability::Clocks) => open,
        other => {
            *phase = other;
            if !checked {
                return check(phase, ending, context, effects);
            }
            return Break(ending);
        }
    };
    let ids = open.running();
    let grace = context.settings.limits.cancel_grace;
    effects.push(Effect::Emit(RunEvent::Stopping {
        reason: ending.termination.as_str().to_owned(),
        running: ids.len() as u32,
    }));
    let ids = ids.into_iter().chain(context.background.running()).collect();
    effects.push(Effect::AbortTools { ids, grace });
    withhold_results(&mut open, effects);
    // Dismiss the approval prompts of calls that will not be made.
    effects.extend(open.take_asked().into_iter().map(|id| Effect::Abandon { id }));
    let until = context.now.saturating_add(grace).saturating_add(GIVE_UP);
    Continue(Next::Wait(Phase::Stopping { ending, calls: open, until }))
}

/// Handles an event while the run is being stopped: tools end, or are abandoned after the grace
/// period. Any other phase continues to wait.
pub(super) fn stopping(
    phase: Phase,
    event: &EventKind,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let (ending, mut calls, until) = match phase {
        Phase::Stopping { ending, calls, until } => (ending, calls, until),
        other => return Continue(Next::Wait(other)),
    };
    if let EventKind::ToolEnded { tool, report } = event {
        if let Some((at, started)) = calls.report(*tool, &mut report.clone()) {
            // No hook starts while the run is being stopped, so none can pass the result.
            if context.settings.hooks.post_tool && report.started {
                calls.withhold(at);
            }
            emit_ended(&calls, at, context.now.saturating_sub(started), effects);
        }
    }
    if !calls.running().is_empty() && context.now < until {
        return Continue(Next::Wait(Phase::Stopping { ending, calls, until }));
    }
    if ending.termination.is_success() {
        return check(&mut Phase::Tools(calls), ending, context, effects);
    }
    Continue(Next::End { ending, calls })
}

/// Aborts what the phase waits for.
pub(crate) fn abort(
    phase: Phase,
    termination: Termination,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    match phase {
        // The partial text stays in the conversation, so that a resumed run contains it.
        Phase::Calling(call) => {
            effects.push(Effect::AbortModel { id: call.id });
            settle_aborted(&call, context, effects);
            if !is_blank(&call.text) {
                context.said.cut_off(&call.text);
                context.state.push(Role::Assistant, vec![Part::Text { text: call.text }]);
            }
        }
        Phase::Tools(open) | Phase::Stopping { calls: open, .. } => {
            close_calls(open, termination, context, effects);
        }
        Phase::Guest(idle) => {
            close_calls(idle.calls, termination, context, effects);
            if let Some(text) = idle.partial {
                context.state.push(Role::Assistant, vec![Part::Text { text }]);
            }
        }
        // The driver must withdraw these, or a prompt would stay open and a budget reservation be
        // lost.
        Phase::Consulting { id, .. }
        | Phase::Reserving { id }
        | Phase::Compacting { id, .. }
        | Phase::Validating { id, .. }
        | Phase::Verifying { id, .. } => effects.push(Effect::Abandon { id }),
        Phase::WrappingUp(wrap_up) => match wrap_up.stage {
            Stage::Calling(call) => {
                effects.push(Effect::AbortModel { id: call.id });
                settle_aborted(&call, context, effects);
                // A part of a hand-over is still worth reading.
                context.hand_over.take_text(&call.text);
                if let Some(text) = context.hand_over.text.clone() {
                    context.state.push(Role::Assistant, vec![Part::Text { text }]);
                }
            }
            Stage::Consulting(id) | Stage::Reserving(id) => effects.push(Effect::Abandon { id }),
        },
        Phase::Backoff { .. } | Phase::Waiting { .. } | Phase::New => {}
    }
}

/// Answers all open calls, so that the conversation is valid, and kills what still runs.
fn close_calls(
    mut open: OpenCalls,
    termination: Termination,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    if open.is_empty() {
        return;
    }
    let ids = open.running();
    if !ids.is_empty() && context.may(Capability::Clocks) {
        effects.push(Effect::AbortTools { ids, grace: Duration::ZERO });
    }
    withhold_results(&mut open, effects);
    effects.extend(open.take_asked().into_iter().map(|id| Effect::Abandon { id }));
    let by_caller = matches!(
        termination,
        Termination::Cancelled | Termination::Terminated | Termination::ErrorTimeout
    );
    // `aborted` if the caller or the deadline stopped the tools, `skipped` if the run ended for
    // its own reasons.
    let status = if by_caller { ToolStatus::Aborted } else { ToolStatus::Skipped };
    let cut = open.close(status, &format!("the run ended as {termination}"));
    // An observer that saw a call begin must also see it end.
    for (at, started) in cut {
        emit_ended(&open, at, context.now.saturating_sub(started), effects);
    }
    record_results(open, context);
}
