//! The evaluation of a model call: a response is accepted, retried, repaired or continued, or ends
//! the run.
//!
//! Several causes can end a run on the same turn. They are checked in this order: an answer
//! declared by `finish`, a stop by a policy, a defect of the turn (filtered, truncated,
//! unparseable), and last its natural end. Terminate, cancel, timeout and halt are decided when
//! their event arrives and never compete here.

use super::attempt::attempt_failed;
use super::booking::book_response;
use super::call::Call;
use super::context::RunContext;
use super::effect::{ConsultPoint, Effect, InjectionReason, RunEvent};
use super::guard::Flow;
use super::judge::{Facts, Judgement, Step};
use super::ledger::Ceiling;
use super::lost_call::NoAnswer;
use super::next::Next;
use super::open_calls::OpenCalls;
use super::outcome::{Ending, Layer};
use super::phase::Point;
use super::quote::room;
use super::results::answer_unrun;
use super::success::{end_or_succeed, succeed};
use crate::error_class::{ErrorClass, ModelError};
use crate::message::{ModelTurn, Part, Role, ToolCall};
use crate::signal::{SignalReason, TerminationSignal};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::Usage;
use serde_json::Value;
use std::collections::HashSet;
use std::ops::ControlFlow::{Break, Continue};

/// Maximum number of consecutive pauses that are answered with another call. A paused turn is
/// resumed by sending it back; the bound stops a server that pauses forever.
const MOST_PAUSES: u32 = 5;

/// A response that was appended to the conversation, as far as its evaluation needs it.
struct Response {
    text: String,
    signal: TerminationSignal,
    /// The finish value as the provider spelled it, with the name of its field.
    finish_value: String,
    unparseable: Option<String>,
    has_calls: bool,
    /// Neither truncated nor filtered.
    whole: bool,
    /// The last call is probably truncated, because the output fills its cap.
    cut_call: bool,
    /// The output cap that applied.
    cap: Option<u64>,
    /// The ceiling that had lowered the cap, if the output reached it.
    cut_by: Option<(Ceiling, u64)>,
    /// The reason why the text is not an answer.
    no_answer: Option<NoAnswer>,
    declared_by_finish: bool,
}

impl Response {
    /// `true` if the text is an answer that ends the run.
    fn is_answer(&self) -> bool {
        !self.has_calls && self.whole && self.no_answer.is_none()
    }
}

/// Handles a response: books its usage, appends it to the conversation, and decides what follows.
pub(super) fn turn_ended(
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
    if turn.text().trim().is_empty() && !has_calls && starved(&turn, cap) {
        return retry_starved(cut_by, &turn, cap, context, effects);
    }
    let (response, calls) = record_response(turn, usage, (cap, cut_by), context, effects);
    // Open the calls first: if a policy panics below, they still get results, and the conversation
    // stays valid.
    context.state.pending_calls.extend(calls.iter().map(|call| call.id.clone()));
    let calls = OpenCalls::new(calls);
    // A declared answer comes before anything that is wrong with the turn.
    let judgement = if response.declared_by_finish {
        Judgement::default()
    } else {
        let facts = Facts::Text {
            text: &response.text,
            streamed: (!call.deferred_stop).then_some(call.text.as_str()),
            has_text: context.said.last_text.is_some(),
        };
        context.judge.step(facts, effects)
    };
    if let Some(ending) = judgement.ending {
        context.state.streaming.abort();
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
) -> (Response, Vec<ToolCall>) {
    let text = turn.text();
    let has_calls = turn.tool_calls().next().is_some();
    // Some servers close the brackets of a truncated call and report `tool_calls`. Then the
    // only sign of the truncation is that the output fills its cap.
    let cut_call = has_calls && at_cap(&turn, cap);
    let counted = turn.usage.input_tokens.is_some();
    context.counts.turns += 1;
    // The provider's count covers the messages sent so far, plus this answer if it is appended.
    let covered = context.state.messages.len();
    let no_answer = no_answer(&turn, &text, has_calls, context);
    let paused = turn.signal.reason == SignalReason::Paused;
    let (calls, answer) = append_turn(turn.parts, paused, context);
    if counted {
        context.prompt.known = Some((usage.total_tokens(), covered + usize::from(answer)));
    }
    if !text.trim().is_empty() {
        context.said.last_text =
            Some(if has_calls { text.clone() } else { context.said.partial.clone() });
    }
    effects.push(Effect::Emit(RunEvent::TurnEnded {
        turn: context.counts.turns,
        text: text.clone(),
        signal: turn.signal.clone(),
        usage,
        cost: context.ledger.known_cost(),
        tool_calls: calls.len() as u32,
    }));
    context.state.last_signal = Some(turn.signal.clone());
    if let Some(confidence) = turn.confidence {
        context
            .judge
            .context
            .metrics
            .entry("confidence")
            .or_insert_with(|| Value::from(confidence));
    }
    context.counts.pauses = if paused { context.counts.pauses + 1 } else { 0 };
    let raw = &turn.signal.provider_specific;
    let whole = !cut_call
        && !matches!(
            turn.signal.reason,
            SignalReason::TokenLimitReached | SignalReason::ContentFiltered
        );
    let response = Response {
        finish_value: format!("{} = {:?}", raw.original_field, raw.original_value),
        declared_by_finish: whole
            && context.settings.finish_tool
            && calls.iter().any(|call| call.name == "finish"),
        text,
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

/// Adds the text to the answer so far. Returns the reason why that is not an answer, if any.
fn no_answer(
    turn: &ModelTurn,
    text: &str,
    has_calls: bool,
    context: &mut RunContext,
) -> Option<NoAnswer> {
    if has_calls {
        context.said.partial.clear();
        context.counts.lost_calls = 0;
        return None;
    }
    context.said.partial.push_str(text);
    // With `finish` as the only tool, a lost call can only have declared what the text says, so the
    // text is accepted as the answer.
    let settings = &context.settings;
    let calls = settings.finish_tool || !settings.tools.is_empty();
    let only_finish = settings.finish_tool && settings.tools.is_empty();
    NoAnswer::of(turn, &context.said.partial, calls)
        .filter(|why| !only_finish || *why != NoAnswer::Announced)
}

/// Decides what follows a response: what is wrong with it comes before its calls and its answer.
/// `fault` is the ending of a policy that panicked on the answer.
fn judge_response(
    response: Response,
    calls: OpenCalls,
    fault: Option<Box<Ending>>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let Response { signal, finish_value, cut_by, has_calls, .. } = &response;
    match signal.reason {
        SignalReason::ContentFiltered => {
            let refusal = last_refusal(context).or_else(|| signal.message.clone());
            let ending = filtered(refusal, finish_value);
            Continue(Next::End { ending, calls })
        }
        SignalReason::TokenLimitReached => {
            truncated(*cut_by, finish_value, calls, context, effects)
        }
        _ if response.cut_call => {
            let cap = response.cap.unwrap_or_default();
            let shown = format!("{finish_value}, but the output fills its cap of {cap} tokens");
            truncated(*cut_by, &shown, calls, context, effects)
        }
        // After truncation and filtering, because what those leave of a call does not parse
        // either.
        _ if response.unparseable.is_some() => {
            let evidence = "the tool calls could not be parsed";
            let termination = Termination::ErrorSchemaValidation;
            let ending = Ending::new(termination, Layer::Turn, "tool_calls", evidence)
                .diagnostic(response.unparseable.unwrap_or_default());
            Continue(Next::End { ending, calls })
        }
        reason if response.no_answer.is_some() && reason != SignalReason::Paused => {
            context.state.streaming.abort();
            let why = response.no_answer.unwrap_or(NoAnswer::Announced);
            lost_call(why, finish_value, context, effects)
        }
        SignalReason::Unknown if !context.settings.limits.accept_unknown_finish => {
            let evidence = match &signal.message {
                Some(message) => format!("{finish_value}: {message}"),
                None => format!("the finish value is not understood: {finish_value}"),
            };
            let termination = Termination::ErrorDuringExecution;
            let ending = Ending::new(termination, Layer::Turn, "unknown_finish", evidence);
            Continue(Next::End { ending, calls })
        }
        SignalReason::Paused if !has_calls => continue_paused(finish_value, context),
        _ if *has_calls => begin_response_tools(&response, calls, context, effects),
        _ => {
            context.state.streaming.abort();
            answered_in_text(&response.text, finish_value, fault, context, effects)
        }
    }
}

/// Builds the ending of a filtered response.
fn filtered(refusal: Option<String>, finish_value: &str) -> Box<Ending> {
    let evidence = match &refusal {
        Some(text) => format!("{finish_value}: {text}"),
        None => finish_value.to_owned(),
    };
    let termination = Termination::ErrorContentFiltered;
    let mut ending = Ending::new(termination, Layer::Turn, "content_filtered", evidence);
    ending.diagnostic = refusal;
    ending
}

/// Sends a paused turn back unchanged, because the provider asks to continue (for example
/// Anthropic's `pause_turn`).
fn continue_paused(finish_value: &str, context: &mut RunContext) -> Flow<Next> {
    context.state.streaming.abort();
    if context.counts.pauses > MOST_PAUSES {
        let evidence = format!(
            "the provider paused {} times in a row ({finish_value})",
            context.counts.pauses
        );
        let termination = Termination::ErrorDuringExecution;
        return Break(Ending::new(termination, Layer::Turn, "paused", evidence));
    }
    Continue(Next::Boundary)
}

/// Starts the tools of a complete response, unless a policy stops before they have effects.
fn begin_response_tools(
    response: &Response,
    calls: OpenCalls,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    if !response.declared_by_finish {
        let has_text = context.said.last_text.is_some();
        let facts = Facts::Calls { text: &response.text, has_text };
        if let Some(ending) = context.judge.step(facts, effects).any_ending() {
            context.state.streaming.abort();
            return end_or_succeed(ending, calls, context);
        }
    }
    context.stream(StreamingState::Paused);
    context.stream(StreamingState::ToolExecution);
    context.counts.empty_turns = 0;
    Continue(Next::Tools(calls))
}

/// Appends the model's message to the conversation. Returns its calls, and `true` if there was
/// anything to append.
///
/// A message that has only reasoning is not appended, because providers refuse it; a paused
/// turn is appended unchanged, because the provider needs it to continue.
fn append_turn(parts: Vec<Part>, paused: bool, context: &mut RunContext) -> (Vec<ToolCall>, bool) {
    let mut ids = HashSet::new();
    let mut kept = Vec::with_capacity(parts.len());
    let mut calls = Vec::new();
    for part in parts {
        match &part {
            Part::Text { text } if text.trim().is_empty() => continue,
            // The same id twice in one response is one call: every provider refuses a second
            // result for an id.
            Part::ToolCall(call) if !ids.insert(call.id.clone()) => continue,
            Part::ToolCall(call) => calls.push(call.clone()),
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

fn last_refusal(context: &RunContext) -> Option<String> {
    let parts = &context.state.messages.last()?.parts;
    parts.iter().find_map(|part| match part {
        Part::Refusal { text } => Some(text.clone()),
        _ => None,
    })
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
        context.prompt.known = Some((turn.usage.prompt_tokens(), context.state.messages.len()));
    }
    if let Some(cap) = cap.filter(|_| !context.attempts.starved_this_turn) {
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
            "thinking_starved",
            counts.clone(),
        )
        .diagnostic(counts),
    )
}

/// Handles a truncated response: continues it if that is allowed, or ends the run.
fn truncated(
    cut_by: Option<(Ceiling, u64)>,
    shown: &str,
    calls: OpenCalls,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.state.streaming.abort();
    // A ceiling of the run caused the cut, so continuing would only hit the same ceiling again.
    if let Some(cut_by) = cut_by {
        return Continue(Next::End { ending: lowered(cut_by, shown), calls });
    }
    if context.counts.continuations < context.settings.limits.max_continuations {
        context.counts.continuations += 1;
        // The calls of a truncated turn are answered as not run, because their arguments may be
        // incomplete.
        answer_unrun(calls, "not run: the response was cut by the token limit", context);
        context.inject_message(
            InjectionReason::Continue,
            "Your response was cut by the output limit. Continue exactly where it stopped."
                .to_owned(),
            effects,
        );
        return Continue(Next::Boundary);
    }
    let ending = Ending::new(
        Termination::ErrorOutputTruncated,
        Layer::Turn,
        "token_limit_reached",
        format!("the answer was cut: {shown}"),
    );
    Continue(Next::End { ending, calls })
}

/// Handles a turn whose tool call was lost, or that ends inside its reasoning: the model is
/// told once and the turn counts as a mistake. A second one in a row ends the run.
fn lost_call(
    why: NoAnswer,
    shown: &str,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.said.partial.clear();
    context.counts.lost_calls += 1;
    context.counts.mistakes += 1;
    let evidence = why.evidence(shown);
    if context.counts.lost_calls > 1 {
        return Break(
            Ending::new(
                Termination::ErrorSchemaValidation,
                Layer::Turn,
                "tool_calls",
                format!("{evidence}; the model was asked once to correct this"),
            )
            .diagnostic(evidence),
        );
    }
    context.inject_message(InjectionReason::LostCall, why.message().to_owned(), effects);
    Continue(Next::Boundary)
}

/// Handles a complete turn without calls: decides whether its text is the answer.
fn answered_in_text(
    text: &str,
    shown: &str,
    fault: Option<Box<Ending>>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.counts.lost_calls = 0;
    // With continuations, `text` is only the last part; the answer is all parts together.
    let whole = std::mem::take(&mut context.said.partial);
    let answer = || Ending::new(Termination::Stop, Layer::Turn, "natural_completion", shown);
    let step = Step {
        turn: context.counts.turns,
        text,
        calls: &[],
        counted: &[],
        answer: (!whole.trim().is_empty()).then(answer),
        fault,
        has_text: context.said.last_text.is_some(),
        tools: &context.settings.tools,
        cost: context.known_cost(),
        warn_before: None,
    };
    let Judgement { ending, told, nudges, .. } = context.judge.step(Facts::Step(step), effects);
    match ending {
        Some(ending) if ending.termination == Termination::Stop => {
            return accept_text(ending, whole, context);
        }
        Some(ending) => return end_or_succeed(ending, OpenCalls::default(), context),
        None => {}
    }
    if let Some(told) = told {
        context.inject_message(InjectionReason::Policy, told, effects);
        context.inject_nudges(nudges, effects);
        return Continue(Next::Boundary);
    }
    // With a schema, a blank answer is repaired like any other answer that violates it.
    let max = context.settings.limits.max_empty_turns.filter(|_| !context.settings.output_schema);
    let Some(max) = max else { return accept_text(answer(), whole, context) };
    context.counts.empty_turns += 1;
    if context.counts.empty_turns > max {
        return Break(Ending::new(
            Termination::ErrorNoProgress,
            Layer::Limit,
            "max_empty_turns",
            format!("{} blank answers in a row ({shown})", context.counts.empty_turns),
        ));
    }
    context.inject_message(
        InjectionReason::Empty,
        "Your last response was empty. Continue the task, or give your answer.".to_owned(),
        effects,
    );
    context.inject_nudges(nudges, effects);
    Continue(Next::Boundary)
}

/// Accepts a text as the answer, after asking for a reply if the driver offers one.
fn accept_text(ending: Box<Ending>, answer: String, context: &mut RunContext) -> Flow<Next> {
    context.counts.empty_turns = 0;
    if context.settings.hooks.reply {
        return Continue(Next::Consult { point: Point::Reply(ending), ask: ConsultPoint::Reply });
    }
    succeed(ending, Value::String(answer), context)
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

/// Builds the ending of a turn that was truncated by a lowered cap.
fn lowered((ceiling, cap): (Ceiling, u64), shown: &str) -> Box<Ending> {
    Ending::new(
        ceiling.termination(),
        Layer::Limit,
        ceiling.name(),
        format!(
            "the output cap was lowered to what was left, {cap} tokens, and cut the turn: {shown}"
        ),
    )
}
