//! The evaluation of a model call: a response is accepted, retried, repaired or continued, or ends
//! the run.
//!
//! Several causes can end a run on the same turn. They are checked in this order: an answer
//! declared by `finish`, a stop by a policy, a defect of the turn (filtered, truncated,
//! unparseable), and last its natural end. Terminate, cancel, timeout and halt are decided when
//! their event arrives and never compete here.

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

/// Maximum number of consecutive pauses that are answered with another call. A paused turn is
/// resumed by sending it back; the bound stops a server that pauses forever.
const MOST_PAUSES: u32 = 5;
/// Maximum number of successes that a stop hook may veto in one run, so that a hook that always
/// vetoes cannot keep a run alive.
const MOST_VETOES: u32 = 3;

/// Number of retries that are made even if the attempts themselves took longer than `retry_for`: a
/// model call that stalls takes a minute to fail, which would use up the window before the first
/// retry.
const SLOW_RETRIES: u32 = 2;

/// The decision after a failed attempt.
enum Retry {
    /// Retry after this wait.
    After(Duration),
    /// Do not retry, because the run's deadline comes before the end of the wait.
    PastDeadline { wait: Duration, deadline: Duration },
    /// Do not retry.
    Never,
}

impl Inner {
    /// Handles streamed content. A policy or watch rule may end the run mid-stream.
    pub(super) fn delta(&mut self, id: EffectId, delta: TurnDelta, fx: &mut Vec<Effect>) -> Flow {
        // A delta of an aborted call may still be in the driver's queue; it is dropped.
        let call = match &mut self.phase {
            Phase::Calling(call) if call.id == id => call,
            _ => return Ok(()),
        };
        if delta.is_empty() {
            return Ok(());
        }
        let text = match delta {
            TurnDelta::Text(text) => text,
            // Reasoning and tool arguments reset the stall timeout and count for the usage
            // estimate, but no policy reads them.
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => {
                call.hidden = call.hidden.saturating_add(chars);
                call.last_content = Some(self.now);
                return Ok(());
            }
        };
        call.last_content = Some(self.now);
        call.text.push_str(&text);
        // With a schema or a stop hook the answer can still be rejected, and both need the whole
        // turn.
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

    /// Books the usage of a call. Settles its reservation with the same amount plus the possible
    /// unreported usage, because a shared budget must never assume less than what may be billed.
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

    /// Upper bound on the usage of a call beyond `known`. `reported` is the part that the provider
    /// reported, `output` the maximum number of tokens that the call generated.
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
            // Free output needs no bound: its cost is zero however long it was.
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
            // A cost reported by the provider is final.
            cost: match cost {
                Some(_) => Some(NanoUsd::ZERO),
                None => upper.map(|upper| upper.saturating_sub(booked)),
            },
            tokens: tokens.map(|tokens| tokens.saturating_sub(known.total_tokens())),
        }
    }

    /// The most tokens that a call can have generated: its cap, else the model's maximum, else the
    /// context window.
    fn most_output(&self, call: &Call) -> Option<u64> {
        call.cap.or(self.max_output).or(self.context_window)
    }

    /// Unreported usage of a call whose usage was reported in full: no tokens, but without a price
    /// the cost remains unknown.
    fn all_reported(&self, usage: &Usage, cost: Option<NanoUsd>) -> Unreported {
        let priced = cost.is_some() || self.ledger.price.is_some() || usage.total_tokens() == 0;
        Unreported::of_unknown(!priced)
    }

    /// Estimates the usage of a call that ended before the provider counted: one token for every
    /// four characters, at most the prompt bound and the output cap.
    pub(super) fn estimate(&mut self, call: &Call, response: Option<&ModelTurn>) -> Usage {
        let streamed = (call.text.chars().count() as u64).saturating_add(call.hidden);
        // A response that was not streamed has no deltas, so take the larger of both counts.
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

    /// Books an attempt that the kernel aborted. Only the visible output is known; the rest of the
    /// reservation is booked as unreported, because hidden reasoning may have been generated and
    /// billed.
    pub(super) fn settle_aborted(&mut self, call: &Call, fx: &mut Vec<Effect>) {
        let usage = self.estimate(call, None);
        let most = self.most_output(call);
        let more = self.unreported(call, (&Usage::default(), &usage), None, most);
        self.settle(call, &usage, None, more, fx);
    }

    /// Decides whether a failed attempt is retried, and after what wait.
    fn retry_after(&mut self, error: &ModelError) -> Retry {
        let Limits { retry_for, max_retries, timeout, .. } = self.limits;
        // Off if both limits are off, or if `retry_for` is zero, or if `max_retries` is used up.
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
        // A longer wait is not worth holding the run open; the outcome reports it as `retry_after`.
        if asked.is_some_and(|wait| wait > LONGEST_RETRY_AFTER) {
            return Retry::Never;
        }
        let mut wait = match asked {
            // The first waits follow the server. Later ones are never shorter than the backoff,
            // because a server that asks to return at once would otherwise be called in a tight
            // loop.
            Some(asked) if self.retries < SLOW_RETRIES => asked,
            asked => self.jitter.backoff(self.retries + 1).max(asked.unwrap_or_default()),
        };
        if let Some(window) = retry_for {
            let left = window.saturating_sub(self.waited);
            let over = self.now.saturating_sub(since) >= window && self.retries >= SLOW_RETRIES;
            // A server that asks for more time than the window has left would refuse an earlier
            // attempt.
            if left.is_zero() || over || asked.is_some_and(|wait| wait > left) {
                return Retry::Never;
            }
            // The last attempt comes at the end of the window, so that it reaches a server that is
            // back by then.
            wait = wait.min(left);
        }
        match timeout {
            Some(deadline) if self.now.saturating_add(wait) >= deadline && asked.is_some() => {
                Retry::PastDeadline { wait, deadline }
            }
            _ => Retry::After(wait),
        }
    }

    /// Handles a failed attempt: books its usage, then retries, compacts or ends the run.
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
        // A rejected request is not billed; a request that was cut is billed for what it generated.
        // A timeout or a cut stream can also come after output that was never delivered.
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
        // Keep whichever text exists: the decoder's partial turn is better than the raw deltas.
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
        // After a resume: the failure that ended the run before is replayed, and the call repeated
        // once.
        if std::mem::take(&mut self.call_again) {
            failed(error, Some(Duration::ZERO), self.attempt);
            self.phase = Phase::Backoff { until: self.now };
            return Ok(());
        }
        let retry = self.retry_after(error);
        if !matches!(retry, Retry::Never) {
            // Do not wait for an attempt that the budget cannot pay for.
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
            // The deadline comes before the end of the wait: end now instead of after an idle wait.
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
        // A forced compaction is tried once per turn: if the shortened prompt is refused too,
        // another one would not help.
        let too_long = error.class.termination() == Termination::ErrorPromptTooLong;
        if too_long && self.compaction.reactive && !self.compactions.forced_this_turn {
            self.compactions.forced_this_turn = true;
            failed(error, Some(Duration::ZERO), self.attempt);
            self.compact(true, fx);
            return Ok(());
        }
        failed(error, None, self.attempt);
        // The partial text becomes the last message, so that a resumed conversation contains it.
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

    /// Handles a response: books its usage, appends it to the conversation, and decides what
    /// follows.
    pub(super) fn turn_ended(
        &mut self,
        call: &Call,
        turn: ModelTurn,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        let has_calls = turn.tool_calls().next().is_some();
        // `finish_missing` alone is not enough: a response with tool calls was complete enough to
        // call them.
        let cut = turn.finish_missing && !has_calls && !self.limits.accept_unknown_finish;
        let failure = match turn.signal.reason {
            SignalReason::ErrorTermination => Some("the response reports an error"),
            SignalReason::InProgress => Some("the response reports that it is still in progress"),
            SignalReason::NaturalCompletion | SignalReason::Unknown if cut => {
                Some("the response has no finish value and may be truncated")
            }
            _ => None,
        };
        // Such a response is a failed attempt, so it can be retried like any other.
        if let Some(failure) = failure {
            // The provider's own message, unless the decoder made it up for a missing finish value.
            let message = turn.signal.message.clone().filter(|_| !turn.finish_missing);
            let message = message.unwrap_or_else(|| failure.to_owned());
            let error = ModelError::new(ErrorClass::IncompleteStream, message);
            return self.turn_failed(call, &error, Some(&turn), fx);
        }

        let counted = turn.usage.input_tokens.is_some();
        let complete = is_complete(&turn.usage);
        // Only runs that reserve need an estimate; a recorded run keeps the recorded usage.
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
            // Upper bound on the output: a token has at least one byte. A response that was cut at
            // a limit, or that shows nothing, may have generated everything it was allowed to.
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
        // The cost of a response without a usage report is unknown, however tight its bound is.
        self.ledger.cost_unknown |= !complete && turn.cost.is_none();
        self.last_signal = Some(turn.signal.clone());
        if turn.model.is_some() {
            self.answered_model.clone_from(&turn.model);
        }

        // The server's own cap, if the response reports it, is the one that cut the output.
        let cap = turn.output_cap.or(call.cap);
        if blank && !has_calls && starved(&turn, cap) {
            let cut_by = lowered_and_reached(call, &usage);
            return self.starved(cut_by, &turn, cap, fx);
        }
        let cut_by = lowered_and_reached(call, &usage);

        // Some servers close the brackets of a truncated call and report `tool_calls`. Then the
        // only sign of the truncation is that the output fills its cap.
        let cut_call = has_calls && at_cap(&turn, cap);

        // From here on the turn counts, and its messages are part of the conversation.
        self.turns += 1;
        // The provider's count covers the messages sent so far, plus this answer if it is appended.
        let covered = self.state.messages.len();
        let no_answer = if has_calls {
            self.partial.clear();
            self.lost_calls = 0;
            None
        } else {
            self.partial.push_str(&text);
            // With `finish` as the only tool, a lost call can only have declared what the text
            // says, so the text is accepted as the answer.
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

        // A declared answer comes before anything that is wrong with the turn.
        let declared_by_finish =
            whole && self.finish_tool && calls.iter().any(|c| c.name == "finish");
        // Open the calls first: if a policy panics below, they still get results, and the
        // conversation stays valid.
        self.open(calls);
        let looked = if declared_by_finish { Ok(None) } else { self.look_at_rest(call, &text) };
        let failed = match looked {
            Ok(Some(stop)) => {
                self.state.streaming.abort();
                return self.policy_stop(stop, fx);
            }
            Ok(None) => None,
            // An answer in text is evaluated first, because it stands even if a policy panicked on
            // it.
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
            // After truncation and filtering, because what those leave of a call does not parse
            // either.
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
            // The provider asks to continue (for example Anthropic's `pause_turn`): send the turn
            // back unchanged.
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
                // Asked only about complete turns with calls: a policy may stop before the tools
                // have effects.
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

    /// Appends the model's message to the conversation. Returns its calls, and `true` if there was
    /// anything to append.
    ///
    /// A message that has only reasoning is not appended, because providers refuse it; a paused
    /// turn is appended unchanged, because the provider needs it to continue.
    fn keep(&mut self, parts: Vec<Part>, paused: bool) -> (Vec<ToolCall>, bool) {
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
            // The policy had already requested a stop that was deferred, or the final text differs
            // from the streamed one. Start over with the whole text.
            policy.begin_turn();
            policy.look(text, context)
        })
    }

    /// Asks the policy about the complete text of a turn whose tools are about to run.
    fn look_at_end(&mut self, text: &str) -> Result<Option<Stop>, Box<Ending>> {
        let Some(policy) = &mut self.policy else {
            return Ok(None);
        };
        let context = &self.context;
        guarded(policy.name().to_owned(), || policy.look_at_end(text, context))
    }

    /// Handles a turn without visible output: raises the cap once, then ends the run.
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
            // The same prompt is sent again, and the provider has just counted it.
            self.known_prompt = Some((turn.usage.prompt_tokens(), self.state.messages.len()));
        }
        if let Some(cap) = cap.filter(|_| !self.starved_this_turn) {
            let room = self.room().unwrap_or(u64::MAX);
            let most = self.max_output.unwrap_or(u64::MAX);
            // Four times the cap usually leaves room for an answer after the reasoning; more than
            // the model or the window allows would be refused.
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
                // Directly to the call: this is the same turn, so its hooks have already run.
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

    /// Handles a truncated response: continues it if that is allowed, or ends the run.
    fn truncated(
        &mut self,
        cut_by: Option<(Ceiling, u64)>,
        shown: &str,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.state.streaming.abort();
        // A ceiling of the run caused the cut, so continuing would only hit the same ceiling again.
        if let Some(cut_by) = cut_by {
            return Err(lowered(cut_by, shown));
        }
        if self.continuations < self.limits.max_continuations {
            self.continuations += 1;
            // The calls of a truncated turn are answered as not run, because their arguments may be
            // incomplete.
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

    /// Handles a turn whose tool call was lost, or that ends inside its reasoning: the model is
    /// told once and the turn counts as a mistake. A second one in a row ends the run.
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
                format!("{evidence}; the model was asked once to correct this"),
            )
            .diagnostic(evidence));
        }
        self.tell("lost_call", why.message().to_owned(), fx);
        self.before_turn(fx)
    }

    /// Handles a complete turn without calls: decides whether its text is the answer.
    fn answered_in_text(
        &mut self,
        text: &str,
        shown: &str,
        failed: Option<Box<Ending>>,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        self.lost_calls = 0;
        // With continuations, `text` is only the last part; the answer is all parts together.
        let whole = std::mem::take(&mut self.partial);
        let verdict = match failed {
            Some(ending) => Err(ending),
            None => self.evaluate_policy("message", text, &[]),
        };
        let Watched { stop, nudges, of_text } = self.watch(text, &[], fx);
        // A reply of the user is visible to policies for exactly one step.
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
        // With a schema, a blank answer is repaired like any other answer that violates it.
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

    /// Accepts a text as the answer, after asking for a reply if the driver offers one.
    fn accept_text(&mut self, ending: Box<Ending>, answer: String, fx: &mut Vec<Effect>) -> Flow {
        self.empties = 0;
        if self.hooks.reply {
            self.consult(Point::Reply(ending), ConsultPoint::Reply, fx);
            return Ok(());
        }
        self.succeed(ending, Value::String(answer), fx)
    }

    /// Combines the decisions about a step: the policy's verdict, a watch rule that stops the run,
    /// and an answer of the turn itself. An answer stands and outranks every other decision.
    ///
    /// Returns the decided ending, or else the message that the policy has for the model.
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
        // `finish` outranks the policy. A policy's success outranks the natural end, because the
        // policy found the answer within the text. Every success outranks the rest.
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
        // Only failures are recorded as outranked: a second success adds nothing to the outcome.
        let mut decided = endings.remove(success.filter(|_| !by_finish).unwrap_or(0));
        decided
            .outranked
            .extend(endings.into_iter().filter(|e| !e.termination.is_success()).map(|e| *e));
        (Some(decided), None)
    }

    /// Ends the run with this ending; a success is first validated and shown to the stop hook.
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

    /// Builds the step that policies evaluate.
    fn step(&self, action: &str, text: &str, calls: &[(&ToolCall, &ToolResult)]) -> StepResult {
        let mut metadata = Map::new();
        if let Some(confidence) = self.context.metrics.get("confidence") {
            metadata.insert("confidence".to_owned(), confidence.clone());
        }
        // The call that ends the run is not work, so policies do not see it among the tools.
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

    /// Shows the policy a complete step.
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

    /// Ends the run because a policy stopped it.
    pub(super) fn policy_stop(&mut self, stop: Stop, fx: &mut Vec<Effect>) -> Flow {
        let ending = self.stop_ending(stop, "");
        self.end_or_succeed(ending, fx)
    }

    /// Builds the ending of a stop that comes before the turn is complete. The text streamed so far
    /// becomes the last text.
    pub(super) fn mid_stream_ending(&mut self, stop: Stop) -> Box<Ending> {
        if let Phase::Calling(call) = &self.phase
            && !call.text.trim().is_empty()
        {
            self.last_text = Some(call.text.clone());
        }
        self.stop_ending(stop, "in mid-stream")
    }

    /// Builds the ending of a policy's stop. The ending is a success only if there is an answer:
    /// the policy's own, the run's last text, or the result of the tool that the policy waited for.
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

    /// Handles a run that would end as a success: validates it against the schema, then asks the
    /// stop hook.
    pub(super) fn succeed(
        &mut self,
        ending: Box<Ending>,
        candidate: Value,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        // Calls that have not run must be answered in any case, because a call without a result
        // makes the conversation invalid.
        self.answer_unrun("not run: the run ended");
        if self.output_schema {
            let id = self.effect_id();
            self.phase = Phase::Validating { id, success: ending };
            fx.push(Effect::Validate { id, candidate });
            return Ok(());
        }
        self.ask_stop_hook(ending, fx)
    }

    /// Handles the result of a validation: the answer stands, is repaired, or ends the run.
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
        // The candidate is not an answer, so an ending that it outranked takes its place.
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
        // With no repair allowed, the failure is the first answer's own; otherwise the limit is the
        // cause.
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

    /// Asks the stop hook about a success, or ends the run with it.
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

    /// Handles the reply to a text answer: the run continues with it, or ends if there is none.
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
                // A failure that the answer had outranked decides now, because the conversation was
                // over anyway.
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

    /// Handles the stop hook's answer: the success stands, or is vetoed.
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
            // A veto withdraws the answer, so an ending that it outranked takes its place.
            Answer::Deny(reason) => {
                if let Some(ending) = ending.next_in_rank() {
                    return Err(ending);
                }
                self.vetoes += 1;
                self.tell("veto", reason, fx);
                self.before_turn(fx)
            }
            // The run ends here; the model reads the message only if the conversation is continued.
            Answer::ProceedWith(text) => {
                self.tell("hook", text, fx);
                Err(ending)
            }
            Answer::Proceed | Answer::OutputCap(_) => Err(ending),
        }
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
        "limit",
        ceiling.name(),
        format!(
            "the output cap was lowered to what was left, {cap} tokens, and cut the turn: {shown}"
        ),
    )
}

/// Number of characters that the model generated for a part.
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

/// `true` if the provider counted both the prompt and the output.
fn is_complete(usage: &Usage) -> bool {
    usage.input_tokens.is_some() && usage.generated_tokens().is_some()
}
