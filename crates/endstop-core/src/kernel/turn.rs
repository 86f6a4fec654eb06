//! The evaluation of a model call: a response is accepted, retried, repaired or continued, or ends
//! the run.
//!
//! Several causes can end a run on the same turn. They are checked in this order: an answer
//! declared by `finish`, a stop by a policy, a defect of the turn (filtered, truncated,
//! unparseable), and last its natural end. Terminate, cancel, timeout and halt are decided when
//! their event arrives and never compete here.

use super::call::Call;
use super::decided_by::{Decision, Layer};
use super::effect::{ConsultPoint, Effect, EffectId, InjectionReason, RunEvent};
use super::event::TurnDelta;
use super::guard::{Flow, guarded};
use super::ledger::Ceiling;
use super::lost_call::NoAnswer;
use super::machine::{Machine, Phase, Point};
use super::outcome::Ending;
use super::watchers::Watched;
use crate::error_class::{ErrorClass, ModelError};
use crate::message::{ModelTurn, Part, Role, ToolCall};
use crate::policy::{Stop, Verdict};
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

impl Machine {
    /// Handles streamed content. A policy or watch rule may end the run mid-stream.
    pub(super) fn delta(
        &mut self,
        id: EffectId,
        delta: TurnDelta,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        // A delta of an aborted call may still be in the driver's queue; it is dropped.
        let call = match &mut self.phase {
            Phase::Calling(call) if call.id == id => call,
            _ => return Continue(()),
        };
        if delta.is_empty() {
            return Continue(());
        }
        let text = match delta {
            TurnDelta::Text(text) => text,
            // Reasoning and tool arguments reset the stall timeout and count for the usage
            // estimate, but no policy reads them.
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => {
                call.hidden = call.hidden.saturating_add(chars);
                call.last_content = Some(self.now);
                return Continue(());
            }
        };
        call.last_content = Some(self.now);
        call.text.push_str(&text);
        // With a schema or a stop hook the answer can still be rejected, and both need the whole
        // turn.
        let may_stop = !self.settings.output_schema && !self.settings.hooks.stop;
        self.watch_piece(&text, may_stop, effects)?;
        let Phase::Calling(call) = &mut self.phase else { return Continue(()) };
        let stop = match &mut self.policy {
            Some(policy) => {
                guarded(policy.name().to_owned(), || policy.on_delta(&text, &self.context))?
            }
            None => None,
        };
        match stop {
            Some(stop) if may_stop => Break(self.mid_stream_ending(stop)),
            Some(_) => {
                call.deferred_stop = true;
                Continue(())
            }
            None => Continue(()),
        }
    }

    /// Handles a response: books its usage, appends it to the conversation, and decides what
    /// follows.
    pub(super) fn turn_ended(
        &mut self,
        call: &Call,
        turn: ModelTurn,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        // Such a response is a failed attempt, so it can be retried like any other.
        if let Some(error) = self.failure_of(&turn) {
            return self.turn_failed(call, &error, Some(&turn), effects);
        }
        let usage = self.book_response(call, &turn, effects);
        let cut_by = lowered_and_reached(call, &usage);
        // The server's own cap, if the response reports it, is the one that cut the output.
        let cap = turn.output_cap.or(call.cap);
        let has_calls = turn.tool_calls().next().is_some();
        if turn.text().trim().is_empty() && !has_calls && starved(&turn, cap) {
            return self.starved(cut_by, &turn, cap, effects);
        }
        let (response, calls) = self.record_response(turn, usage, (cap, cut_by), effects);
        // Open the calls first: if a policy panics below, they still get results, and the
        // conversation stays valid.
        self.begin_tool_calls(calls);
        // A declared answer comes before anything that is wrong with the turn.
        let looked = if response.declared_by_finish {
            Continue(None)
        } else {
            self.look_at_rest(call, &response.text)
        };
        let failed = match looked {
            Continue(Some(stop)) => {
                self.state.streaming.abort();
                return self.policy_stop(stop, effects);
            }
            Continue(None) => None,
            // An answer in text is evaluated first, because it stands even if a policy panicked on
            // it.
            Break(ending) if response.is_answer() => Some(ending),
            Break(ending) => return Break(ending),
        };
        self.judge_response(response, failed, effects)
    }

    /// Returns the error of a response that reports an error or is not complete.
    fn failure_of(&self, turn: &ModelTurn) -> Option<ModelError> {
        let has_calls = turn.tool_calls().next().is_some();
        // `finish_missing` alone is not enough: a response with tool calls was complete enough to
        // call them.
        let cut = turn.finish_missing && !has_calls && !self.settings.limits.accept_unknown_finish;
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
        &mut self,
        turn: ModelTurn,
        usage: Usage,
        (cap, cut_by): (Option<u64>, Option<(Ceiling, u64)>),
        effects: &mut Vec<Effect>,
    ) -> (Response, Vec<ToolCall>) {
        let text = turn.text();
        let has_calls = turn.tool_calls().next().is_some();
        // Some servers close the brackets of a truncated call and report `tool_calls`. Then the
        // only sign of the truncation is that the output fills its cap.
        let cut_call = has_calls && at_cap(&turn, cap);
        let counted = turn.usage.input_tokens.is_some();
        self.counts.turns += 1;
        // The provider's count covers the messages sent so far, plus this answer if it is appended.
        let covered = self.state.messages.len();
        let no_answer = if has_calls {
            self.partial.clear();
            self.counts.lost_calls = 0;
            None
        } else {
            self.partial.push_str(&text);
            // With `finish` as the only tool, a lost call can only have declared what the text
            // says, so the text is accepted as the answer.
            let calls = self.settings.finish_tool || !self.settings.tools.is_empty();
            let only_finish = self.settings.finish_tool && self.settings.tools.is_empty();
            NoAnswer::of(&turn, &self.partial, calls)
                .filter(|why| !only_finish || *why != NoAnswer::Announced)
        };
        let paused = turn.signal.reason == SignalReason::Paused;
        let (calls, answer) = self.append_turn(turn.parts, paused);
        if counted {
            self.known_prompt = Some((usage.total_tokens(), covered + usize::from(answer)));
        }
        if !text.trim().is_empty() {
            self.last_text = Some(if has_calls { text.clone() } else { self.partial.clone() });
        }
        effects.push(Effect::Emit(RunEvent::TurnEnded {
            turn: self.counts.turns,
            text: text.clone(),
            signal: turn.signal.clone(),
            usage,
            cost: self.ledger.known_cost(),
            tool_calls: calls.len() as u32,
        }));
        self.state.last_signal = Some(turn.signal.clone());
        if let Some(confidence) = turn.confidence {
            self.context.metrics.entry("confidence").or_insert_with(|| Value::from(confidence));
        }
        self.counts.pauses = if paused { self.counts.pauses + 1 } else { 0 };
        let raw = &turn.signal.provider_specific;
        let whole = !cut_call
            && !matches!(
                turn.signal.reason,
                SignalReason::TokenLimitReached | SignalReason::ContentFiltered
            );
        let response = Response {
            finish_value: format!("{} = {:?}", raw.original_field, raw.original_value),
            declared_by_finish: whole
                && self.settings.finish_tool
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

    /// Decides what follows a response: what is wrong with it comes before its calls and its answer.
    /// `failed` is the ending of a policy that panicked on the answer.
    fn judge_response(
        &mut self,
        response: Response,
        failed: Option<Box<Ending>>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        let Response { signal, finish_value, cut_by, has_calls, .. } = &response;
        match signal.reason {
            SignalReason::ContentFiltered => {
                let refusal = self.last_refusal().or_else(|| signal.message.clone());
                let evidence = match &refusal {
                    Some(text) => format!("{finish_value}: {text}"),
                    None => finish_value.clone(),
                };
                let termination = Termination::ErrorContentFiltered;
                let mut ending =
                    Ending::new(termination, Layer::Turn, Decision::ContentFiltered, evidence);
                ending.diagnostic = refusal;
                Break(ending)
            }
            SignalReason::TokenLimitReached => self.truncated(*cut_by, finish_value, effects),
            _ if response.cut_call => {
                let cap = response.cap.unwrap_or_default();
                let shown = format!("{finish_value}, but the output fills its cap of {cap} tokens");
                self.truncated(*cut_by, &shown, effects)
            }
            // After truncation and filtering, because what those leave of a call does not parse
            // either.
            _ if response.unparseable.is_some() => {
                let evidence = "the tool calls could not be parsed";
                let termination = Termination::ErrorSchemaValidation;
                Break(
                    Ending::new(termination, Layer::Turn, Decision::ToolCalls, evidence)
                        .diagnostic(response.unparseable.unwrap_or_default()),
                )
            }
            reason if response.no_answer.is_some() && reason != SignalReason::Paused => {
                self.state.streaming.abort();
                let why = response.no_answer.unwrap_or(NoAnswer::Announced);
                self.lost_call(why, finish_value, effects)
            }
            SignalReason::Unknown if !self.settings.limits.accept_unknown_finish => {
                let evidence = match &signal.message {
                    Some(message) => format!("{finish_value}: {message}"),
                    None => format!("the finish value is not understood: {finish_value}"),
                };
                let termination = Termination::ErrorDuringExecution;
                Break(Ending::new(termination, Layer::Turn, Decision::UnknownFinish, evidence))
            }
            SignalReason::Paused if !has_calls => self.continue_paused(finish_value, effects),
            _ if *has_calls => self.begin_response_tools(&response, effects),
            _ => {
                self.state.streaming.abort();
                self.answered_in_text(&response.text, finish_value, failed, effects)
            }
        }
    }

    /// Sends a paused turn back unchanged, because the provider asks to continue (for example
    /// Anthropic's `pause_turn`).
    fn continue_paused(&mut self, finish_value: &str, effects: &mut Vec<Effect>) -> Flow {
        self.state.streaming.abort();
        if self.counts.pauses > MOST_PAUSES {
            let evidence = format!(
                "the provider paused {} times in a row ({finish_value})",
                self.counts.pauses
            );
            let termination = Termination::ErrorDuringExecution;
            return Break(Ending::new(termination, Layer::Turn, Decision::Paused, evidence));
        }
        self.before_turn(effects)
    }

    /// Starts the tools of a complete response, unless a policy stops before they have effects.
    fn begin_response_tools(&mut self, response: &Response, effects: &mut Vec<Effect>) -> Flow {
        let declared =
            if response.declared_by_finish { None } else { self.on_text_complete(&response.text)? };
        if let Some(stop) = declared {
            self.state.streaming.abort();
            return self.policy_stop(stop, effects);
        }
        self.stream(StreamingState::Paused);
        self.stream(StreamingState::ToolExecution);
        self.begin_tools(effects)
    }

    /// Appends the model's message to the conversation. Returns its calls, and `true` if there was
    /// anything to append.
    ///
    /// A message that has only reasoning is not appended, because providers refuse it; a paused
    /// turn is appended unchanged, because the provider needs it to continue.
    fn append_turn(&mut self, parts: Vec<Part>, paused: bool) -> (Vec<ToolCall>, bool) {
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
            self.state.push(Role::Assistant, kept);
        }
        (calls, says)
    }

    fn last_refusal(&self) -> Option<String> {
        let parts = &self.state.messages.last()?.parts;
        parts.iter().find_map(|part| match part {
            Part::Refusal { text } => Some(text.clone()),
            _ => None,
        })
    }

    /// Shows the policy the part of the turn's text that it has not seen.
    fn look_at_rest(&mut self, call: &Call, text: &str) -> Flow<Option<Stop>> {
        let Some(policy) = &mut self.policy else {
            return Continue(None);
        };
        let context = &self.context;
        let rest = text.strip_prefix(call.text.as_str()).filter(|_| !call.deferred_stop);
        guarded(policy.name().to_owned(), || {
            if let Some(rest) = rest {
                return policy.on_delta(rest, context);
            }
            // The policy had already requested a stop that was deferred, or the final text differs
            // from the streamed one. Start over with the whole text.
            policy.begin_turn();
            policy.on_delta(text, context)
        })
    }

    /// Asks the policy about the complete text of a turn whose tools are about to run.
    fn on_text_complete(&mut self, text: &str) -> Flow<Option<Stop>> {
        let Some(policy) = &mut self.policy else {
            return Continue(None);
        };
        let context = &self.context;
        guarded(policy.name().to_owned(), || policy.on_text_complete(text, context))
    }

    /// Handles a turn without visible output: raises the cap once, then ends the run.
    fn starved(
        &mut self,
        cut_by: Option<(Ceiling, u64)>,
        turn: &ModelTurn,
        cap: Option<u64>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
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
            self.known_prompt = Some((turn.usage.prompt_tokens(), self.state.messages.len()));
        }
        if let Some(cap) = cap.filter(|_| !self.attempts.starved_this_turn) {
            let room = self.room().unwrap_or(u64::MAX);
            let most = self.settings.max_output.unwrap_or(u64::MAX);
            // Four times the cap usually leaves room for an answer after the reasoning; more than
            // the model or the window allows would be refused.
            let raised = cap.saturating_mul(4).min(room).min(most);
            if raised > cap {
                self.attempts.starved_this_turn = true;
                self.output_cap = Some(raised);
                let error = ModelError::new(
                    ErrorClass::IncompleteStream,
                    format!("thinking starvation: {counts}; trying once with a cap of {raised}"),
                );
                effects.push(Effect::Emit(RunEvent::AttemptFailed {
                    turn: self.counts.turns + 1,
                    attempt: self.attempts.attempt,
                    error,
                    retry_in_ms: Some(0),
                }));
                // Directly to the call: this is the same turn, so its hooks have already run.
                return self.before_call(effects);
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

    /// Handles a truncated response: continues it if that is allowed, or ends the run.
    fn truncated(
        &mut self,
        cut_by: Option<(Ceiling, u64)>,
        shown: &str,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
        // A ceiling of the run caused the cut, so continuing would only hit the same ceiling again.
        if let Some(cut_by) = cut_by {
            return Break(lowered(cut_by, shown));
        }
        if self.counts.continuations < self.settings.limits.max_continuations {
            self.counts.continuations += 1;
            // The calls of a truncated turn are answered as not run, because their arguments may be
            // incomplete.
            self.answer_unrun("not run: the response was cut by the token limit");
            self.inject_message(
                InjectionReason::Continue,
                "Your response was cut by the output limit. Continue exactly where it stopped."
                    .to_owned(),
                effects,
            );
            return self.before_turn(effects);
        }
        Break(Ending::new(
            Termination::ErrorOutputTruncated,
            Layer::Turn,
            Decision::TokenLimitReached,
            format!("the answer was cut: {shown}"),
        ))
    }

    /// Handles a turn whose tool call was lost, or that ends inside its reasoning: the model is
    /// told once and the turn counts as a mistake. A second one in a row ends the run.
    fn lost_call(&mut self, why: NoAnswer, shown: &str, effects: &mut Vec<Effect>) -> Flow {
        self.partial.clear();
        self.counts.lost_calls += 1;
        self.counts.mistakes += 1;
        let evidence = why.evidence(shown);
        if self.counts.lost_calls > 1 {
            return Break(
                Ending::new(
                    Termination::ErrorSchemaValidation,
                    Layer::Turn,
                    Decision::ToolCalls,
                    format!("{evidence}; the model was asked once to correct this"),
                )
                .diagnostic(evidence),
            );
        }
        self.inject_message(InjectionReason::LostCall, why.message().to_owned(), effects);
        self.before_turn(effects)
    }

    /// Handles a complete turn without calls: decides whether its text is the answer.
    fn answered_in_text(
        &mut self,
        text: &str,
        shown: &str,
        failed: Option<Box<Ending>>,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        self.counts.lost_calls = 0;
        // With continuations, `text` is only the last part; the answer is all parts together.
        let whole = std::mem::take(&mut self.partial);
        let verdict = match failed {
            Some(ending) => Break(ending),
            None => self.evaluate_policy("message", text, &[]),
        };
        let Watched { stop, nudges, of_text } = self.watch(text, &[], effects);
        // A reply of the user is visible to policies for exactly one step.
        self.context.message_arrived = false;
        let blank = whole.trim().is_empty();
        let refused = of_text || matches!(verdict, Continue(Verdict::Tell(_)));
        let answer = (!blank && !refused).then(|| {
            Ending::new(Termination::Stop, Layer::Turn, Decision::NaturalCompletion, shown)
        });
        let (decided, told) = self.decide_step(verdict, stop, answer);
        match decided {
            Some(ending) if ending.termination == Termination::Stop => {
                return self.accept_text(ending, whole, effects);
            }
            Some(ending) => return self.end_or_succeed(ending, effects),
            None => {}
        }
        if let Some(told) = told {
            self.inject_message(InjectionReason::Policy, told, effects);
            self.nudge(nudges, effects);
            return self.before_turn(effects);
        }
        // With a schema, a blank answer is repaired like any other answer that violates it.
        if let Some(max) =
            self.settings.limits.max_empty_turns.filter(|_| !self.settings.output_schema)
        {
            self.counts.empty_turns += 1;
            if self.counts.empty_turns > max {
                return Break(Ending::new(
                    Termination::ErrorNoProgress,
                    Layer::Limit,
                    Decision::MaxEmptyTurns,
                    format!("{} blank answers in a row ({shown})", self.counts.empty_turns),
                ));
            }
            self.inject_message(
                InjectionReason::Empty,
                "Your last response was empty. Continue the task, or give your answer.".to_owned(),
                effects,
            );
            self.nudge(nudges, effects);
            return self.before_turn(effects);
        }
        let ending =
            Ending::new(Termination::Stop, Layer::Turn, Decision::NaturalCompletion, shown);
        self.accept_text(ending, whole, effects)
    }

    /// Accepts a text as the answer, after asking for a reply if the driver offers one.
    fn accept_text(
        &mut self,
        ending: Box<Ending>,
        answer: String,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        self.counts.empty_turns = 0;
        if self.settings.hooks.reply {
            self.consult(Point::Reply(ending), ConsultPoint::Reply, effects);
            return Continue(());
        }
        self.succeed(ending, Value::String(answer), effects)
    }
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
        ceiling.decision(),
        format!(
            "the output cap was lowered to what was left, {cap} tokens, and cut the turn: {shown}"
        ),
    )
}
