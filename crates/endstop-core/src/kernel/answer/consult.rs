//! Answers of hooks and persons to the questions of the run. `tools/` handles those about a call.

use super::success::{reply_answered, stop_hook_answered};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, InjectionReason};
use crate::kernel::event::HookDecision;
use crate::kernel::next::Next;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::Ending;
use crate::kernel::outcome::guard::{Flow, misplaced};
use crate::kernel::phase::Point;
use crate::kernel::tools::background;
use std::ops::ControlFlow::{Break, Continue};

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
            return Break(misplaced(&decision, &answer));
        }
        // `split_notes` leaves no `WithNote`.
        HookDecision::Proceed | HookDecision::WithNote { .. } => {}
    }
    Continue(next)
}
