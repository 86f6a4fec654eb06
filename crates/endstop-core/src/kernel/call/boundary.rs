//! The boundary before a turn: the limits, compaction and the hooks.
//!
//! ```text
//! start_turn: limits ─► compaction? ─► pre_iteration? ─► chat_params? ─► pre_call? ─► request.rs
//! ```

use super::remaining::remaining;
use super::steering::enter_messages;
use crate::kernel::ceilings::precheck::check_limits;
use crate::kernel::context::{Attempts, RunContext};
use crate::kernel::effect::{ConsultPoint, Effect, InjectionReason};
use crate::kernel::jitter::Jitter;
use crate::kernel::next::Next;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::phase::Point;
use crate::kernel::setup::spec::ProactiveCompaction;
use crate::kernel::tools::background;
use crate::price::Price;
use std::ops::ControlFlow::Continue;

/// Starts the run: sets what only the driver knows, and asks the prompt hook.
pub(crate) fn start(
    seed: u64,
    price: Option<Price>,
    wall_ms: Option<u64>,
    context: &mut RunContext,
) -> Flow<Next> {
    context.jitter = Jitter(seed);
    context.ledger.price = price;
    context.guest.price = price.filter(|_| context.is_guest()).map(Box::new);
    context.state.started_wall_ms = wall_ms;
    context.judge.begin_run()?;
    if context.settings.hooks.prompt {
        return Continue(Next::Consult { point: Point::Prompt, ask: ConsultPoint::Prompt });
    }
    Continue(Next::Boundary)
}

/// Starts a turn: limits, then compaction, then the `pre_iteration` hook.
pub(crate) fn start_turn(context: &mut RunContext, effects: &mut Vec<Effect>) -> Flow<Next> {
    // Everything below is counted per turn, not per run.
    context.attempts = Attempts::default();
    context.compactions.forced_this_turn = false;
    begin_turn(context)?;
    if let Some(text) = remaining(context) {
        context.inject_message(InjectionReason::Remaining, text, effects);
    }
    if compaction_is_due(context) {
        // The turn continues with the `pre_iteration` hook when the compaction has ended.
        return Continue(Next::Compact { forced: false });
    }
    Continue(Next::Iteration)
}

/// Begins a turn, or another attempt of a guest at it, and checks the limits.
pub(crate) fn begin_turn(context: &mut RunContext) -> Flow {
    // Measurements belong to one step, so the next one starts without any.
    context.judge.context.step = i64::from(context.counts.turns);
    // An answer that continues is still the same step.
    if context.said.partial.is_empty() {
        context.judge.context.metrics.clear();
    }
    check_limits(context)
}

/// `true` if the conversation must be shortened before the next call.
fn compaction_is_due(context: &mut RunContext) -> bool {
    // After repeated failures each further try would cost a model call and change nothing.
    if context.compactions.failed_in_a_row >= context.settings.compaction.max_failures {
        return false;
    }
    match context.settings.compaction.proactive {
        ProactiveCompaction::Never => false,
        ProactiveCompaction::Ask => true,
        ProactiveCompaction::AtShare(share) => context
            .settings
            .context_window
            .is_some_and(|window| context.prompt_estimate() as f64 >= share * window as f64),
    }
}

/// Consults the hook before a turn, if there is one.
pub(crate) fn pre_iteration(context: &RunContext) -> Next {
    if !context.settings.hooks.pre_iteration {
        return Next::Params;
    }
    let ask = ConsultPoint::PreIteration {
        tool_turns: context.counts.tool_turns,
        unproductive: context.judge.unproductive(),
    };
    Next::Consult { point: Point::PreIteration, ask }
}

/// Consults the hook before a model call, if there is one.
pub(crate) fn chat_params(context: &RunContext) -> Next {
    if !context.settings.hooks.chat_params {
        return Next::PreCall;
    }
    let ask = ConsultPoint::ChatParams {
        tool_turns: context.counts.tool_turns,
        output_cap: context.output_cap,
    };
    Next::Consult { point: Point::ChatParams, ask }
}

/// Adds the messages of the user to the request, and consults the hook that sees it, if there is one.
pub(crate) fn pre_call(context: &mut RunContext, effects: &mut Vec<Effect>) -> Next {
    if let Some(question) = background::review(context) {
        return question;
    }
    background::enter_results(context, effects);
    enter_messages(context, effects);
    if !context.settings.hooks.pre_call {
        return Next::Call;
    }
    let ask =
        ConsultPoint::PreCall { turn: context.counts.turns + 1, output_cap: context.output_cap };
    Next::Consult { point: Point::PreCall, ask }
}
