//! One conversation of a run: a guest of the kernel, its open call and its price.

use crate::pricing::Pricing;
use crate::response::Detection;
use endstop_core::guest::{Admission, Guest, GuestReply, GuestStart, Spending};
use endstop_core::usage::Unreported;
use endstop_core::{
    Billing, Effect, EffectId, ErrorClass, Event, GuestCall, Limits, Message, ModelError,
    ModelTurn, Outcome, Run, RunEvent, RunPhase, RunSpec, SignalReason, Termination,
    TerminationSignal, ToolCall, ToolReport, ToolStatus, TurnDelta, Usage,
};
use endstop_wire::Decoded;
use endstop_wire::redact::secrets_out;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The result of feeding a response.
#[derive(Clone, Serialize, Deserialize)]
pub struct Turn {
    /// The visible text.
    pub text: String,
    /// The calls that may run.
    pub calls: Vec<Arc<ToolCall>>,
    /// The calls that must not run.
    pub held_back: Vec<Arc<ToolCall>>,
    /// The reason why the model stopped.
    pub signal: TerminationSignal,
    /// Token usage of the response.
    pub usage: Usage,
    /// The error that the response is, or that ended it.
    pub error: Option<ModelError>,
    /// The ending of the run if its loop ends now.
    pub ending: Option<Termination>,
    /// The outcome, if the run has ended.
    pub outcome: Option<Arc<Outcome>>,
}

impl Turn {
    /// Returns the ending that the run has, or has if its loop ends now.
    pub fn ending_or_end(&self) -> Option<Termination> {
        self.ending.or(self.outcome.as_ref().map(|outcome| outcome.termination))
    }
}

/// A model call that the caller is about to make.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Messages of the user that continue the conversation.
    pub input: Vec<String>,
    /// Bytes of the prompt: an upper bound on its tokens.
    pub prompt_bytes: Option<u64>,
    /// Most tokens of output that the call allows.
    pub output_cap: Option<u64>,
    /// `true` if the response is streamed.
    pub streaming: bool,
    /// `true` if the call repeats the last one.
    pub retry: bool,
}

/// A model call that waits for its response.
#[derive(Clone, Copy)]
struct Open {
    call: EffectId,
    handle: u32,
    /// `true` if the caller gave the size of the prompt. Otherwise the run does not know what else the
    /// request contains, and has no upper bound on its cost.
    has_prompt: bool,
}

/// A conversation of a run.
pub(crate) struct Conversation {
    /// The name of its agent or branch; empty for the run's own.
    pub(crate) of: String,
    pub(crate) guest: Guest,
    /// The limits at its start, from which its events lead to its state.
    pub(crate) limits: Limits,
    /// The events so far, for a run that is parked.
    pub(crate) events: Vec<Event>,
    /// The model call that waits for its response.
    open: Option<Open>,
    /// The handle that made the last call; 0: the run itself.
    pub(crate) last_handle: u32,
    /// Ids of the tool calls that its responses have asked for.
    pub(crate) asked: HashSet<String>,
    /// `true` once a model call was asked for.
    pub(crate) is_used: bool,
    /// `true` once the run itself asked for a call, and not a handle.
    pub(crate) is_own: bool,
    /// The part of its totals that is charged to the others.
    pub(crate) shared: Spending,
    /// Bytes of the conversation so far: an upper bound on the tokens of the next prompt, if the
    /// caller gives none.
    pub(crate) known_bytes: u64,
    pub(crate) pricing: Pricing,
    /// The format of the last response; empty if none is known.
    pub(crate) api: &'static str,
    /// Messages of the kernel for the next request.
    pub(crate) notes: Vec<String>,
}

impl Conversation {
    /// Starts a conversation. The bytes so far are those of the messages of `spec`.
    pub(crate) fn new(
        of: String,
        spec: RunSpec,
        pricing: Pricing,
        wall_ms: Option<u64>,
    ) -> Conversation {
        let start =
            GuestStart { price: pricing.price(), wall_ms, record: true, ..GuestStart::default() };
        let (limits, known_bytes) = (spec.limits.clone(), bytes_in(&spec));
        let mut talk =
            Conversation::around(of, limits, known_bytes, Guest::new(spec, start), pricing);
        // The start is an event, too.
        talk.after_step();
        talk
    }

    pub(crate) fn around(
        of: String,
        limits: Limits,
        known_bytes: u64,
        guest: Guest,
        pricing: Pricing,
    ) -> Conversation {
        Conversation {
            of,
            limits,
            guest,
            events: Vec::new(),
            open: None,
            last_handle: 0,
            asked: HashSet::new(),
            is_used: false,
            is_own: false,
            shared: Spending::default(),
            known_bytes,
            pricing,
            api: "",
            notes: Vec::new(),
        }
    }

    /// `true` if a model call waits for its response.
    pub(crate) fn is_calling(&self) -> bool {
        self.open.is_some()
    }

    /// `true` if this handle has a model call here.
    pub(crate) fn is_open_for(&self, handle: u32) -> bool {
        self.open.is_some_and(|open| open.handle == handle)
    }

    /// Asks if the model may be called. `false`: the conversation has ended.
    pub(crate) fn ask(
        &mut self,
        at: Duration,
        handle: u32,
        ask: Ask,
        turns_in_flight: u32,
    ) -> bool {
        self.is_used = true;
        self.is_own |= handle == 0;
        self.last_handle = handle;
        if self.open.is_some() {
            let problem =
                "the model was called again before the response of the call before was fed";
            self.failed(at, ModelError::new(ErrorClass::IncompleteStream, problem));
        }
        let text: usize = ask.input.iter().map(String::len).sum();
        self.known_bytes = self.known_bytes.saturating_add(text as u64);
        let has_prompt = ask.prompt_bytes.is_some();
        let call = GuestCall {
            // Another task, and not a repetition.
            attended: !ask.input.is_empty(),
            input: ask.input.into_iter().map(Message::user).collect(),
            prompt_bytes: ask.prompt_bytes.unwrap_or(self.known_bytes),
            output_cap: ask.output_cap,
            price: self.pricing.price(),
            streaming: ask.streaming,
            attempt_of_previous: ask.retry,
            turns_in_flight,
            ..GuestCall::default()
        };
        let admission = self.guest.ask(at, call);
        self.after_step();
        self.open = match admission {
            Admission::Go { call, .. } => Some(Open { call, handle, has_prompt }),
            // No run of this binding has a shared budget.
            Admission::Stop(_) | Admission::Reserve { .. } => None,
        };
        self.open.is_some()
    }

    /// Feeds the response of the open call.
    pub(crate) fn turn(&mut self, at: Duration, found: Detection) -> Turn {
        let Detection { api, mut decoded } = found;
        self.api = api;
        let Some(open) = self.open.take() else {
            return self.ended_turn(decoded.signal, decoded.error);
        };
        self.asked.extend(decoded.turn.iter().flat_map(tool_ids));
        let asked_price = self.pricing.price();
        if let Some(turn) = &decoded.turn {
            self.pricing.follow(api, turn);
        }
        decoded.price_service_tier(self.pricing.source());
        let Decoded { mut turn, error, signal, .. } = decoded;
        if let Some(turn) = &mut turn
            && turn.cost.is_none()
            && self.pricing.price() != asked_price
        {
            // The call was admitted without this price.
            if turn.usage.input_tokens.is_some() && turn.usage.generated_tokens().is_some() {
                turn.cost = self.pricing.price().map(|price| price.cost(&turn.usage));
            } else {
                // Its estimate has the other price, which bounds nothing.
                turn.usage.billing = Billing::More;
            }
        }
        let text = turn.as_ref().map(ModelTurn::text).unwrap_or_default();
        // Of a response that asks for its tools only invalid calls can be held back, unless it has a call too many.
        let whole = error.is_none() && signal.reason == SignalReason::ToolUse;
        let is_limited = self.guest.run().is_some_and(Run::limits_tool_calls);
        let requested: Vec<Arc<ToolCall>> = match &turn {
            Some(turn) if !whole || is_limited => {
                turn.tool_calls().cloned().map(Arc::new).collect()
            }
            _ => Vec::new(),
        };
        let usage = turn.as_ref().map(|turn| turn.usage.clone()).unwrap_or_default();
        self.known_bytes = self.known_bytes.saturating_add(bytes_of(turn.as_ref()));
        let is_counted = usage.input_tokens.is_some();
        let may_be_billed = error.as_ref().is_none_or(ModelError::may_be_billed);
        if may_be_billed && !is_counted && turn.as_ref().is_none_or(|turn| turn.cost.is_none()) {
            self.charge_unknown(at, open);
        }
        let reply = match (error.clone(), turn) {
            (None, Some(turn)) => self.guest.turn(at, open.call, turn),
            (error, partial) => {
                let error = error.unwrap_or_else(no_content);
                // With its partial content, because the provider bills that.
                self.guest.failed(at, open.call, error, partial.map(Box::new))
            }
        };
        self.after_step();
        let is_stopped = matches!(reply, GuestReply::Stop(_));
        let released = if let GuestReply::Tools(calls) = reply { calls } else { Vec::new() };
        let (calls, mut held_back) = self.split_invalid(at, released);
        if !whole || is_stopped {
            held_back.extend(requested.into_iter().filter(|call| !calls.contains(call)));
        }
        let ending = self.provisional();
        Turn { text, calls, held_back, signal, usage, error, ending, outcome: self.outcome() }
    }

    /// Splits the calls that may run from those whose arguments are not a JSON object, because they
    /// are probably cut. Answers the latter. After the end of the run, none may run.
    fn split_invalid(
        &mut self,
        at: Duration,
        released: Vec<Arc<ToolCall>>,
    ) -> (Vec<Arc<ToolCall>>, Vec<Arc<ToolCall>>) {
        let (valid, mut invalid): (Vec<_>, Vec<_>) =
            released.into_iter().partition(|call| is_object(&call.arguments));
        for call in &invalid {
            let problem = call.parsed_arguments().err().map(|problem| problem.to_string());
            let report = ToolReport::new(ToolStatus::Error, problem.unwrap_or_default());
            // Not started, so that the history does not claim an effect that the tool never had.
            self.result(at, &call.id, ToolReport { started: false, ..report });
        }
        if self.guest.run().is_some() {
            return (valid, invalid);
        }
        invalid.extend(valid);
        (Vec::new(), invalid)
    }

    /// A response that came after the end of the run.
    pub(crate) fn ended_turn(&self, signal: TerminationSignal, error: Option<ModelError>) -> Turn {
        Turn {
            text: String::new(),
            calls: Vec::new(),
            held_back: Vec::new(),
            signal,
            usage: Usage::default(),
            error,
            ending: None,
            outcome: self.outcome(),
        }
    }

    /// Feeds the failure of the open call.
    pub(crate) fn failed(&mut self, at: Duration, error: ModelError) {
        if let Some(open) = self.open.take() {
            if error.may_be_billed() {
                self.charge_unknown(at, open);
            }
            let _ = self.guest.failed(at, open.call, error, None);
            self.after_step();
        }
    }

    /// Feeds streamed content of the open call.
    pub(crate) fn delta(&mut self, at: Duration, delta: TurnDelta) {
        if let Some(open) = self.open {
            let _ = self.guest.delta(at, open.call, delta);
            self.after_step();
        }
    }

    /// Records that a call was made whose prompt has no known size, and whose tokens nothing reports.
    fn charge_unknown(&mut self, at: Duration, open: Open) {
        if !open.has_prompt {
            let unreported = Some(Unreported { cost: None, tokens: None });
            let cost_unknown = true;
            let _ =
                self.guest.spent(at, Spending { unreported, cost_unknown, ..Spending::default() });
            self.after_step();
        }
    }

    /// Charges a call that is open at the end of the run.
    pub(crate) fn settle(&mut self, at: Duration) {
        if self.guest.run().is_none()
            && let Some(open) = self.open.take()
        {
            self.charge_unknown(at, open);
        }
    }

    /// `true` if a tool call is open.
    pub(crate) fn waits_for(&self, call_id: &str) -> bool {
        self.guest.run().is_some_and(|run| run.open_tool(call_id).is_some())
    }

    /// Feeds the result of a tool.
    pub(crate) fn result(&mut self, at: Duration, call_id: &str, report: ToolReport) {
        self.known_bytes = self.known_bytes.saturating_add(report.content.len() as u64);
        let _ = self.guest.result(at, call_id, report);
        self.after_step();
    }

    /// `true` if a model call waits for its response, or tools were asked for and not answered.
    pub(crate) fn is_open(&self) -> bool {
        self.is_calling() || self.guest.run().is_some_and(|run| run.phase() == RunPhase::Tools)
    }

    /// Returns the ending of the conversation if its loop ends now.
    pub(crate) fn provisional(&self) -> Option<Termination> {
        self.guest.run().and_then(Run::provisional).map(|(ending, _)| ending)
    }

    pub(crate) fn outcome(&self) -> Option<Arc<Outcome>> {
        self.guest.outcome().map(without_secrets)
    }

    /// Collects what the last step of the guest left: messages for the model, and events.
    pub(crate) fn after_step(&mut self) {
        for effect in self.guest.effects() {
            if let Effect::Emit(RunEvent::MessageInjected { text, .. }) = effect {
                self.notes.push(text.clone());
            }
        }
        self.events.extend(self.guest.take_events().into_iter().map(|recorded| recorded.event));
    }
}

/// Redacts the evidence of an outcome, which may quote a finish value or the name of a tool as a server
/// sent it, and that value.
fn without_secrets(outcome: &Arc<Outcome>) -> Arc<Outcome> {
    let evidence = secrets_out(&outcome.decided_by.evidence);
    let sent = outcome.signal.as_ref().map(|signal| &signal.provider_specific.original_value);
    let value = sent.map(|value| secrets_out(value));
    if evidence == outcome.decided_by.evidence && value.as_ref() == sent {
        return Arc::clone(outcome);
    }
    let mut outcome = Outcome::clone(outcome);
    outcome.decided_by.evidence = evidence;
    if let (Some(signal), Some(value)) = (&mut outcome.signal, value) {
        signal.provider_specific.original_value = value;
    }
    Arc::new(outcome)
}

/// Ids of the tool calls of a response.
pub(crate) fn tool_ids(turn: &ModelTurn) -> impl Iterator<Item = String> {
    turn.tool_calls().map(|call| call.id.clone())
}

/// `true` if arguments are a JSON object, or blank, which means an empty one.
fn is_object(arguments: &str) -> bool {
    let text = arguments.trim();
    text.is_empty() || text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn bytes_in(spec: &RunSpec) -> u64 {
    spec.messages.iter().map(|message| message.plain_text().len() as u64).sum()
}

fn part_bytes(part: &endstop_core::Part) -> u64 {
    part.byte_len()
}

/// Bytes that a turn adds to the conversation.
fn bytes_of(turn: Option<&ModelTurn>) -> u64 {
    turn.map_or(0, |turn| turn.parts.iter().map(part_bytes).sum())
}

/// The error of a response that has neither content nor an error of its own.
fn no_content() -> ModelError {
    ModelError::new(ErrorClass::UnknownError, "the response has no content")
}
