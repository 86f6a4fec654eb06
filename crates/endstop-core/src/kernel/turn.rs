//! What becomes of a model call: a response that is kept, retried, repaired, continued, or that
//! ends the run.
//!
//! Order on one turn: `finish`, a policy's stop, then what is wrong with the turn, then its
//! natural end. (Terminated, cancelled, timeout and halted are decided when their event comes.)

use super::jitter::LONGEST_RETRY_AFTER;
use super::ledger::Ceiling;
use super::lost_call::NoAnswer;
use super::outcome::Ending;
use super::watch::Watched;
use super::{
    Answer, Call, ConsultPoint, Effect, EffectId, Flow, Inner, Phase, Point, RunEvent, TurnDelta,
    guarded,
};
use crate::error_class::{ErrorClass, ModelError};
use crate::limits::Limits;
use crate::message::{ModelTurn, Part, Role, ToolCall, ToolResult};
use crate::policy::{PolicyEnd, StepCall, StepResult, Stop, ToolOutput, Verdict};
use crate::signal::SignalReason;
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::time::Duration;

/// The most pauses in a row that are answered with another call.
const MOST_PAUSES: u32 = 5;
/// The most successes that a stop hook may veto in one run.
const MOST_VETOES: u32 = 3;

/// Retries that are made even if the attempts themselves took longer than `retry_for`: a model call
/// that stalls takes a minute to fail.
const SLOW_RETRIES: u32 = 2;

/// What follows a failed attempt.
enum Retry {
    /// Another attempt, after this wait.
    After(Duration),
    /// None, because the run's deadline comes before the end of the wait.
    PastDeadline { wait: Duration, deadline: Duration },
    /// None.
    Never,
}

impl Inner {
    pub(super) fn delta(&mut self, id: EffectId, delta: TurnDelta, fx: &mut Vec<Effect>) -> Flow {
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
                call.last_content = Some(self.now);
                return Ok(());
            }
        };
        call.last_content = Some(self.now);
        call.text.push_str(&text);
        // With a schema the answer is still to be validated, and that wants the whole turn.
        let may_stop = !self.output_schema && !self.hooks.stop;
        self.watch_piece(&text, may_stop, fx)?;
        let Phase::Calling(call) = &mut self.phase else { return Ok(()) };
        let stop = match &mut self.policy {
            Some(policy) => {
                guarded(policy.name().to_owned(), || policy.look(&text, &self.context))?
            }
            None => None,
        };
        match stop {
            Some(stop) if may_stop => Err(self.mid_stream_ending(stop)),
            Some(_) => {
                call.held = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Books what a call used; the reservation is settled with it, and with what the call may have used
    /// beyond that.
    fn settle(
        &mut self,
        call: &Call,
        usage: &Usage,
        cost: Option<NanoUsd>,
        unreported: Unreported,
        fx: &mut Vec<Effect>,
    ) {
        let spent = self.ledger.settle(usage, cost, unreported, call.quote);
        if let Some(id) = call.reservation {
            let spent = spent + unreported.cost.unwrap_or_default();
            let tokens = usage.total_tokens().saturating_add(unreported.tokens.unwrap_or(0));
            fx.push(Effect::Settle { id, spent, tokens });
        }
    }

    /// What a call may have used beyond `known`, of which the provider reported `reported`, if it
    /// generated at most `output` tokens.
    fn unreported(
        &self,
        call: &Call,
        (reported, known): (&Usage, &Usage),
        cost: Option<NanoUsd>,
        output: Option<u64>,
    ) -> Unreported {
        let counted = reported.input_tokens.is_some();
        let prompt = if counted { reported.prompt_tokens() } else { call.prompt_bound };
        let tokens = output.map(|output| prompt.saturating_add(output));
        let upper = self.ledger.price.and_then(|price| {
            // If output is free, it needs no bound.
            let output = output.or((price.output == NanoUsd::ZERO).then_some(0))?;
            Some(if counted {
                let (output_tokens, reasoning_tokens) = (Some(output), None);
                price.cost(&Usage { output_tokens, reasoning_tokens, ..reported.clone() })
            } else {
                price.worst(call.prompt_bound, output)
            })
        });
        let booked = self.ledger.price.map(|price| price.cost(known)).unwrap_or_default();
        Unreported {
            cost: match cost {
                Some(_) => Some(NanoUsd::ZERO),
                None => upper.map(|upper| upper.saturating_sub(booked)),
            },
            tokens: tokens.map(|tokens| tokens.saturating_sub(known.total_tokens())),
        }
    }

    /// The most that a call can have generated: its cap, or else what the model can.
    fn most_output(&self, call: &Call) -> Option<u64> {
        call.cap.or(self.max_output).or(self.context_window)
    }

    /// What may have been used beyond a usage that was reported in full: nothing, but without a price
    /// its cost is not known.
    fn all_reported(&self, usage: &Usage, cost: Option<NanoUsd>) -> Unreported {
        let priced = cost.is_some() || self.ledger.price.is_some() || usage.total_tokens() == 0;
        Unreported::of_unknown(!priced)
    }

    /// What a call used that was cut before the provider counted: about a token for every four
    /// characters, at most what was reserved.
    pub(super) fn estimate(&mut self, call: &Call, response: Option<&ModelTurn>) -> Usage {
        let streamed = (call.text.chars().count() as u64).saturating_add(call.hidden);
        // A response that was not streamed has no deltas.
        let whole = response.map_or(0, |turn| turn.parts.iter().map(chars).sum());
        let generated = streamed.max(whole).div_ceil(4);
        let reported = response.map(|turn| &turn.usage);
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

    /// Books an attempt that was stopped by us: what was visible of it is known, and it counts by its
    /// reservation, because what was generated and not shown is not.
    pub(super) fn settle_aborted(&mut self, call: &Call, fx: &mut Vec<Effect>) {
        let usage = self.estimate(call, None);
        let most = self.most_output(call);
        let more = self.unreported(call, (&Usage::default(), &usage), None, most);
        self.settle(call, &usage, None, more, fx);
    }

    /// Decides whether a failed attempt is repeated, and after which wait.
    fn retry_after(&mut self, error: &ModelError) -> Retry {
        let Limits { retry_for, max_retries, timeout, .. } = self.limits;
        if !error.class.is_retryable()
            || retry_for
                .or(max_retries.map(|_| Duration::MAX))
                .is_none_or(|window| window.is_zero())
            || max_retries.is_some_and(|max| self.retries >= max)
        {
            return Retry::Never;
        }
        let since = *self.failed_since.get_or_insert(self.now);
        let asked = error.retry_after_ms.map(Duration::from_millis);
        if asked.is_some_and(|wait| wait > LONGEST_RETRY_AFTER) {
            return Retry::Never;
        }
        let mut wait = match asked {
            // The first waits are as the server asks, and later ones are not shorter than the backoff:
            // a server that asks to come back at once is not called in a tight loop.
            Some(asked) if self.retries < SLOW_RETRIES => asked,
            asked => self.jitter.backoff(self.retries + 1).max(asked.unwrap_or_default()),
        };
        if let Some(window) = retry_for {
            let left = window.saturating_sub(self.waited);
            let over = self.now.saturating_sub(since) >= window && self.retries >= SLOW_RETRIES;
            if left.is_zero() || over || asked.is_some_and(|wait| wait > left) {
                return Retry::Never;
            }
            // The last attempt comes at the end of the window, so that a server that is back
            // before then is reached.
            wait = wait.min(left);
        }
        match timeout {
            Some(deadline) if self.now.saturating_add(wait) >= deadline && asked.is_some() => {
                Retry::PastDeadline { wait, deadline }
            }
            _ => Retry::After(wait),
        }
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
            Some(usage) if is_complete(usage) => usage.clone(),
            _ if began => self.estimate(call, partial),
            reported => reported.cloned().unwrap_or_default(),
        };
        let blank = Usage::default();
        let reported = reported.unwrap_or(&blank);
        let more = if began && !is_complete(reported) {
            self.unreported(call, (reported, &usage), cost, self.most_output(call))
        } else {
            self.all_reported(&usage, cost)
        };
        self.settle(call, &usage, cost, more, fx);
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
        let retry = self.retry_after(error);
        if !matches!(retry, Retry::Never) {
            // No wait for an attempt that cannot be paid.
            if let Err(ending) = self.check_budgets() {
                failed(error, None, self.attempt);
                return Err(ending);
            }
        }
        match retry {
            Retry::After(wait) => {
                failed(error, Some(wait), self.attempt);
                self.retries += 1;
                self.waited = self.waited.saturating_add(wait);
                self.phase = Phase::Backoff { until: self.now.saturating_add(wait) };
                return Ok(());
            }
            // The run would be over before the wait is: it ends now, not after an idle wait.
            Retry::PastDeadline { wait, deadline } => {
                failed(error, None, self.attempt);
                let left = deadline.saturating_sub(self.now);
                let evidence = format!(
                    "the next attempt must wait {wait:?}, and {left:?} of {deadline:?} are left: {error}"
                );
                let mut ending =
                    Ending::new(Termination::ErrorTimeout, "limit", "timeout", evidence)
                        .diagnostic(error.to_string());
                ending.retry_after = error.retry_after_ms.map(Duration::from_millis);
                return Err(ending);
            }
            Retry::Never => {}
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
        let has_calls = turn.tool_calls().next().is_some();
        let cut = turn.finish_missing && !has_calls && !self.limits.accept_unknown_finish;
        let failure = match turn.signal.reason {
            SignalReason::ErrorTermination => Some("the response says that it is an error"),
            SignalReason::InProgress => Some("the response says that it is not finished"),
            SignalReason::NaturalCompletion | SignalReason::Unknown if cut => {
                Some("the response has no finish value: it may be cut")
            }
            _ => None,
        };
        if let Some(failure) = failure {
            let message = turn.signal.message.clone().filter(|_| !turn.finish_missing);
            let message = message.unwrap_or_else(|| failure.to_owned());
            let error = ModelError::new(ErrorClass::IncompleteStream, message);
            return self.turn_failed(call, &error, Some(&turn), fx);
        }

        let counted = turn.usage.input_tokens.is_some();
        let complete = is_complete(&turn.usage);
        let usage = if complete || !self.reserve {
            turn.usage.clone()
        } else {
            self.estimate(call, Some(&turn))
        };
        let text = turn.text();
        let blank = text.trim().is_empty();
        let more = if complete {
            self.all_reported(&usage, turn.cost)
        } else {
            // No token has less than a byte. A response that was cut at a limit, or that shows nothing,
            // may have generated all that it was allowed to.
            let cut = turn.signal.reason == SignalReason::TokenLimitReached;
            let shown = turn.parts.iter().map(Part::byte_len).sum::<u64>();
            let shown = shown.saturating_add(call.hidden.saturating_mul(4));
            let most = self.most_output(call);
            let most = if cut || (blank && !has_calls) {
                most
            } else {
                Some(most.map_or(shown, |most| most.min(shown)))
            };
            self.unreported(call, (&turn.usage, &usage), turn.cost, most)
        };
        self.settle(call, &usage, turn.cost, more, fx);
        // A response without a count has a cost that is not known, however near its bound.
        self.ledger.cost_unknown |= !complete && turn.cost.is_none();
        self.last_signal = Some(turn.signal.clone());
        if turn.model.is_some() {
            self.answered_model.clone_from(&turn.model);
        }

        let cap = turn.output_cap.or(call.cap);
        if blank && !has_calls && starved(&turn, cap) {
            let cut_by = lowered_and_reached(call, &usage);
            return self.starved(cut_by, &turn, cap, fx);
        }
        let cut_by = lowered_and_reached(call, &usage);

        // Under a value that says tools a server may have closed the brackets of a call that was
        // cut; that the output fills its cap is what gives it away.
        let cut_call = has_calls && at_cap(&turn, cap);

        // From here on the turn is kept.
        self.turns += 1;
        let covered = self.state.messages.len();
        let no_answer = if has_calls {
            self.partial.clear();
            self.lost_calls = 0;
            None
        } else {
            self.partial.push_str(&text);
            // With `finish` as the only tool, a lost call can only have declared what the text says.
            let calls = self.finish_tool || !self.tools.is_empty();
            let only_finish = self.finish_tool && self.tools.is_empty();
            NoAnswer::of(&turn, &self.partial, calls)
                .filter(|why| !only_finish || *why != NoAnswer::Announced)
        };
        let paused = turn.signal.reason == SignalReason::Paused;
        let (calls, answer) = self.keep(turn.parts, paused);
        if counted {
            self.known_prompt = Some((usage.total_tokens(), covered + usize::from(answer)));
        }
        if !blank {
            self.last_text = Some(if has_calls { text.clone() } else { self.partial.clone() });
        }
        fx.push(Effect::Emit(RunEvent::TurnEnded {
            turn: self.turns,
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
        self.pauses = if paused { self.pauses + 1 } else { 0 };
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
        let looked = if declared_by_finish { Ok(None) } else { self.look_at_rest(call, &text) };
        let failed = match looked {
            Ok(Some(stop)) => {
                self.state.streaming.abort();
                return self.policy_stop(stop, fx);
            }
            Ok(None) => None,
            // An answer in text is judged first: it stands even if a policy panicked over it.
            Err(ending) if !has_calls && whole && no_answer.is_none() => Some(ending),
            Err(ending) => return Err(ending),
        };
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
            SignalReason::TokenLimitReached => self.truncated(cut_by, &shown, fx),
            _ if cut_call => {
                let cap = cap.unwrap_or_default();
                let shown = format!("{shown}, but the output fills its cap of {cap} tokens");
                self.truncated(cut_by, &shown, fx)
            }
            // Behind a cut and a filter: what they left of a call does not parse either.
            _ if turn.unparseable.is_some() => Err(Ending::new(
                Termination::ErrorSchemaValidation,
                "turn",
                "tool_calls",
                "the tool calls could not be parsed",
            )
            .diagnostic(turn.unparseable.unwrap_or_default())),
            _ if no_answer.is_some() && !paused => {
                self.state.streaming.abort();
                let why = no_answer.unwrap_or(NoAnswer::Announced);
                self.lost_call(why, &shown, fx)
            }
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
                self.answered_in_text(&text, &shown, failed, fx)
            }
        }
    }

    /// Appends what the model said; returns its calls, and whether there was anything to append.
    ///
    /// Reasoning alone is not appended, because providers refuse a message that has nothing else;
    /// a paused turn goes back as it is.
    fn keep(&mut self, parts: Vec<Part>, paused: bool) -> (Vec<ToolCall>, bool) {
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
        cut_by: Option<(Ceiling, u64)>,
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
        if let Some(cut_by) = cut_by {
            return Err(lowered(cut_by, &counts));
        }
        if turn.usage.input_tokens.is_some() {
            // The same prompt is sent again, and the provider has counted it.
            self.known_prompt = Some((turn.usage.prompt_tokens(), self.state.messages.len()));
        }
        if let Some(cap) = cap.filter(|_| !self.starved_this_turn) {
            let room = self.room().unwrap_or(u64::MAX);
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

    fn truncated(
        &mut self,
        cut_by: Option<(Ceiling, u64)>,
        shown: &str,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
        if let Some(cut_by) = cut_by {
            return Err(lowered(cut_by, shown));
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

    /// A turn whose call got lost, or that ends inside its reasoning: the model is told once, as of
    /// a mistake.
    fn lost_call(&mut self, why: NoAnswer, shown: &str, fx: &mut Vec<Effect>) -> Flow {
        self.partial.clear();
        self.lost_calls += 1;
        self.mistakes += 1;
        let evidence = why.evidence(shown);
        if self.lost_calls > 1 {
            return Err(Ending::new(
                Termination::ErrorSchemaValidation,
                "turn",
                "tool_calls",
                format!("{evidence}; the model was told once"),
            )
            .diagnostic(evidence));
        }
        self.tell("lost_call", why.message().to_owned(), fx);
        self.before_turn(fx)
    }

    /// A turn without calls: is it the answer?
    fn answered_in_text(
        &mut self,
        text: &str,
        shown: &str,
        failed: Option<Box<Ending>>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.lost_calls = 0;
        let whole = std::mem::take(&mut self.partial);
        let verdict = match failed {
            Some(ending) => Err(ending),
            None => self.evaluate_policy("message", text, &[]),
        };
        let Watched { stop, nudges, of_text } = self.watch(text, &[], fx);
        self.context.somebody_spoke = false;
        let blank = whole.trim().is_empty();
        let refused = of_text || matches!(verdict, Ok(Verdict::Tell(_)));
        let answer = (!blank && !refused)
            .then(|| Ending::new(Termination::Stop, "turn", "natural_completion", shown));
        let (decided, told) = self.decide_step(verdict, stop, answer);
        match decided {
            Some(ending) if ending.termination == Termination::Stop => {
                return self.accept_text(ending, whole, fx);
            }
            Some(ending) => return self.end_or_succeed(ending, fx),
            None => {}
        }
        if let Some(told) = told {
            self.tell("policy", told, fx);
            self.nudge(nudges, fx);
            return self.before_turn(fx);
        }
        // With a schema a blank answer is repaired as any other that does not satisfy it.
        if let Some(max) = self.limits.max_empty_turns.filter(|_| !self.output_schema) {
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
        let ending = Ending::new(Termination::Stop, "turn", "natural_completion", shown);
        self.accept_text(ending, whole, fx)
    }

    /// The model has answered in text; a user may reply.
    fn accept_text(&mut self, ending: Box<Ending>, answer: String, fx: &mut Vec<Effect>) -> Flow {
        self.empties = 0;
        if self.hooks.reply {
            self.consult(Point::Reply(ending), ConsultPoint::Reply, fx);
            return Ok(());
        }
        self.succeed(ending, Value::String(answer), fx)
    }

    /// Brings together what was decided on a step: the policy's verdict, a rule that stops the run,
    /// and an answer of the turn itself. An answer stands, and outranks every other decision.
    ///
    /// Returns the ending, or else what the policy wants the model to be told.
    pub(super) fn decide_step(
        &self,
        verdict: Result<Verdict, Box<Ending>>,
        stop: Option<Stop>,
        answer: Option<Box<Ending>>,
    ) -> (Option<Box<Ending>>, Option<String>) {
        let mut endings = Vec::new();
        let mut told = None;
        match verdict {
            Ok(Verdict::Stop(stop)) => endings.push(self.stop_ending(stop, "")),
            Ok(Verdict::Tell(text)) => told = Some(text),
            Ok(Verdict::Continue) => {}
            Err(ending) => endings.push(ending),
        }
        endings.extend(stop.map(|stop| self.stop_ending(stop, "")));
        // `finish` outranks the policy; the policy's success outranks the natural end, because it
        // found the answer in the text; every success outranks the rest.
        let by_finish =
            answer.as_ref().is_some_and(|answer| answer.termination != Termination::Stop);
        match answer {
            Some(answer) if by_finish => endings.insert(0, answer),
            Some(answer) => endings.push(answer),
            None => {}
        }
        if endings.is_empty() {
            return (None, told);
        }
        let success = endings.iter().position(|ending| ending.termination.is_success());
        let mut decided = endings.remove(success.filter(|_| !by_finish).unwrap_or(0));
        decided
            .outranked
            .extend(endings.into_iter().filter(|e| !e.termination.is_success()).map(|e| *e));
        (Some(decided), None)
    }

    /// Ends the run so; a success is validated and shown to the stop hook first.
    pub(super) fn end_or_succeed(&mut self, ending: Box<Ending>, fx: &mut Vec<Effect>) -> Flow {
        if !ending.termination.is_success() {
            return Err(ending);
        }
        let candidate = ending
            .deliverable
            .clone()
            .or_else(|| self.last_text.clone().map(Value::String))
            .unwrap_or(Value::Null);
        self.succeed(ending, candidate, fx)
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
    pub(super) fn evaluate_policy(
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
        let ending = self.stop_ending(stop, "");
        self.end_or_succeed(ending, fx)
    }

    /// A policy decided to stop before the turn was whole: what was said so far is the last text.
    pub(super) fn mid_stream_ending(&mut self, stop: Stop) -> Box<Ending> {
        if let Phase::Calling(call) = &self.phase
            && !call.text.trim().is_empty()
        {
            self.last_text = Some(call.text.clone());
        }
        self.stop_ending(stop, "in mid-stream")
    }

    /// The ending that a policy's stop leads to. It is a success only with an answer: the policy's
    /// own, the run's last text, or the result of the tool that it waited for.
    fn stop_ending(&self, stop: Stop, when: &str) -> Box<Ending> {
        let blank =
            |value: &Value| value.is_null() || value.as_str().is_some_and(|t| t.trim().is_empty());
        let own = stop.deliverable().filter(|value| !blank(value));
        let fallback = stop.fallback.clone().filter(|text| !text.trim().is_empty());
        let evidence = match (stop.evidence.as_str(), when) {
            (evidence, "") => evidence.to_owned(),
            ("", when) => when.to_owned(),
            (evidence, when) => format!("{evidence}, {when}"),
        };
        if stop.ends_as == PolicyEnd::Submitted {
            let deliverable =
                own.or_else(|| fallback.filter(|_| self.last_text.is_none()).map(Value::String));
            if deliverable.is_none() && self.last_text.is_none() {
                let policy = &stop.policy;
                let reason =
                    format!("the policy `{policy}` stopped the run without an answer: {evidence}");
                return Ending::halted("policy", stop.policy, reason);
            }
            let mut ending = Ending::new(Termination::Submitted, "policy", stop.policy, evidence);
            ending.deliverable = deliverable;
            return ending;
        }
        let mut ending = Ending::new(stop.ends_as.into(), "policy", stop.policy, evidence.clone());
        if stop.ends_as == PolicyEnd::Halted {
            ending.halted_reason = Some(evidence);
        }
        ending
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
        // Not an answer: what it outranked decides.
        if let Some(ending) = success.next_in_rank() {
            return Err(ending);
        }
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
        mut ending: Box<Ending>,
        answer: Answer,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        match answer {
            Answer::Halt(reason) => {
                ending.outranked.push(*Ending::halted("hook", "reply", reason));
                let candidate = self.last_text.clone().map_or(Value::Null, Value::String);
                self.succeed(ending, candidate, fx)
            }
            Answer::Deny(text) | Answer::ProceedWith(text) => {
                if let Some(ending) = ending.next_in_rank() {
                    return Err(ending);
                }
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
        mut ending: Box<Ending>,
        answer: Answer,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        match answer {
            Answer::Halt(reason) => {
                ending.outranked.push(*Ending::halted("hook", "stop", reason));
                Err(ending)
            }
            // A veto, which withdraws the answer: what it outranked decides.
            Answer::Deny(reason) => {
                if let Some(ending) = ending.next_in_rank() {
                    return Err(ending);
                }
                self.vetoes += 1;
                self.tell("veto", reason, fx);
                self.before_turn(fx)
            }
            // The run ends here; the model reads it if the conversation continues.
            Answer::ProceedWith(text) => {
                self.tell("hook", text, fx);
                Err(ending)
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

/// The ceiling that cut a response, with the cap that it left: only if the output reached a cap that
/// the ceiling had lowered below the caller's own. Anything else was cut by something else.
fn lowered_and_reached(call: &Call, usage: &Usage) -> Option<(Ceiling, u64)> {
    let (ceiling, cap) = call.lowered_by.zip(call.cap)?;
    let reached = usage.generated_tokens().is_some_and(|output| output >= cap);
    reached.then_some((ceiling, cap))
}

fn lowered((ceiling, cap): (Ceiling, u64), shown: &str) -> Box<Ending> {
    Ending::new(
        ceiling.termination(),
        "limit",
        ceiling.name(),
        format!(
            "the output cap was lowered to what was left, {cap} tokens, and cut the turn: {shown}"
        ),
    )
}

/// Characters that were generated for a part.
fn chars(part: &Part) -> u64 {
    let chars = match part {
        Part::Text { text } | Part::Reasoning { text } | Part::Refusal { text } => {
            text.chars().count()
        }
        Part::ToolCall(call) => call.name.chars().count() + call.arguments.chars().count(),
        Part::ToolResult(_) | Part::Image(_) | Part::Opaque { .. } => 0,
    };
    chars as u64
}

/// The provider has counted the prompt and the output.
fn is_complete(usage: &Usage) -> bool {
    usage.input_tokens.is_some() && usage.generated_tokens().is_some()
}
