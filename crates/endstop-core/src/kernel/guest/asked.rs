//! A guest's client is about to call the model: what the previous call left open is answered, then
//! the limits are checked and the call is made.
//!
//! ```text
//! asked: the last turn's calls are answered ─► the input is appended ─► limits ─► request.rs
//! ```

use crate::history::says_something;
use crate::kernel::call::attempt::abandoned;
use crate::kernel::call::boundary::begin_turn;
use crate::kernel::context::{Attempts, RunContext};
use crate::kernel::effect::Effect;
use crate::kernel::next::Next;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::phase::{Idle, Phase};
use crate::kernel::setup::guest_mode::GuestCall;
use crate::kernel::tools::collect::tools_done;
use crate::kernel::tools::open_calls::OpenCalls;
use crate::kernel::tools::results::{emit_ended, record_results};
use crate::message::{Message, Part, Role, ToolResult};
use crate::price::Price;
use crate::usage::NanoUsd;
use std::collections::HashMap;
use std::ops::ControlFlow::Continue;

/// Maximum number of complete responses in a row that an equal request replaces. A client that sends
/// the same request for ever must still reach `max_turns`.
const MOST_RETAKES: u32 = 2;

/// Handles a call that the client is about to make: admits it, or ends the run.
pub(crate) fn asked(
    phase: Phase,
    mut call: GuestCall,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let retry = call.attempt_of_previous && is_retry(&phase, context);
    let mut results = take_results(&mut call.input);
    let answered = match phase {
        Phase::Guest(idle) => leave_idle(idle, retry, &mut results, context)?,
        Phase::Tools(calls) if retry => {
            drop_calls(calls, context, effects);
            Next::Boundary
        }
        Phase::Tools(mut calls) => {
            for (at, started) in calls.answer(&mut results) {
                emit_ended(&calls, at, context.now.saturating_sub(started), effects);
            }
            tools_done(calls, context, effects)?
        }
        Phase::Calling(call) => {
            effects.push(Effect::AbortModel { id: call.id });
            abandoned(&call, context, effects);
            Next::Boundary
        }
        Phase::Reserving { id } => {
            effects.push(Effect::Abandon { id });
            Next::Boundary
        }
        // The client retries before the kernel does.
        Phase::Backoff { .. } => Next::Boundary,
        // The run is being stopped, and its loop continues.
        Phase::Stopping { ending, calls, .. } => Next::End { ending, calls },
        other => Next::Wait(other),
    };
    match answered {
        Next::Boundary => begin_call(call, retry, context),
        // The last turn has ended the run after all.
        ending => Continue(ending),
    }
}

/// `true` if the call is another attempt at the current turn.
fn is_retry(phase: &Phase, context: &RunContext) -> bool {
    if context.attempts.attempt == 0 {
        return false;
    }
    if !context.attempts.recorded {
        return true;
    }
    // A turn whose tools have run was kept: the same request again is work, and not a retry.
    let unused = match phase {
        Phase::Guest(idle) => idle.provisional.is_some(),
        Phase::Tools(calls) => !calls.any_done(),
        _ => true,
    };
    unused && context.guest.retakes < MOST_RETAKES
}

/// Takes the tool results out of the input, because results are appended with their calls. Also
/// removes what would make the conversation invalid.
fn take_results(input: &mut Vec<Message>) -> HashMap<String, ToolResult> {
    // By id, because a hostile request may have any number of results.
    let mut results = HashMap::new();
    for message in input.iter_mut() {
        for part in std::mem::take(&mut message.parts) {
            match part {
                Part::ToolResult(result) => {
                    results.entry(result.call_id.clone()).or_insert(result);
                }
                // A call that no response contained has no result.
                Part::ToolCall(_) => {}
                part => message.parts.push(part),
            }
        }
    }
    input.retain(|message| message.role != Role::Tool && says_something(message));
    results
}

/// Leaves the wait between two calls: the provisional ending is discarded, unless the answer had
/// outranked a failure that decides now.
fn leave_idle(
    idle: Idle,
    retry: bool,
    results: &mut HashMap<String, ToolResult>,
    context: &mut RunContext,
) -> Flow<Next> {
    let Idle { provisional, mut calls, .. } = idle;
    let outranked = provisional.and_then(|mut ending| ending.next_in_rank());
    if let Some(ending) = outranked {
        return Continue(Next::End { ending, calls });
    }
    if calls.is_empty() {
        return Continue(Next::Boundary);
    }
    calls.answer(results);
    if retry {
        complete(&calls, context);
    } else {
        // The calls of a response that is not whole, from which the client continues.
        context.counts.mistakes += 1;
        record_results(calls, context);
    }
    Continue(Next::Boundary)
}

/// Answers the calls of a response that the client discards. They are not part of the conversation.
fn drop_calls(mut calls: OpenCalls, context: &mut RunContext, effects: &mut Vec<Effect>) {
    for (at, started) in calls.answer(&mut HashMap::new()) {
        emit_ended(&calls, at, context.now.saturating_sub(started), effects);
    }
    complete(&calls, context);
}

fn complete(calls: &OpenCalls, context: &mut RunContext) {
    let results = (0..calls.calls.len()).filter_map(|at| calls.result(at));
    context.state.complete_all(results);
}

/// Applies the call to the run, checks the limits, and requests the call.
fn begin_call(call: GuestCall, retry: bool, context: &mut RunContext) -> Flow<Next> {
    if retry {
        if context.attempts.recorded {
            discard_turn(context);
        }
    } else {
        // After an equal request that counted as a turn, the next one may be a retry again.
        context.guest.retakes = 0;
        context.attempts = Attempts::default();
        context.said.partial.clear();
        forget_earlier_turns(context);
        if context.settings.guest.is_some_and(|mode| mode.forgets_input) {
            context.state.skip(call.input.len());
        } else {
            for message in call.input {
                context.state.push(message.role, message.parts);
            }
        }
        context.guest.before_response = context.state.messages.len();
    }
    let same_model = call.model.is_none() || call.model == context.settings.model;
    context.prompt.set_request(call.prompt_bytes, same_model);
    context.settings.model = call.model.or(context.settings.model.take());
    context.settings.streaming = call.streaming;
    context.settings.thinking_budget = call.thinking_budget;
    context.output_cap = call.output_cap;
    context.guest.turns_in_flight = call.turns_in_flight;
    set_price(call.price.or(context.guest.price.as_deref().copied()), context);
    begin_turn(context)?;
    Continue(Next::Call)
}

/// Removes the messages before the last turn, if the guest does not need them.
fn forget_earlier_turns(context: &mut RunContext) {
    if !context.settings.guest.is_some_and(|mode| mode.forgets) {
        return;
    }
    let messages = &context.state.messages;
    let last = messages.iter().rposition(|message| message.role == Role::Assistant);
    if let Some(last) = last {
        context.forget_messages(last);
    }
}

fn set_price(price: Option<Price>, context: &mut RunContext) {
    let before = std::mem::replace(&mut context.ledger.price, price);
    let spent = context.ledger.own_usage.total_tokens() > 0 || context.ledger.spent > NanoUsd::ZERO;
    context.guest.prices_differ |= spent && before != price;
}

/// Takes back a response that the client requests again: the turn counts once.
fn discard_turn(context: &mut RunContext) {
    context.guest.retakes += 1;
    context.attempts.recorded = false;
    context.counts.turns = context.counts.turns.saturating_sub(1);
    context.said.partial.clear();
    let mut messages = std::mem::take(&mut context.state.messages);
    messages.truncate(context.guest.before_response);
    context.state.replace(messages);
}
