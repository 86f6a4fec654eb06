//! What becomes of a model call: a response that is kept, retried, repaired, continued, or that
//! ends the run.
//!
//! Order on one turn: `finish`, a policy's stop, then what is wrong with the turn, then its
//! natural end. (Terminated, cancelled, timeout and halted are decided when their event comes.)

use super::jitter::LONGEST_RETRY_AFTER;
use super::ledger::Ceiling;
use super::outcome::Ending;
use super::watch::Watched;
use super::{
    Answer, Call, ConsultPoint, Effect, EffectId, Flow, Inner, Phase, Point, RunEvent, TurnDelta,
    guarded,
};
use crate::error_class::{ErrorClass, ModelError};
use crate::message::{ModelTurn, Part, Role, ToolCall, ToolResult};
use crate::policy::{PolicyEnd, StepCall, StepResult, Stop, ToolOutput, Verdict};
use crate::signal::SignalReason;
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::Usage;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::time::Duration;

/// The most pauses in a row that are answered with another call.
const MOST_PAUSES: u32 = 5;
/// The most successes that a stop hook may veto in one run.
const MOST_VETOES: u32 = 3;

impl Inner {
    pub(super) fn delta(&mut self, id: EffectId, delta: TurnDelta) -> Flow {
        let call = match &mut self.phase {
            Phase::Calling(call) if call.id == id => call,
            _ => return Ok(()),
        };
        if delta.is_empty() {
            return Ok(());
        }
        let text = match delta {
            TurnDelta::Text(text) => text,
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => {
                call.hidden = call.hidden.saturating_add(chars);
                call.last_content = self.now;
                return Ok(());
            }
        };
        call.last_content = self.now;
        call.text.push_str(&text);
        // With a schema the answer is still to be validated, and that wants the whole turn.
        let may_stop = !self.output_schema && !self.hooks.stop;
        self.watch_piece(&text, may_stop)?;
        let Phase::Calling(call) = &mut self.phase else { return Ok(()) };
        let stop = match &mut self.policy {
            Some(policy) => {
                guarded(policy.name().to_owned(), || policy.look(&text, &self.context))?
            }
            None => None,
        };
        match stop {
            Some(stop) if may_stop => Err(policy_ending(stop, "in mid-stream")),
            Some(_) => {
                call.held = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Books what a call used; the reservation is settled with it.
    fn settle(
        &mut self,
        call: &Call,
        usage: &Usage,
        cost: Option<crate::NanoUsd>,
        fx: &mut Vec<Effect>,
    ) {
        let spent = self.ledger.settle(usage, cost, call.quote);
        if let Some(id) = call.reservation {
            fx.push(Effect::Settle { id, spent });
        }
    }

    /// What a call used that was cut before the provider counted: about a token for every four
    /// characters, at most what was reserved.
    pub(super) fn estimate(&mut self, call: &Call, reported: Option<&Usage>) -> Usage {
        let generated = (call.text.chars().count() as u64 + call.hidden).div_ceil(4);
        let prompt = match self.known_prompt {
            Some((tokens, covered)) => {
                let rest = self.state.messages.get(covered..).unwrap_or_default();
                let rest: u64 = rest.iter().map(crate::Message::byte_len).sum();
                tokens.saturating_add(rest.div_ceil(4))
            }
            None => call.prompt_bound.div_ceil(4),
        };
        let mut usage = reported.cloned().unwrap_or_default();
        if usage.input_tokens.is_none() {
            usage.input_tokens = Some(prompt.min(call.prompt_bound));
            usage.estimated = true;
        }
        if usage.generated_tokens().unwrap_or(0) < generated {
            usage.reasoning_apart = false;
            usage.output_tokens = Some(generated.min(call.cap.unwrap_or(u64::MAX)));
            usage.estimated = true;
        }
        usage
    }

    /// Books an attempt that was stopped by us.
    pub(super) fn settle_aborted(&mut self, call: &Call, fx: &mut Vec<Effect>) {
        let usage = self.estimate(call, None);
        self.settle(call, &usage, None, fx);
    }

    pub(super) fn turn_failed(
        &mut self,
        call: &Call,
        error: &ModelError,
        partial: Option<&ModelTurn>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
        let reported = partial.map(|turn| &turn.usage);
        let cost = partial.and_then(|turn| turn.cost);
        // A refused request is not billed; one that was cut is, for what it had.
        let began = !call.text.is_empty()
            || call.hidden > 0
            || matches!(error.class, ErrorClass::Timeout | ErrorClass::IncompleteStream)
            || partial.is_some_and(|turn| !turn.parts.is_empty());
        let usage = match reported {
            Some(usage) if usage.generated_tokens().is_some() && usage.input_tokens.is_some() => {
                usage.clone()
            }
            reported if began => self.estimate(call, reported),
            reported => reported.cloned().unwrap_or_default(),
        };
        self.settle(call, &usage, cost, fx);
        let text = partial
            .map(ModelTurn::text)
            .filter(|text| !text.trim().is_empty())
            .or_else(|| Some(call.text.clone()).filter(|text| !text.trim().is_empty()));
        if text.is_some() {
            self.last_text.clone_from(&text);
        }
        if let Some(turn) = partial {
            self.last_signal = Some(turn.signal.clone());
        }

        let turn = self.turns + 1;
        let mut failed = |error: &ModelError, retry_in: Option<Duration>, attempt: u32| {
            fx.push(Effect::Emit(RunEvent::AttemptFailed {
                turn,
                attempt,
                error: error.clone(),
                retry_in_ms: retry_in.map(|wait| wait.as_millis() as u64),
            }));
        };
        if std::mem::take(&mut self.call_again) {
            failed(error, Some(Duration::ZERO), self.attempt);
            self.phase = Phase::Backoff { until: self.now };
            return Ok(());
        }
        if error.class.is_retryable() && self.retries < self.limits.max_retries {
            let asked = error.retry_after_ms.map(Duration::from_millis);
            if asked.is_none_or(|wait| wait <= LONGEST_RETRY_AFTER) {
                // No wait for an attempt that cannot be paid.
                if let Err(ending) = self.check_budgets() {
                    failed(error, None, self.attempt);
                    return Err(ending);
                }
                self.retries += 1;
                let wait = asked.unwrap_or_else(|| self.jitter.backoff(self.retries));
                failed(error, Some(wait), self.attempt);
                self.phase = Phase::Backoff { until: self.now.saturating_add(wait) };
                return Ok(());
            }
        }
        let too_long = error.class.termination() == Termination::ErrorPromptTooLong;
        if too_long && self.compaction.reactive && !self.compactions.forced_this_turn {
            self.compactions.forced_this_turn = true;
            failed(error, Some(Duration::ZERO), self.attempt);
            self.compact(true, fx);
            return Ok(());
        }
        failed(error, None, self.attempt);
        // What was said is kept, as the last thing that the model said.
        if let Some(text) = text {
            self.state.push(Role::Assistant, vec![Part::Text { text }]);
        }
        let mut evidence = error.to_string();
        if self.attempt > 1 {
            evidence = format!("{evidence} (attempt {})", self.attempt);
        }
        if too_long && self.compactions.any() {
            evidence = format!("{evidence}; {}", self.compactions.told());
        }
        let mut ending =
            Ending::new(error.class.termination(), "provider", error.class.as_str(), evidence)
                .diagnostic(error.to_string());
        ending.retry_after = error.retry_after_ms.map(Duration::from_millis);
        Err(ending)
    }

    pub(super) fn turn_ended(
        &mut self,
        call: &Call,
        turn: ModelTurn,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        let failure = match turn.signal.reason {
            SignalReason::ErrorTermination => Some("the response says that it is an error"),
            SignalReason::InProgress => Some("the response says that it is not finished"),
            _ => None,
        };
        if let Some(failure) = failure {
            let message = turn.signal.message.clone().unwrap_or_else(|| failure.to_owned());
            let error = ModelError::new(ErrorClass::IncompleteStream, message);
            return self.turn_failed(call, &error, Some(&turn), fx);
        }

        let counted = turn.usage.input_tokens.is_some();
        let usage = if counted && turn.usage.generated_tokens().is_some() || !self.reserve {
            turn.usage.clone()
        } else {
            self.estimate(call, Some(&turn.usage))
        };
        self.settle(call, &usage, turn.cost, fx);
        self.last_signal = Some(turn.signal.clone());
        if turn.model.is_some() {
            self.answered_model.clone_from(&turn.model);
        }

        let text = turn.text();
        let blank = text.trim().is_empty();
        let has_calls = turn.tool_calls().next().is_some();
        let cap = turn.output_cap.or(call.cap);
        if blank && !has_calls && starved(&turn, cap) {
            return self.starved(call, &turn, cap, fx);
        }

        // Under a value that says tools a server may have closed the brackets of a call that was
        // cut; that the output fills its cap is what gives it away.
        let cut_call = has_calls && at_cap(&turn, cap);

        // From here on the turn is kept.
        self.turns += 1;
        let covered = self.state.messages.len();
        let (calls, answer) = self.keep(turn.parts);
        if counted {
            self.known_prompt = Some((usage.total_tokens(), covered + usize::from(answer)));
        }
        if !blank {
            self.last_text = Some(text.clone());
        }
        fx.push(Effect::Emit(RunEvent::TurnEnded {
            turn: self.turns,
            text: text.clone(),
            signal: turn.signal.clone(),
            usage,
            cost: self.ledger.spent,
            tool_calls: calls.len() as u32,
        }));
        self.state.last_signal = Some(turn.signal.clone());
        if let Some(confidence) = turn.confidence {
            self.context.metrics.entry("confidence").or_insert_with(|| Value::from(confidence));
        }
        self.pauses = if turn.signal.reason == SignalReason::Paused { self.pauses + 1 } else { 0 };
        let whole = !cut_call
            && !matches!(
                turn.signal.reason,
                SignalReason::TokenLimitReached | SignalReason::ContentFiltered
            );

        // A declared answer, before anything that is wrong with the turn.
        let declared_by_finish =
            whole && self.finish_tool && calls.iter().any(|c| c.name == "finish");
        // On the table first: also a policy that panics leaves no call unanswered.
        self.open(calls);
        let stop = if declared_by_finish { None } else { self.look_at_rest(call, &text)? };
        if let Some(stop) = stop {
            self.state.streaming.abort();
            return self.policy_stop(stop, fx);
        }
        let signal = &turn.signal;
        let raw = &signal.provider_specific;
        let shown = format!("{} = {:?}", raw.original_field, raw.original_value);
        match signal.reason {
            SignalReason::ContentFiltered => {
                let refusal = self.last_refusal().or_else(|| signal.message.clone());
                let mut ending = Ending::new(
                    Termination::ErrorContentFiltered,
                    "turn",
                    "content_filtered",
                    refusal.clone().map_or(shown.clone(), |text| format!("{shown}: {text}")),
                );
                ending.diagnostic = refusal;
                Err(ending)
            }
            SignalReason::TokenLimitReached => self.truncated(call, &shown, fx),
            _ if cut_call => {
                let cap = cap.unwrap_or_default();
                let shown = format!("{shown}, but the output fills its cap of {cap} tokens");
                self.truncated(call, &shown, fx)
            }
            // Behind a cut and a filter: what they left of a call does not parse either.
            _ if turn.unparseable.is_some() => Err(Ending::new(
                Termination::ErrorSchemaValidation,
                "turn",
                "tool_calls",
                "the tool calls could not be parsed",
            )
            .diagnostic(turn.unparseable.unwrap_or_default())),
            SignalReason::Unknown if !self.limits.accept_unknown_finish => Err(Ending::new(
                Termination::ErrorDuringExecution,
                "turn",
                "unknown_finish",
                match &signal.message {
                    Some(message) => format!("{shown}: {message}"),
                    None => format!("the finish value is not understood: {shown}"),
                },
            )),
            SignalReason::Paused if !has_calls => {
                self.state.streaming.abort();
                if self.pauses > MOST_PAUSES {
                    return Err(Ending::new(
                        Termination::ErrorDuringExecution,
                        "turn",
                        "paused",
                        format!("the provider paused {} times in a row ({shown})", self.pauses),
                    ));
                }
                self.before_turn(fx)
            }
            _ if has_calls => {
                let declared = if declared_by_finish { None } else { self.look_at_end(&text)? };
                if let Some(stop) = declared {
                    self.state.streaming.abort();
                    return self.policy_stop(stop, fx);
                }
                self.stream(StreamingState::Paused);
                self.stream(StreamingState::ToolExecution);
                self.begin_tools(fx)
            }
            _ => {
                self.state.streaming.abort();
                self.answered_in_text(&text, &shown, fx)
            }
        }
    }

    /// Appends what the model said; returns its calls, and whether there was anything to append.
    fn keep(&mut self, parts: Vec<Part>) -> (Vec<ToolCall>, bool) {
        let mut ids = HashSet::new();
        let mut kept = Vec::with_capacity(parts.len());
        let mut calls = Vec::new();
        for part in parts {
            match &part {
                Part::Text { text } if text.trim().is_empty() => continue,
                // The same id twice in one response is one call: a second answer is refused by
                // every provider.
                Part::ToolCall(call) if !ids.insert(call.id.clone()) => continue,
                Part::ToolCall(call) => calls.push(call.clone()),
                _ => {}
            }
            kept.push(part);
        }
        let says = kept.iter().any(|part| !matches!(part, Part::Reasoning { .. }));
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

    /// Shows the policy what it has not seen of the turn's text.
    fn look_at_rest(&mut self, call: &Call, text: &str) -> Result<Option<Stop>, Box<Ending>> {
        let Some(policy) = &mut self.policy else {
            return Ok(None);
        };
        let context = &self.context;
        let rest = text.strip_prefix(call.text.as_str()).filter(|_| !call.held);
        guarded(policy.name().to_owned(), || {
            if let Some(rest) = rest {
                return policy.look(rest, context);
            }
            // It had stopped already and was held back, or the whole text is not what was
            // streamed: it looks again.
            policy.begin_turn();
            policy.look(text, context)
        })
    }

    /// Asks the policy about the whole text of a turn whose tools are about to run.
    fn look_at_end(&mut self, text: &str) -> Result<Option<Stop>, Box<Ending>> {
        let Some(policy) = &mut self.policy else {
            return Ok(None);
        };
        let context = &self.context;
        guarded(policy.name().to_owned(), || policy.look_at_end(text, context))
    }

    fn starved(
        &mut self,
        call: &Call,
        turn: &ModelTurn,
        cap: Option<u64>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
        let output = turn.usage.generated_tokens();
        let counts = format!(
            "no visible output from {} tokens (cap {})",
            output.map_or("an unknown number of".to_owned(), |n| n.to_string()),
            cap.map_or("unknown".to_owned(), |n| n.to_string()),
        );
        if let Some(ceiling) = call.lowered_by {
            return Err(lowered(ceiling, &counts));
        }
        if let Some(cap) = cap.filter(|_| !self.starved_this_turn) {
            let prompt = turn.usage.prompt_tokens();
            let room = self.context_window.map_or(u64::MAX, |window| window.saturating_sub(prompt));
            let most = self.max_output.unwrap_or(u64::MAX);
            let raised = cap.saturating_mul(4).min(room).min(most);
            if raised > cap {
                self.starved_this_turn = true;
                self.output_cap = Some(raised);
                let error = ModelError::new(
                    ErrorClass::IncompleteStream,
                    format!("thinking starvation: {counts}; trying once with a cap of {raised}"),
                );
                fx.push(Effect::Emit(RunEvent::AttemptFailed {
                    turn: self.turns + 1,
                    attempt: self.attempt,
                    error,
                    retry_in_ms: Some(0),
                }));
                return self.before_call(fx);
            }
        }
        Err(Ending::new(
            Termination::ErrorThinkingStarved,
            "turn",
            "thinking_starved",
            counts.clone(),
        )
        .diagnostic(counts))
    }

    fn truncated(&mut self, call: &Call, shown: &str, fx: &mut Vec<Effect>) -> Flow {
        self.state.streaming.abort();
        if let Some(ceiling) = call.lowered_by {
            return Err(lowered(ceiling, shown));
        }
        if self.continuations < self.limits.max_continuations {
            self.continuations += 1;
            self.answer_unrun("not run: the response was cut by the token limit");
            self.tell(
                "continue",
                "Your response was cut by the output limit. Continue exactly where it stopped."
                    .to_owned(),
                fx,
            );
            return self.before_turn(fx);
        }
        Err(Ending::new(
            Termination::ErrorOutputTruncated,
            "turn",
            "token_limit_reached",
            format!("the answer was cut: {shown}"),
        ))
    }

    /// A turn without calls: is it the answer?
    fn answered_in_text(&mut self, text: &str, shown: &str, fx: &mut Vec<Effect>) -> Flow {
        let verdict = self.judge("message", text, &[])?;
        let Watched { stop, nudges } = self.watch(text, &[], fx);
        self.context.somebody_spoke = false;
        let told = match (verdict, stop) {
            (Verdict::Stop(stop), _) | (_, Some(stop)) => return self.policy_stop(stop, fx),
            (Verdict::Tell(text), None) => Some(text),
            (Verdict::Continue, None) => None,
        };
        if let Some(told) = told {
            self.tell("policy", told, fx);
            self.nudge(nudges, fx);
            return self.before_turn(fx);
        }
        let blank = text.trim().is_empty() && !self.output_schema;
        if let Some(max) = self.limits.max_empty_turns.filter(|_| blank) {
            self.empties += 1;
            if self.empties > max {
                return Err(Ending::new(
                    Termination::ErrorNoProgress,
                    "limit",
                    "max_empty_turns",
                    format!("{} blank answers in a row ({shown})", self.empties),
                ));
            }
            self.tell(
                "empty",
                "Your last response was empty. Continue the task, or give your answer.".to_owned(),
                fx,
            );
            self.nudge(nudges, fx);
            return self.before_turn(fx);
        }
        self.empties = 0;
        let ending = Ending::new(Termination::Stop, "turn", "natural_completion", shown);
        if self.hooks.reply {
            self.consult(Point::Reply(ending), ConsultPoint::Reply, fx);
            return Ok(());
        }
        self.succeed(ending, Value::String(text.to_owned()), fx)
    }

    /// The step that policies judge.
    fn step(&self, action: &str, text: &str, calls: &[(&ToolCall, &ToolResult)]) -> StepResult {
        let mut metadata = Map::new();
        if let Some(confidence) = self.context.metrics.get("confidence") {
            metadata.insert("confidence".to_owned(), confidence.clone());
        }
        // What ends the run is no tool that did something.
        let tools = || calls.iter().filter(|(call, _)| action != "final" || call.name != "finish");
        let outputs: Vec<ToolOutput> = tools()
            .map(|(_, result)| {
                let tool = self.tools.iter().find(|tool| tool.name == result.name);
                let action = if tool.is_some_and(|t| t.runs_code) { "code" } else { "tool" };
                ToolOutput {
                    action_type: action.to_owned(),
                    name: result.name.clone(),
                    success: !result.status.is_error(),
                    output: result.content.clone(),
                }
            })
            .collect();
        StepResult {
            action_type: action.to_owned(),
            success: outputs.is_empty() || outputs.iter().any(|output| output.success),
            output: Some(text.to_owned()),
            metadata,
            calls: tools()
                .map(|(call, _)| StepCall {
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                })
                .collect(),
            outputs,
        }
    }

    /// Shows the policy a step that is whole.
    pub(super) fn judge(
        &mut self,
        action: &str,
        text: &str,
        calls: &[(&ToolCall, &ToolResult)],
    ) -> Result<Verdict, Box<Ending>> {
        if self.policy.is_none() {
            return Ok(Verdict::Continue);
        }
        let step = self.step(action, text, calls);
        self.context.cost_usd = self.cost_so_far();
        let Some(policy) = &mut self.policy else { return Ok(Verdict::Continue) };
        let context = &self.context;
        guarded(policy.name().to_owned(), || policy.should_terminate(&step, context))
    }

    /// A policy decided to stop.
    pub(super) fn policy_stop(&mut self, stop: Stop, fx: &mut Vec<Effect>) -> Flow {
        let submitted = stop.ends_as == PolicyEnd::Submitted;
        let candidate = stop.deliverable().unwrap_or(Value::Null);
        let ending = policy_ending(stop, "");
        if submitted { self.succeed(ending, candidate, fx) } else { Err(ending) }
    }

    /// The run would end as a success: the schema first, then the stop hook.
    pub(super) fn succeed(
        &mut self,
        ending: Box<Ending>,
        candidate: Value,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.answer_unrun("not run: the run ended");
        if self.output_schema {
            let id = self.effect_id();
            self.phase = Phase::Validating { id, success: ending };
            fx.push(Effect::Validate { id, candidate });
            return Ok(());
        }
        self.ask_stop_hook(ending, fx)
    }

    pub(super) fn validated(
        &mut self,
        id: EffectId,
        result: Result<Value, String>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        let mut success = match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Validating { id: waited, success } if waited == id => success,
            other => {
                self.phase = other;
                return Ok(());
            }
        };
        let problem = match result {
            Ok(value) => {
                success.structured = Some(value);
                return self.ask_stop_hook(success, fx);
            }
            Err(problem) => problem,
        };
        let max = self.limits.max_structured_output_retries;
        if max.is_none_or(|max| self.repairs < max) {
            self.repairs += 1;
            self.tell(
                "repair",
                format!("Your answer does not satisfy the required schema: {problem}. Answer again with one JSON value that does, and nothing else."),
                fx,
            );
            return self.before_turn(fx);
        }
        let (termination, evidence) = if max == Some(0) {
            (Termination::ErrorSchemaValidation, problem.clone())
        } else {
            (
                Termination::ErrorMaxStructuredOutputRetries,
                format!("after {} repairs: {problem}", self.repairs),
            )
        };
        Err(Ending::new(termination, "limit", "max_structured_output_retries", evidence)
            .diagnostic(problem))
    }

    fn ask_stop_hook(&mut self, ending: Box<Ending>, fx: &mut Vec<Effect>) -> Flow {
        if !self.hooks.stop || self.vetoes >= MOST_VETOES {
            return Err(ending);
        }
        let answer = match ending.deliverable.as_ref().or(ending.structured.as_ref()) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => Some(value.to_string()),
            None => self.last_text.clone(),
        };
        self.consult(Point::Stop(ending), ConsultPoint::Stop { answer }, fx);
        Ok(())
    }

    /// Somebody replied, or did not.
    pub(super) fn reply_answered(
        &mut self,
        ending: Box<Ending>,
        answer: Answer,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        match answer {
            Answer::Halt(reason) => Err(Ending::halted("hook", "reply", reason)),
            Answer::Deny(text) | Answer::ProceedWith(text) => {
                self.context.somebody_spoke = true;
                self.state.push(Role::User, vec![Part::Text { text }]);
                self.before_turn(fx)
            }
            Answer::Proceed | Answer::OutputCap(_) => {
                let candidate = self.last_text.clone().map_or(Value::Null, Value::String);
                self.succeed(ending, candidate, fx)
            }
        }
    }

    pub(super) fn stop_hook_answered(
        &mut self,
        ending: Box<Ending>,
        answer: Answer,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        match answer {
            Answer::Halt(reason) => Err(Ending::halted("hook", "stop", reason)),
            Answer::Deny(reason) | Answer::ProceedWith(reason) => {
                self.vetoes += 1;
                self.tell("veto", reason, fx);
                self.before_turn(fx)
            }
            Answer::Proceed | Answer::OutputCap(_) => Err(ending),
        }
    }
}

/// The turn's output budget went into reasoning.
///
/// Source: ExAthena's `detect_starvation`.
fn starved(turn: &ModelTurn, cap: Option<u64>) -> bool {
    match turn.signal.reason {
        SignalReason::TokenLimitReached => true,
        SignalReason::ContentFiltered | SignalReason::Paused => false,
        _ => at_cap(turn, cap),
    }
}

/// The output is as long as it was allowed to be.
fn at_cap(turn: &ModelTurn, cap: Option<u64>) -> bool {
    matches!((turn.usage.generated_tokens(), cap), (Some(out), Some(cap)) if cap > 0 && out >= cap)
}

fn lowered(ceiling: Ceiling, shown: &str) -> Box<Ending> {
    let (termination, limit) = match ceiling {
        Ceiling::Usd => (Termination::ErrorMaxBudgetUsd, "max_budget_usd"),
        Ceiling::Tokens => (Termination::ErrorMaxTokens, "max_tokens"),
    };
    Ending::new(
        termination,
        "limit",
        limit,
        format!("the output cap was lowered to what was left, and cut the turn: {shown}"),
    )
}

fn policy_ending(stop: Stop, when: &str) -> Box<Ending> {
    let deliverable = stop.deliverable();
    let evidence = match (stop.evidence.as_str(), when) {
        (evidence, "") => evidence.to_owned(),
        ("", when) => when.to_owned(),
        (evidence, when) => format!("{evidence}, {when}"),
    };
    let mut ending = Ending::new(stop.ends_as.into(), "policy", stop.policy, evidence.clone());
    match stop.ends_as {
        PolicyEnd::Submitted => ending.deliverable = deliverable,
        PolicyEnd::Halted => ending.halted_reason = Some(evidence),
        PolicyEnd::NoProgress | PolicyEnd::ConsecutiveMistakes => {}
    }
    ending
}
