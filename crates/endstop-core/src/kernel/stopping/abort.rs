//! Aborts what a run waits for, because the run ends or its work is over: the model call, the tools and
//! the open questions.

use crate::kernel::ceilings::booking::settle_aborted;
use crate::kernel::context::RunContext;
use crate::kernel::effect::Effect;
use crate::kernel::phase::{Phase, Stage};
use crate::kernel::tools::open_calls::OpenCalls;
use crate::kernel::tools::results::{emit_ended, record_results, withhold_results};
use crate::message::{Part, Role, ToolStatus};
use crate::termination::Termination;
use crate::visible::is_blank;
use std::time::Duration;

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
                context.said.last_text = Some(context.said.with(&call.text));
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
    if !ids.is_empty() && context.stops_tools() {
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
