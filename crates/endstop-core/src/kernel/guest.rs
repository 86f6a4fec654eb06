//! The run of a guest: a driver that does not own the loop.
//!
//! If its client is about to call the model, what the previous call left open is answered, then the
//! limits are checked and the call is made.
//!
//! ```text
//! asked: the last turn's calls are answered ─► the input is appended ─► limits ─► request.rs
//! ```
//!
//! If its loop is gone, the provisional ending becomes final, or the run ends as unfinished.

use super::call::attempt::abandoned;
use super::call::boundary::begin_turn;
use super::ceilings::left::warning;
use super::context::RunContext;
use super::effect::{Effect, InjectionReason, RunEvent};
use super::outcome::decided_by::{Decision, Layer};
use super::outcome::ending::{Ending, Flow, NestedEnding, excerpt};
use super::phase::{Idle, Next, Phase};
use super::records::Attempts;
use super::setup::guest_mode::{Capability, GuestCall};
use super::stopping::outrank;
use super::tools::open_calls::OpenCalls;
use super::tools::results::{emit_ended, record_results};
use super::tools::step::tools_done;
use crate::history::says_something;
use crate::message::{Message, Part, Role, ToolResult};
use crate::price::Price;
use crate::termination::Termination;
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
        Next::Boundary => begin_call(call, retry, context, effects),
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
fn begin_call(
    call: GuestCall,
    retry: bool,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    if retry {
        if context.attempts.recorded {
            discard_turn(context);
        }
    } else {
        // After an equal request that counted as a turn, the next one may be a retry again.
        context.guest.retakes = 0;
        if call.attended {
            context.guest.refusals = 0;
        }
        context.attempts = Attempts::default();
        context.said.begin_answer();
        forget_earlier_turns(context);
        if context.may(Capability::Input) {
            for message in call.input {
                context.state.push(message.role, message.parts);
            }
        } else {
            context.state.skip(call.input.len());
        }
    }
    context.guest.turns_in_flight = call.turns_in_flight;
    let warning_bytes = warn(retry, context, effects);
    if !retry {
        context.guest.before_response = context.state.messages.len();
    }
    let same_model = call.model.is_none() || call.model == context.settings.model;
    context.prompt.set_request(call.prompt_bytes.saturating_add(warning_bytes), same_model);
    context.settings.model = call.model.or(context.settings.model.take());
    context.settings.streaming = call.streaming;
    context.settings.thinking_budget = call.thinking_budget;
    context.output_cap = call.output_cap;
    set_price(call.price.or(context.guest.price.as_deref().copied()), context);
    begin_turn(context)?;
    Continue(Next::Call)
}

/// Warns the model in the request, if that is due, and returns the bytes of the line. Another attempt at a turn has the same
/// line.
fn warn(retry: bool, context: &mut RunContext, effects: &mut Vec<Effect>) -> u64 {
    if !retry {
        context.attempts.warning = warning(context);
        if let Some(text) = context.attempts.warning.clone() {
            if context.may(Capability::Input) {
                context.state.push(Role::User, vec![Part::Text { text }]);
            } else {
                context.state.skip(1);
            }
        }
    }
    let Some(text) = context.attempts.warning.clone() else { return 0 };
    let bytes = text.len() as u64;
    effects.push(Effect::Emit(RunEvent::MessageInjected { why: InjectionReason::Warning, text }));
    bytes
}

/// Removes the messages before the last turn, if the guest does not need them.
fn forget_earlier_turns(context: &mut RunContext) {
    if context.may(Capability::EarlierTurns) {
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
    context.said.begin_answer();
    let mut messages = std::mem::take(&mut context.state.messages);
    messages.truncate(context.guest.before_response);
    context.state.replace(messages);
}

/// Builds the ending of a run whose loop is gone. `late` is the ending of a deadline that has passed
/// without an event.
pub(crate) fn closed(
    phase: &mut Phase,
    ok: bool,
    detail: &str,
    ended_as: Option<Box<NestedEnding>>,
    late: Option<Box<Ending>>,
    context: &RunContext,
) -> Box<Ending> {
    let decided = match (ended_as, &mut *phase) {
        (Some(nested), _) => Some(Ending::of_nested(*nested)),
        (None, Phase::Guest(idle)) => idle.provisional.take(),
        (None, _) => None,
    };
    if let Some(ending) = decided {
        return if ok { ending } else { failed(ending, detail) };
    }
    match phase.take() {
        Phase::Stopping { ending, calls, .. } => {
            // `conclude` closes calls in the `Tools` phase, so hand them over there.
            *phase = Phase::Tools(calls);
            ending
        }
        other => {
            let unfinished = unfinished(&during(&other), detail);
            *phase = other;
            late.unwrap_or_else(|| outrank(phase, unfinished, context).0)
        }
    }
}

/// The ending of a run whose loop ended with an error after the model's last response.
fn failed(mut ending: Box<Ending>, detail: &str) -> Box<Ending> {
    if !ending.termination.is_success() {
        // The response had failed before the loop did, so its own ending stands.
        if !detail.is_empty() {
            ending.diagnostic.get_or_insert_with(|| detail.to_owned());
        }
        return ending;
    }
    let mut failed = unfinished("after an answer, with an error", detail);
    failed.carry(&ending);
    failed.nested = ending.nested.take();
    failed.outranked.append(&mut ending.outranked);
    failed
}

fn unfinished(when: &str, detail: &str) -> Box<Ending> {
    let mut evidence = format!("the loop ended {when}");
    if !detail.is_empty() {
        evidence = format!("{evidence}: {detail}");
    }
    let termination = Termination::ErrorDuringExecution;
    let mut ending = Ending::new(termination, Layer::Caller, Decision::Closed, evidence);
    ending.diagnostic = (!detail.is_empty()).then(|| detail.to_owned());
    ending
}

/// Describes what the run was waiting for.
fn during(phase: &Phase) -> String {
    match phase {
        Phase::New => "before the run started".to_owned(),
        Phase::Calling(call) if call.text.is_empty() && call.hidden == 0 => {
            "during a model call, before any content".to_owned()
        }
        Phase::Calling(_) => "during a model call, in the middle of its response".to_owned(),
        Phase::Reserving { .. } => "while a shared budget was asked for a model call".to_owned(),
        Phase::Backoff { .. } => "before a failed model call was retried".to_owned(),
        Phase::Tools(calls) => format!("with open tool calls ({})", names(calls)),
        Phase::Guest(_) => "before the model gave an answer".to_owned(),
        Phase::Consulting { .. }
        | Phase::Compacting { .. }
        | Phase::Validating { .. }
        | Phase::Verifying { .. }
        | Phase::Waiting { .. }
        | Phase::WrappingUp(_) => "while an answer of the driver was outstanding".to_owned(),
        Phase::Stopping { .. } => "while the run was being stopped".to_owned(),
    }
}

/// The names of the calls that have no result.
fn names(calls: &OpenCalls) -> String {
    // A response may have thousands of calls, and each name may be arbitrarily long.
    const SHOWN: usize = 4;
    let mut open = calls.running.iter().filter_map(|running| calls.calls.get(running.at));
    let shown: Vec<String> =
        open.by_ref().take(SHOWN).map(|open| excerpt(&open.call.name)).collect();
    let names = shown.join(", ");
    match open.count() {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
