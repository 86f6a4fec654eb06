//! The end of a step with tools: every call is answered, and the judge decides what follows.

use super::finish::judge_finish;
use super::open_calls::{CallState, OpenCalls};
use super::results::{emit_ended, record_results};
use crate::kernel::answer::success::end_or_succeed;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, InjectionReason};
use crate::kernel::judge::{Facts, Judgement, Step};
use crate::kernel::next::Next;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::setup::spec::RunSpec;
use crate::message::{ToolCall, ToolResult, ToolStatus};
use crate::streaming::StreamingState;
use std::ops::ControlFlow::Continue;
use std::time::Duration;

/// Duration from which a call does not count as repetition, because it was waiting for something.
const WAITING: Duration = Duration::from_secs(1);

/// All calls are answered: count, judge, and continue or end.
pub(crate) fn tools_done(
    mut open: OpenCalls,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.stream(StreamingState::Resuming);
    let finishes = open.pending_finishes();
    let text = context.turn_text();
    let answer = judge_finish(&mut open, &text, &mut context.counts);
    for (at, _) in finishes {
        emit_ended(&open, at, Duration::ZERO, effects);
    }
    let (calls, counted) = answered_calls(&open, &context.settings);
    context.counts.count_results(&calls);
    let limits = &context.settings.limits;
    let step = Step {
        turn: context.counts.turns,
        said: context.said.at(&text),
        calls: &calls,
        counted: &counted,
        answer,
        fault: None,
        tools: &context.settings.tools,
        cost: context.known_cost(),
        warn_before: limits.max_unproductive_turns.filter(|_| context.settings.nudge),
    };
    let judgement = context.judge.step(Facts::Step(step), effects);
    let Judgement { ending, told, nudges, warning, .. } = judgement;

    let notes = std::mem::take(&mut open.notes);
    record_results(open, context);
    // Messages to the model come after the results, because a result must follow its call.
    for note in notes {
        context.inject_message(InjectionReason::Hook, note, effects);
    }
    if let Some(ending) = ending {
        return end_or_succeed(ending, OpenCalls::default(), context);
    }
    context.inject_nudges(nudges, effects);
    if let Some(told) = told {
        context.inject_message(InjectionReason::Policy, told, effects);
    }
    if let Some(warning) = warning {
        context.inject_message(InjectionReason::NoProgress, warning, effects);
    }
    Continue(Next::Boundary)
}

type Answered<'a> = Vec<(&'a ToolCall, &'a ToolResult)>;

/// Returns the calls with their results, and those among them that count as progress or repetition.
fn answered_calls<'a>(open: &'a OpenCalls, settings: &RunSpec) -> (Answered<'a>, Answered<'a>) {
    let polls = |name: &str| {
        settings.tools.iter().any(|tool| tool.name == name && tool.exempt_from_no_progress)
    };
    let mut calls = Vec::with_capacity(open.calls.len());
    let mut counted = Vec::with_capacity(open.calls.len());
    for open in &open.calls {
        if let CallState::Done(result, ran) = &open.state {
            calls.push((&*open.call, result));
            // A guest's call without a result is unknown, and so may have had another result.
            let unknown = settings.guest.is_some() && result.status == ToolStatus::Aborted;
            if *ran < WAITING && !unknown && !polls(&open.call.name) {
                counted.push((&*open.call, result));
            }
        }
    }
    (calls, counted)
}
