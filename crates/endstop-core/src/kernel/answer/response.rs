//! The evaluation of a response: accept it as the answer, run its tools, repair, continue or end the
//! run.
//!
//! Several causes can end a run on the same turn. They are checked in this order: an answer
//! declared by `finish`, a stop by a policy, a defect of the turn (filtered, truncated,
//! unparseable), and last its natural end. Terminate, cancel, timeout and halt are decided when
//! their event arrives and never compete here.

use super::lost_call::NoAnswer;
use super::success::{end_or_succeed, succeed, validated};
use crate::kernel::call::boundary::continue_with_messages;
use crate::kernel::ceilings::ledger::Ceiling;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, InjectionReason};
use crate::kernel::judge::{Facts, Judgement, Step};
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Next, Phase, Point};
use crate::kernel::records::MOST_REFUSALS;
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::tools::open_calls::OpenCalls;
use crate::kernel::tools::results::answer_unrun;
use crate::limits::Limit;
use crate::message::Part;
use crate::signal::{SignalReason, TerminationSignal};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::visible::is_blank;
use serde_json::Value;
use std::ops::ControlFlow::{Break, Continue};

/// Maximum number of consecutive pauses that are answered with another call. A paused turn is
/// resumed by sending it back; the bound stops a server that pauses forever.
const MOST_PAUSES: u32 = 5;

/// A response that was appended to the conversation, as far as its evaluation needs it.
pub(crate) struct Response {
    /// The visible text. Of a continued or paused answer, all parts so far.
    pub(crate) text: String,
    /// This response adds nothing to the visible text.
    pub(crate) blank: bool,
    pub(crate) signal: TerminationSignal,
    pub(crate) unparseable: Option<String>,
    pub(crate) has_calls: bool,
    /// Neither truncated nor filtered.
    pub(crate) whole: bool,
    /// The last call is probably truncated, because the output fills its cap.
    pub(super) cut_call: bool,
    /// The output cap that applied.
    pub(crate) cap: Option<u64>,
    /// The ceiling that had lowered the cap, if the output reached it.
    pub(super) cut_by: Option<(Ceiling, u64)>,
    /// The reason why the text is not an answer.
    pub(super) no_answer: Option<NoAnswer>,
    pub(crate) declared_by_finish: bool,
}

impl Response {
    /// Returns the finish value as the provider spelled it, with the name of its field.
    fn finish_value(&self) -> String {
        let raw = &self.signal.provider_specific;
        format!("{} = {:?}", raw.original_field, raw.original_value)
    }

    /// `true` if the text is an answer that ends the run.
    pub(super) fn is_answer(&self) -> bool {
        !self.has_calls && self.whole && self.no_answer.is_none()
    }
}

/// Decides what follows a response: what is wrong with it comes before its calls and its answer.
/// `fault` is the ending of a policy that panicked on the answer.
pub(super) fn judge_response(
    response: Response,
    calls: OpenCalls,
    fault: Option<Box<Ending>>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let Response { signal, cut_by, has_calls, .. } = &response;
    // Only formatted for what ends the run or is refused, because most turns just call tools.
    let finish_value = || response.finish_value();
    match signal.reason {
        SignalReason::ContentFiltered => {
            let refusal = last_refusal(context).or_else(|| signal.message.clone());
            let mut ending = filtered(refusal, &finish_value());
            context.guest.refusals += 1;
            let refusals = context.guest.refusals;
            // The client of a guest repeats its call as often as it likes, and each refusal is billed.
            if !context.may(Capability::Loop) && refusals >= MOST_REFUSALS {
                let evidence = &mut ending.decided_by.evidence;
                *evidence = format!("{refusals} responses in a row were refused: {evidence}");
                return Continue(Next::Stop { ending, calls });
            }
            Continue(Next::End { ending, calls })
        }
        SignalReason::TokenLimitReached => {
            truncated(*cut_by, &finish_value(), calls, context, effects)
        }
        _ if response.cut_call => {
            let cap = response.cap.unwrap_or_default();
            let finish_value = finish_value();
            let shown = format!("{finish_value}, but the output fills its cap of {cap} tokens");
            truncated(*cut_by, &shown, calls, context, effects)
        }
        // After truncation and filtering, because what those leave of a call does not parse
        // either.
        _ if response.unparseable.is_some() => {
            let evidence = "the tool calls could not be parsed";
            let termination = Termination::ErrorSchemaValidation;
            let ending = Ending::new(termination, Layer::Turn, Decision::ToolCalls, evidence)
                .diagnostic(response.unparseable.unwrap_or_default());
            Continue(Next::End { ending, calls })
        }
        reason if response.no_answer.is_some() && reason != SignalReason::Paused => {
            context.state.streaming.abort();
            let why = response.no_answer.unwrap_or(NoAnswer::Announced);
            lost_call(why, &finish_value(), context, effects)
        }
        SignalReason::Unknown if !context.settings.limits.accept_unknown_finish => {
            let finish_value = finish_value();
            let evidence = match &signal.message {
                Some(message) => format!("{finish_value}: {message}"),
                None => format!("the finish value is not understood: {finish_value}"),
            };
            let termination = Termination::ErrorDuringExecution;
            let ending = Ending::new(termination, Layer::Turn, Decision::UnknownFinish, evidence);
            Continue(Next::End { ending, calls })
        }
        SignalReason::Paused if !has_calls => continue_paused(&finish_value(), context),
        _ if *has_calls => begin_response_tools(&response, calls, context, effects),
        _ => {
            context.state.streaming.abort();
            answered_in_text(&response, &finish_value(), fault, context, effects)
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
    let mut ending = Ending::new(termination, Layer::Turn, Decision::ContentFiltered, evidence);
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
        return Break(Ending::new(termination, Layer::Turn, Decision::Paused, evidence));
    }
    let evidence = format!("the provider paused, and was not called again ({finish_value})");
    let termination = Termination::ErrorDuringExecution;
    Continue(Next::Again(Ending::new(termination, Layer::Turn, Decision::Paused, evidence)))
}

/// Starts the tools of a complete response, unless a policy stops before they have effects.
fn begin_response_tools(
    response: &Response,
    calls: OpenCalls,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    if !response.declared_by_finish {
        let facts = Facts::Calls { said: context.said.at(&response.text) };
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

fn last_refusal(context: &RunContext) -> Option<String> {
    let parts = &context.state.messages.last()?.parts;
    parts.iter().find_map(|part| match part {
        Part::Refusal { text } => Some(text.clone()),
        _ => None,
    })
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
    let ending = Ending::new(
        Termination::ErrorOutputTruncated,
        Layer::Turn,
        Decision::TokenLimitReached,
        format!("the answer was cut: {shown}"),
    );
    if context.counts.continuations < context.settings.limits.max_continuations {
        context.counts.continuations += 1;
        // The calls of a truncated turn are answered as not run, because their arguments may be
        // incomplete.
        answer_unrun(calls, "the response was cut by the token limit", context);
        context.inject_message(
            InjectionReason::Continue,
            "Your response was cut by the output limit. Continue exactly where it stopped."
                .to_owned(),
            effects,
        );
        return Continue(Next::Again(ending));
    }
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
    context.said.begin_answer();
    context.counts.lost_calls += 1;
    context.counts.mistakes += 1;
    let evidence = why.evidence(shown);
    let again = context.counts.lost_calls > 1;
    let asked = if again { "; the model was asked once to correct this" } else { "" };
    let ending = Ending::new(
        Termination::ErrorSchemaValidation,
        Layer::Turn,
        Decision::ToolCalls,
        format!("{evidence}{asked}"),
    );
    let ending = ending.diagnostic(evidence);
    if again {
        return Break(ending);
    }
    context.inject_message(InjectionReason::LostCall, why.message().to_owned(), effects);
    Continue(Next::Again(ending))
}

/// Handles a complete turn without calls: decides whether its text is the answer.
fn answered_in_text(
    response: &Response,
    shown: &str,
    fault: Option<Box<Ending>>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.counts.lost_calls = 0;
    let answer = || Ending::new(Termination::Stop, Layer::Turn, Decision::NaturalCompletion, shown);
    let step = Step {
        turn: context.counts.turns,
        said: context.said.at(&response.text),
        calls: &[],
        counted: &[],
        // An answer that was cut or paused is not complete if the rest of it is blank.
        answer: (!response.blank).then(answer),
        fault,
        tools: &context.settings.tools,
        cost: context.known_cost(),
        warn_before: None,
    };
    let Judgement { ending, told, nudges, .. } = context.judge.step(Facts::Step(step), effects);
    if !response.blank || ending.is_some() || told.is_some() {
        context.said.begin_answer();
    }
    match ending {
        Some(ending) if ending.termination == Termination::Stop => {
            return accept_text(ending, response.text.clone(), context);
        }
        Some(ending) => return end_or_succeed(ending, OpenCalls::default(), context),
        None => {}
    }
    if let Some(told) = told {
        context.inject_message(InjectionReason::Policy, told, effects);
        context.inject_nudges(nudges, effects);
        return Continue(Next::Boundary);
    }
    if context.settings.output_schema {
        // Repaired like any other answer that violates the schema, which may accept an empty string.
        context.said.begin_answer();
        return validated(answer(), Err("the answer is blank".to_owned()), context, effects);
    }
    blank_answer(shown, nudges, context, effects)
}

/// Handles a blank answer, or a blank rest of an answer: the model is asked again, or the run ends.
fn blank_answer(
    shown: &str,
    nudges: Vec<String>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.counts.empty_turns += 1;
    let evidence = format!("{} blank answers in a row ({shown})", context.counts.empty_turns);
    let cut = !is_blank(context.said.partial()) && context.counts.continuations > 0;
    let (ending, message) = if cut {
        let evidence = format!("the answer was cut, and its rest is blank: {evidence}");
        let (termination, decision) =
            (Termination::ErrorOutputTruncated, Decision::TokenLimitReached);
        (
            Ending::new(termination, Layer::Turn, decision, evidence),
            "Your last response was empty. Continue your answer exactly where it stopped.",
        )
    } else {
        (
            Ending::at_limit(Limit::MaxEmptyTurns, Termination::ErrorNoProgress, evidence),
            "Your last response was empty. Continue the task, or give your answer.",
        )
    };
    let max = context.settings.limits.max_empty_turns;
    if max.is_some_and(|max| context.counts.empty_turns > max) {
        // The client of a guest asks again as often as it likes.
        return if context.may(Capability::Loop) {
            Break(ending)
        } else {
            Continue(Next::Stop { ending, calls: OpenCalls::default() })
        };
    }
    context.inject_message(InjectionReason::Empty, message.to_owned(), effects);
    context.inject_nudges(nudges, effects);
    Continue(Next::Again(ending))
}

/// Accepts a text as the answer, unless a message of the user or the result of a background call came
/// first, and after asking for a reply if the driver offers one. Waits while background work is open.
pub(crate) fn accept_text(
    ending: Box<Ending>,
    answer: String,
    context: &mut RunContext,
) -> Flow<Next> {
    context.counts.empty_turns = 0;
    let ending = match continue_with_messages(ending, context)? {
        Ok(next) => return Continue(next),
        Err(ending) => ending,
    };
    if context.background.is_open() {
        return Continue(Next::Wait(Phase::Waiting { answer: ending, text: answer }));
    }
    if context.settings.hooks.reply {
        return Continue(Next::Consult { point: Point::Reply(ending), ask: ConsultPoint::Reply });
    }
    succeed(ending, Value::String(answer), context)
}

/// Builds the ending of a turn that was truncated by a lowered cap.
pub(crate) fn lowered((ceiling, cap): (Ceiling, u64), shown: &str) -> Box<Ending> {
    Ending::new(
        ceiling.termination(),
        Layer::Limit,
        ceiling.decision(),
        format!(
            "the output cap was lowered to what was left, {cap} tokens, and cut the turn: {shown}"
        ),
    )
}
