//! Resume after the previous driver is gone: calls in flight are lost and answered as lost.
//!
//! A model call is repeated, and the lost one is booked with its reservation, because it may have
//! been billed. A tool call is repeated only if its tool is repeatable; otherwise the model reads
//! that the call may have run, because no process knows its result.

use super::call::attempt::resume_models;
use super::ceilings::booking::settle_aborted;
use super::ceilings::precheck::check_limits;
use super::context::RunContext;
use super::effect::{Effect, EffectId, ToolStart};
use super::event::{EventKind, Resumption};
use super::outcome::decided_by::{Decision, Layer};
use super::outcome::ending::{Ending, Flow};
use super::phase::{Before, Call, Idle, Next, Phase};
use super::setup::guest_mode::Capability;
use super::setup::spec::Permission;
use super::stopping::stopping;
use super::stopping::wrap_up::given_up;
use super::tools::background;
use super::tools::open_calls::OpenCalls;
use super::tools::results::emit_ended;
use crate::termination::Termination;
use crate::visible::is_blank;
use std::ops::ControlFlow::Continue;

/// Handles a resumption: applies its changes, then repeats or answers what was lost.
pub(super) fn resumed(
    phase: Phase,
    mut with: Resumption,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let price = with.price;
    context.windows.set_clock(context.now, with.wall_ms);
    resume_models(&mut with, context);
    let Resumption { lost, call_again, limits, tools, .. } = with;
    context.settings.output_schema = with.output_schema.unwrap_or(context.settings.output_schema);
    let is_guest = !context.may(Capability::Loop);
    // A guest's answers are not verified before its loop ends.
    let verifier = with.verifier.filter(|_| !is_guest);
    context.settings.verifier = verifier.unwrap_or(context.settings.verifier);
    if let Some(mut limits) = limits {
        context.settings.restrict_limits(&mut limits);
        context.replace_limits(limits);
    }
    if let Some(mut tools) = tools {
        context.settings.restrict_tools(&mut tools);
        context.settings.tools = tools;
    }
    if is_guest && price.is_some() {
        context.guest.price = price.map(Box::new);
    }
    // Only the client of a guest can repeat a call.
    context.attempts.call_again = call_again && !is_guest;
    background::mark_lost(&lost, context, effects);
    Continue(match phase {
        Phase::Calling(call) if lost.contains(&call.id) => {
            context.state.streaming.abort();
            settle_aborted(&call, context, effects);
            if is_guest {
                return Continue(Next::Wait(Phase::Guest(lost_call(call))));
            }
            if !is_blank(&call.text) {
                context.said.cut_off(&call.text);
            }
            check_limits(context)?;
            Next::Call
        }
        // The call failed, and is repeated when its failure arrives.
        Phase::Calling(call) if call_again && !is_guest => {
            check_limits(context)?;
            Next::Wait(Phase::Calling(call))
        }
        // The wall clock may have passed the reset.
        Phase::Backoff { before: before @ (Before::Turn | Before::Call), .. } => {
            check_limits(context)?;
            before.next()
        }
        waiting @ Phase::Backoff { before: Before::Retry, .. } => {
            check_limits(context)?;
            Next::Wait(waiting)
        }
        // The reservation was computed with the old limits and price. A grant of that size would be
        // mistaken for everything that the shared budget has, so ask again.
        Phase::Reserving { id } => {
            effects.push(Effect::Abandon { id });
            if is_guest {
                return Continue(Next::Wait(Phase::Guest(Idle::default())));
            }
            check_limits(context)?;
            Next::Call
        }
        Phase::Tools(mut open) => {
            let starts = start_again(&mut open, &lost, context, effects);
            if !starts.is_empty() {
                effects.push(Effect::StartTools { calls: starts });
            }
            // Nothing is lost if a run is resumed after its ending was undone: its tool results
            // follow.
            if lost.is_empty() { Next::Wait(Phase::Tools(open)) } else { Next::Tools(open) }
        }
        Phase::Stopping { ending, mut calls, until } => {
            for (at, started) in calls.mark_lost(&lost) {
                emit_ended(&calls, at, context.now.saturating_sub(started), effects);
            }
            let phase = Phase::Stopping { ending, calls, until };
            stopping(phase, &EventKind::Tick, context, effects)?
        }
        // The ending was decided, and the hand-over is tried once.
        Phase::WrappingUp(wrap_up) => {
            let ending = given_up(wrap_up, context, effects);
            Next::End { ending, calls: OpenCalls::default() }
        }
        other => Next::Wait(other),
    })
}

/// The wait of a guest whose model call was lost.
fn lost_call(call: Call) -> Idle {
    let evidence = "the process that observed the model call died before the response was complete";
    let termination = Termination::ErrorDuringExecution;
    let ending = Ending::new(termination, Layer::Fault, Decision::Driver, evidence);
    let partial = Some(call.text).filter(|text| !is_blank(text));
    Idle { provisional: Some(ending), partial, ..Idle::default() }
}

/// Restarts the lost calls of repeatable tools, and answers the others as lost.
fn start_again(
    open: &mut OpenCalls,
    lost: &[EffectId],
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Vec<ToolStart> {
    let mut starts = Vec::new();
    for id in lost {
        let Some(name) = open.name_of(*id) else { continue };
        let tool = context.settings.tools.iter().find(|tool| tool.name == name);
        // A tool that was asked to stop, or that is denied now, is not restarted.
        // The client of a guest runs its tools itself.
        let again = tool.filter(|tool| {
            tool.repeatable && tool.permission != Permission::Deny && context.may(Capability::Loop)
        });
        let Some(tool) = again else { continue };
        // Take the id without using it up: `restart_call` may decline, and ids must stay without
        // gaps in replays.
        let new = EffectId(context.next_effect);
        let limit = |arguments: &_| tool.time_limit(arguments, &context.settings.limits);
        if let Some(start) = open.restart_call(*id, new, context.now, limit) {
            context.next_effect += 1;
            starts.push(start);
        }
    }
    // `mark_lost` skips the calls that were restarted above, because they have a new id.
    for (at, started) in open.mark_lost(lost) {
        emit_ended(open, at, context.now.saturating_sub(started), effects);
    }
    starts
}
