//! A response that has arrived: books its usage and appends it to the conversation, or treats it as a
//! failed attempt. `response.rs` decides what follows.

use super::lost_call::NoAnswer;
use super::response::{Response, judge_response, lowered};
use super::success::end_or_succeed;
use crate::error_class::{ErrorClass, ModelError};
use crate::kernel::call::attempt::attempt_failed;
use crate::kernel::ceilings::booking::book_response;
use crate::kernel::ceilings::ledger::Ceiling;
use crate::kernel::ceilings::quote::room;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::judge::{Facts, Judgement};
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Call, Next};
use crate::kernel::records::FailedCalls;
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::tools::open_calls::OpenCalls;
use crate::message::{ModelTurn, Part, Role, ToolCall};
use crate::signal::SignalReason;
use crate::termination::Termination;
use crate::usage::Usage;
use crate::visible::is_blank;
use serde_json::Value;
use std::collections::HashSet;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

/// Handles a response: books its usage, appends it to the conversation, and decides what follows.
pub(crate) fn turn_ended(
    call: &Call,
    turn: ModelTurn,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    // Such a response is a failed attempt, so it can be retried like any other.
    if let Some(error) = failure_of(&turn, context) {
        return attempt_failed(call, &error, Some(&turn), context, effects);
    }
    let usage = book_response(call, &turn, context, effects);
    let cut_by = lowered_and_reached(call, &usage);
    // The server's own cap, if the response reports it, is the one that cut the output.
    let cap = turn.output_cap.or(call.cap);
    let has_calls = turn.tool_calls().next().is_some();
    let blank = || is_blank(&context.said.rest(&turn.text()));
    if !has_calls && starved(&turn, cap) && blank() {
        return retry_starved(cut_by, &turn, cap, context, effects);
    }
    // The beginning of a continued answer, which the policy has read before this response.
    let before = context.said.visible_partial().to_owned();
    let (response, calls) = record_response(turn, usage, (cap, cut_by), context, effects);
    // Open the calls first: if a policy panics below, they still get results, and the conversation
    // stays valid.
    context.state.pending_calls.extend(calls.iter().map(|call| call.id.clone()));
    let calls = OpenCalls::new(calls);
    // A declared answer comes before anything that is wrong with the turn.
    let judgement = if response.declared_by_finish {
        Judgement::default()
    } else {
        let streamed = before + call.visible();
        let streamed = (!call.deferred_stop).then_some(streamed.as_str());
        let facts = Facts::Text { streamed, said: context.said.at(&response.text) };
        context.judge.step(facts, effects)
    };
    if let Some(ending) = judgement.ending {
        context.state.streaming.abort();
        context.said.begin_answer();
        return end_or_succeed(ending, calls, context);
    }
    match judgement.fault {
        // An answer in text is evaluated first, because it stands even if a policy panicked on it.
        Some(ending) if !response.is_answer() => Continue(Next::End { ending, calls }),
        fault => judge_response(response, calls, fault, context, effects),
    }
}

/// Returns the error of a response that reports an error or is not complete.
fn failure_of(turn: &ModelTurn, context: &RunContext) -> Option<ModelError> {
    let has_calls = turn.tool_calls().next().is_some();
    // `finish_missing` alone is not enough: a response with tool calls was complete enough to
    // call them.
    let cut = turn.finish_missing && !has_calls && !context.settings.limits.accept_unknown_finish;
    let failure = match turn.signal.reason {
        SignalReason::ErrorTermination => "the response reports an error",
        SignalReason::InProgress => "the response reports that it is still in progress",
        SignalReason::NaturalCompletion | SignalReason::Unknown if cut => {
            "the response has no finish value and may be truncated"
        }
        _ => return None,
    };
    // The provider's own message, unless the decoder made it up for a missing finish value.
    let message = turn.signal.message.clone().filter(|_| !turn.finish_missing);
    let message = message.unwrap_or_else(|| failure.to_owned());
    Some(ModelError::new(ErrorClass::IncompleteStream, message))
}

/// Appends a response to the conversation. From here on the turn counts.
fn record_response(
    turn: ModelTurn,
    usage: Usage,
    (cap, cut_by): (Option<u64>, Option<(Ceiling, u64)>),
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> (Response, Vec<Arc<ToolCall>>) {
    let text = turn.text();
    let has_calls = turn.tool_calls().next().is_some();
    // Some servers close the brackets of a truncated call and report `tool_calls`. Then the
    // only sign of the truncation is that the output fills its cap.
    let cut_call = has_calls && at_cap(&turn, cap);
    let counted = turn.usage.input_tokens.is_some();
    context.counts.turns += 1;
    context.guest.failed = FailedCalls::default();
    if turn.signal.reason != SignalReason::ContentFiltered {
        context.guest.refusals = 0;
    }
    // The provider's count covers the messages sent so far, plus this answer if it is appended.
    let covered = context.state.messages.len();
    context.attempts.recorded = true;
    context.attempts.failure = None;
    let added = context.said.add(&text);
    let no_answer = no_answer(&turn, &added.visible, has_calls, context);
    // A text is neither a mistake nor a repetition, so what is counted in a row begins again.
    if !has_calls && !added.blank && no_answer.is_none() {
        context.counts.mistakes = 0;
    }
    let paused = turn.signal.reason == SignalReason::Paused;
    let (calls, answer) = append_turn(turn.parts, paused, context);
    if counted {
        let covered = covered + usize::from(answer);
        context.prompt.count(&usage, usage.total_tokens(), covered);
    }
    context.said.settle(&text, &added, has_calls);
    effects.push(Effect::Emit(RunEvent::TurnFinished {
        turn: context.counts.turns,
        text: text.clone(),
        signal: turn.signal.clone(),
        usage,
        cost: context.ledger.known_cost(),
        tool_calls: calls.len() as u32,
    }));
    if let Some(confidence) = turn.confidence {
        context
            .judge
            .context
            .metrics
            .entry("confidence")
            .or_insert_with(|| Value::from(confidence));
    }
    context.counts.pauses = if paused { context.counts.pauses + 1 } else { 0 };
    if !context.may(Capability::Input) {
        context.forget_messages(covered);
    }
    let whole = !cut_call
        && !matches!(
            turn.signal.reason,
            SignalReason::TokenLimitReached | SignalReason::ContentFiltered
        );
    let response = Response {
        declared_by_finish: whole
            && context.settings.finish_tool
            && calls.iter().any(|call| call.name == "finish"),
        text: added.visible,
        blank: added.blank,
        signal: turn.signal,
        unparseable: turn.unparseable,
        has_calls,
        whole,
        cut_call,
        cap,
        cut_by,
        no_answer,
    };
    (response, calls)
}

/// Returns the reason why the text so far is not an answer, if any.
fn no_answer(
    turn: &ModelTurn,
    visible: &str,
    has_calls: bool,
    context: &mut RunContext,
) -> Option<NoAnswer> {
    if has_calls {
        context.counts.lost_calls = 0;
        return None;
    }
    // With `finish` as the only tool, a lost call can only have declared what the text says, so the
    // text is accepted as the answer.
    let settings = &context.settings;
    let only_finish = settings.finish_tool && settings.tools.is_empty();
    NoAnswer::of(turn, context.said.partial(), visible, settings)
        .filter(|why| !only_finish || *why != NoAnswer::Announced)
}

/// Appends the model's message to the conversation. Returns its calls, and `true` if there was
/// anything to append.
///
/// A message that has only reasoning is not appended, because providers refuse it; a paused
/// turn is appended unchanged, because the provider needs it to continue.
fn append_turn(
    parts: Vec<Part>,
    paused: bool,
    context: &mut RunContext,
) -> (Vec<Arc<ToolCall>>, bool) {
    let mut ids = HashSet::new();
    let several = parts.iter().filter(|part| matches!(part, Part::ToolCall(_))).count() > 1;
    let mut kept = Vec::with_capacity(parts.len());
    let mut calls = Vec::new();
    for part in parts {
        match &part {
            Part::Text { text } if is_blank(text) => continue,
            // The same id twice in one response is one call: every provider refuses a second
            // result for an id.
            Part::ToolCall(call) if several && !ids.insert(call.id.clone()) => continue,
            Part::ToolCall(call) => calls.push(Arc::new(call.clone())),
            _ => {}
        }
        kept.push(part);
    }
    let opaque = |part: &Part| matches!(part, Part::Opaque { .. });
    let says = kept.iter().any(|part| !part.is_reasoning() || paused && opaque(part));
    if says {
        context.state.push(Role::Assistant, kept);
    }
    (calls, says)
}

/// Handles a turn without visible output: raises the cap once, then ends the run.
fn retry_starved(
    cut_by: Option<(Ceiling, u64)>,
    turn: &ModelTurn,
    cap: Option<u64>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.state.streaming.abort();
    let output = turn.usage.generated_tokens();
    let counts = format!(
        "no visible output from {} tokens (cap {})",
        output.map_or("an unknown number of".to_owned(), |n| n.to_string()),
        cap.map_or("unknown".to_owned(), |n| n.to_string()),
    );
    if let Some(cut_by) = cut_by {
        return Break(lowered(cut_by, &counts));
    }
    if turn.usage.input_tokens.is_some() {
        // The same prompt is sent again, and the provider has just counted it.
        let covered = context.state.messages.len();
        context.prompt.count(&turn.usage, turn.usage.prompt_tokens(), covered);
    }
    let raises = context.may(Capability::Retry) && context.may(Capability::Cap);
    if let Some(cap) = cap.filter(|_| raises && !context.attempts.starved_this_turn) {
        let room = room(context).unwrap_or(u64::MAX);
        let most = context.settings.max_output.unwrap_or(u64::MAX);
        // Four times the cap usually leaves room for an answer after the reasoning; more than
        // the model or the window allows would be refused.
        let raised = cap.saturating_mul(4).min(room).min(most);
        if raised > cap {
            context.attempts.starved_this_turn = true;
            context.output_cap = Some(raised);
            let error = ModelError::new(
                ErrorClass::IncompleteStream,
                format!("thinking starvation: {counts}; trying once with a cap of {raised}"),
            );
            effects.push(Effect::Emit(RunEvent::AttemptFailed {
                turn: context.counts.turns + 1,
                attempt: context.attempts.attempt,
                error,
                retry_in_ms: Some(0),
            }));
            // Directly to the call: this is the same turn, so its hooks have already run.
            return Continue(Next::Call);
        }
    }
    Break(
        Ending::new(
            Termination::ErrorThinkingStarved,
            Layer::Turn,
            Decision::ThinkingStarved,
            counts.clone(),
        )
        .diagnostic(counts),
    )
}

/// `true` if the turn spent its whole output budget on reasoning.
///
/// Source: ExAthena's `detect_starvation`.
fn starved(turn: &ModelTurn, cap: Option<u64>) -> bool {
    match turn.signal.reason {
        SignalReason::TokenLimitReached => true,
        SignalReason::ContentFiltered | SignalReason::Paused => false,
        _ => at_cap(turn, cap),
    }
}

/// `true` if the output is as long as its cap allows.
fn at_cap(turn: &ModelTurn, cap: Option<u64>) -> bool {
    matches!((turn.usage.generated_tokens(), cap), (Some(out), Some(cap)) if cap > 0 && out >= cap)
}

/// Returns the ceiling that truncated a response, with the cap that it left. Only if the output
/// reached a cap that the ceiling had lowered below the caller's; otherwise the cut has another
/// cause.
fn lowered_and_reached(call: &Call, usage: &Usage) -> Option<(Ceiling, u64)> {
    let (ceiling, cap) = call.lowered_by.zip(call.cap)?;
    let reached = usage.generated_tokens().is_some_and(|output| output >= cap);
    reached.then_some((ceiling, cap))
}
