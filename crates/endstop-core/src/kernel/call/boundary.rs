//! The boundary before a turn: the limits, compaction, the hooks, and the messages that enter there.
//!
//! ```text
//! start_turn: limits ─► compaction? ─► pre_iteration? ─► chat_params? ─► pre_call? ─► request.rs
//! ```
//!
//! A message of the user waits until the next model call, because before that the conversation may end with tool
//! calls that have no results yet, or may be replaced by a shorter one. It enters in front of the
//! hook that sees the request, so that no message is sent that the hook has not seen.
//!
//! The rest of the limits (`tell_remaining`, `warn_model`) is a new message at the end of the conversation, so that the prompts before it stay as they
//! were, and a provider's cache of them stays valid.

use crate::kernel::ceilings::left::{remaining, warning};
use crate::kernel::ceilings::pause::{begin_pause, check_rate, pause};
use crate::kernel::ceilings::precheck::check_limits;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, InjectionReason, RunEvent};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Before, Next, Point};
use crate::kernel::records::{Attempts, Jitter};
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::setup::limit_changes::LimitChanges;
use crate::kernel::setup::spec::ProactiveCompaction;
use crate::kernel::tools::background;
use crate::message::{Part, Role};
use crate::price::Price;
use crate::visible::is_blank;
use std::mem::take;
use std::ops::ControlFlow::{Break, Continue};

/// Starts the run: sets what only the driver knows, and asks the prompt hook.
pub(crate) fn start(
    seed: u64,
    price: Option<Price>,
    wall_ms: Option<u64>,
    context: &mut RunContext,
) -> Flow<Next> {
    context.jitter = Jitter(seed);
    context.ledger.price = price;
    context.guest.price = price.filter(|_| !context.may(Capability::Loop)).map(Box::new);
    context.state.started_wall_ms = wall_ms;
    context.windows.set_clock(context.now, wall_ms);
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
    if let Some(pause) = pause(context, context.now) {
        return Continue(Next::Wait(begin_pause(pause, Before::Turn, context, effects)));
    }
    if let Some(text) = remaining(context) {
        context.inject_message(InjectionReason::Remaining, text, effects);
    }
    if let Some(text) = warning(context) {
        context.inject_message(InjectionReason::Warning, text, effects);
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
    if context.said.partial().is_empty() {
        context.judge.context.metrics.clear();
    }
    check_limits(context)?;
    check_rate(context)?;
    context.counts.over_calls = None;
    Continue(())
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

/// Accepts a message of the user.
pub(crate) fn said(text: String, context: &mut RunContext) {
    // The client of a guest owns the conversation.
    if context.may(Capability::Loop) && !is_blank(&text) {
        context.unread.push(text);
    }
}

/// Moves the waiting messages into the conversation.
fn enter_messages(context: &mut RunContext, effects: &mut Vec<Effect>) {
    for text in take(&mut context.unread) {
        // The user may ask for exactly the calls that counted as repetition before.
        context.judge.context.message_arrived = true;
        context.inject_message(InjectionReason::Said, text, effects);
    }
}

/// Appends the messages that no model call has read to the conversation of a run that ends, so that
/// a run that continues the conversation reads them.
pub(crate) fn keep_unread(context: &mut RunContext) {
    for text in take(&mut context.unread) {
        context.state.push(Role::User, vec![Part::Text { text }]);
    }
}

/// Continues the run after an answer in text if a message or a result came first, or returns the answer. An
/// answer stands if the limits permit no other turn.
pub(crate) fn continue_with_messages(
    mut answer: Box<Ending>,
    context: &RunContext,
) -> Flow<Result<Next, Box<Ending>>> {
    if !context.has_news() || check_limits(context).is_break() {
        return Continue(Err(answer));
    }
    // A failure that the answer had outranked decides now, as after a reply.
    match answer.next_in_rank() {
        Some(ending) => Break(ending),
        None => Continue(Ok(Next::Boundary)),
    }
}

/// Applies new limits to a run in progress.
pub(crate) fn change_limits(
    changes: &LimitChanges,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let before = context.settings.limits.clone();
    let mut after = before.clone();
    changes.apply(&mut after);
    context.settings.restrict_limits(&mut after);
    let limits = LimitChanges::between(&before, &after);
    if limits.is_empty() {
        return;
    }
    // A new ceiling holds only if each call is reserved, as it is in a run that begins with one.
    let ceiling = after.max_budget_usd.is_some() || after.max_tokens.is_some();
    if ceiling && !context.settings.reserve {
        context.settings.reserve = true;
        context.ledger.reserves = context.may(Capability::Cap);
    }
    context.replace_limits(after);
    context.asked_under_other_limits = true;
    effects.push(Effect::Emit(RunEvent::LimitsChanged { limits }));
}
