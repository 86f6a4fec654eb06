//! A guest's run of the kernel, with additional data of a binding: the open call, the price, and the
//! messages for the model.

use crate::pricing::Pricing;
use endstop_core::guest::{Admission, Guest, GuestReply, GuestStart};
use endstop_core::{
    Effect, EffectId, GuestCall, Message, ModelError, ModelTurn, NanoUsd, Outcome, Run, RunEvent,
    RunSpec, SignalReason, Termination, TerminationSignal, ToolCall, ToolReport, ToolStatus,
    TurnDelta, Usage,
};
use endstop_wire::Decoded;
use serde::de::IgnoredAny;
use std::sync::Arc;
use std::time::Duration;

/// The state of a run between two calls.
pub struct RunState {
    /// The run of the kernel.
    pub guest: Guest,
    /// The model call that waits for its response.
    call: Option<EffectId>,
    /// Bytes of the conversation so far: an upper bound on the tokens of the next prompt, if the
    /// caller gives none.
    known_bytes: u64,
    pricing: Pricing,
    /// The format of the last response; empty if none is known.
    api: &'static str,
    /// Messages of the kernel for the next request.
    notes: Vec<String>,
}

/// The result of feeding a response.
#[derive(Clone)]
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

impl RunState {
    /// Starts a run of the kernel. The price comes from `pricing`, and the bytes of the conversation
    /// so far from the messages of `spec`.
    pub fn new(mut spec: RunSpec, pricing: Pricing) -> RunState {
        // Of the effects only the messages for the model are read.
        spec.guest.get_or_insert_default().unobserved = true;
        let known_bytes = spec.messages.iter().map(|message| message.plain_text().len() as u64);
        let known_bytes = known_bytes.sum();
        let start = GuestStart { price: pricing.price(), ..GuestStart::default() };
        let guest = Guest::new(spec, start);
        RunState { guest, call: None, known_bytes, pricing, api: "", notes: Vec::new() }
    }

    /// Returns the outcome, if the run has ended.
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        self.guest.outcome().map(Arc::clone)
    }

    /// Asks if the model may be called. `false`: the run has ended.
    pub fn ask(&mut self, at: Duration, ask: Ask) -> bool {
        let text: usize = ask.input.iter().map(String::len).sum();
        self.known_bytes = self.known_bytes.saturating_add(text as u64);
        let call = GuestCall {
            input: ask.input.into_iter().map(Message::user).collect(),
            prompt_bytes: ask.prompt_bytes.unwrap_or(self.known_bytes),
            output_cap: ask.output_cap,
            price: self.pricing.price(),
            streaming: ask.streaming,
            attempt_of_previous: ask.retry,
            ..GuestCall::default()
        };
        let admission = self.guest.ask(at, call);
        self.collect_notes();
        self.call = match admission {
            Admission::Go { call, .. } => Some(call),
            // No run of this binding has a shared budget.
            Admission::Stop(_) | Admission::Reserve { .. } => None,
        };
        self.call.is_some()
    }

    /// Feeds a response in the format `api`, after asking for its call if the caller did not.
    pub fn turn(&mut self, at: Duration, mut decoded: Decoded, api: &'static str) -> Turn {
        self.api = api;
        // A loop that did not ask still counts against the limits that are checked before a turn.
        if self.call.is_none() {
            self.ask(at, Ask { streaming: decoded.streamed, ..Ask::default() });
        }
        let Some(call) = self.call.take() else {
            return self.ended_turn(decoded.signal, decoded.error);
        };
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
            turn.cost = self.pricing.price().map(|price| price.cost(&turn.usage));
        }
        let text = turn.as_ref().map(ModelTurn::text).unwrap_or_default();
        // Of a response that asks for its tools only invalid calls can be held back.
        let whole = error.is_none() && signal.reason == SignalReason::ToolUse;
        let requested: Vec<Arc<ToolCall>> = match &turn {
            Some(turn) if !whole => turn.tool_calls().cloned().map(Arc::new).collect(),
            _ => Vec::new(),
        };
        let usage = turn.as_ref().map(|turn| turn.usage.clone()).unwrap_or_default();
        self.known_bytes = self.known_bytes.saturating_add(bytes_of(turn.as_ref()));
        let reply = match (error.clone(), turn) {
            (None, Some(turn)) => self.guest.turn(at, call, turn),
            (error, partial) => {
                let error = error.unwrap_or_else(no_content);
                // With its partial content, because the provider bills that.
                self.guest.failed(at, call, error, partial.map(Box::new))
            }
        };
        self.collect_notes();
        let released = if let GuestReply::Tools(calls) = reply { calls } else { Vec::new() };
        let (calls, mut held_back) = self.split_invalid(at, released);
        held_back.extend(requested.into_iter().filter(|call| !calls.contains(call)));
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
    fn ended_turn(&self, signal: TerminationSignal, error: Option<ModelError>) -> Turn {
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

    /// Feeds the failure of a model call.
    pub fn failed(&mut self, at: Duration, error: ModelError) {
        if self.call.is_none() {
            self.ask(at, Ask::default());
        }
        if let Some(call) = self.call.take() {
            let _ = self.guest.failed(at, call, error, None);
            self.collect_notes();
        }
    }

    /// Feeds streamed content of the open call.
    pub fn delta(&mut self, at: Duration, delta: TurnDelta) {
        if self.call.is_none() {
            self.ask(at, Ask { streaming: true, ..Ask::default() });
        }
        if let Some(call) = self.call {
            let _ = self.guest.delta(at, call, delta);
            self.collect_notes();
        }
    }

    /// Feeds the result of a tool.
    pub fn result(&mut self, at: Duration, call_id: &str, report: ToolReport) {
        self.known_bytes = self.known_bytes.saturating_add(report.content.len() as u64);
        let _ = self.guest.result(at, call_id, report);
        self.collect_notes();
    }

    /// Ends the run with its last response if that was an answer, or a response from which a plain
    /// loop cannot continue.
    pub fn end_if_answered(&mut self, at: Duration) {
        if self.provisional().is_some() {
            self.guest.close(at, true, "");
        }
    }

    /// `true` unless the run has ended.
    pub fn is_running(&self) -> bool {
        self.guest.run().is_some()
    }

    /// Returns the format of the last response; empty if none is known.
    pub fn api(&self) -> &'static str {
        self.api
    }

    /// Returns the ending that the run has if its loop ends now, or its ending.
    pub fn ending(&self) -> Option<Termination> {
        self.provisional().or(self.guest.outcome().map(|outcome| outcome.termination))
    }

    fn provisional(&self) -> Option<Termination> {
        self.guest.run().and_then(Run::provisional).map(|(ending, _)| ending)
    }

    /// Returns the number of responses that became part of the conversation.
    pub fn turns(&self) -> u32 {
        // The kernel's run becomes the outcome when it ends, so that a guest has one of both.
        let ended = self.guest.outcome().map(|outcome| outcome.turns);
        self.guest.run().map(Run::turns).or(ended).unwrap_or(0)
    }

    /// Returns the token usage so far.
    pub fn usage(&self) -> Usage {
        let ended = self.guest.outcome().map(|outcome| &outcome.usage);
        self.guest.run().map(Run::usage).or(ended).cloned().unwrap_or_default()
    }

    /// Returns the known cost so far.
    pub fn cost(&self) -> NanoUsd {
        let ended = self.guest.outcome().map(|outcome| outcome.cost);
        self.guest.run().map(Run::spent).or(ended).unwrap_or_default()
    }

    /// Takes the messages for the next request.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn collect_notes(&mut self) {
        for effect in self.guest.effects() {
            if let Effect::Emit(RunEvent::MessageInjected { text, .. }) = effect {
                self.notes.push(text.clone());
            }
        }
    }
}

/// `true` if arguments are a JSON object, or blank, which means an empty one.
fn is_object(arguments: &str) -> bool {
    let text = arguments.trim();
    text.is_empty() || text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Bytes that a turn adds to the conversation.
fn bytes_of(turn: Option<&ModelTurn>) -> u64 {
    turn.map_or(0, |turn| turn.parts.iter().map(endstop_core::Part::byte_len).sum())
}

/// The error of a response that has neither content nor an error of its own.
fn no_content() -> ModelError {
    let message = "the response has no content";
    ModelError::new(endstop_core::ErrorClass::UnknownError, message)
}
