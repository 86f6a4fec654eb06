//! A guest's run of the kernel, with additional data of the binding: the open call, the price, and
//! the messages for the model.

use crate::detection::Detection;
use crate::outcome::Outcome;
use crate::turn::Turn;
use endstop_core::guest::{Admission, Guest, Reply};
use endstop_core::{
    Effect, EffectId, GuestCall, Message, ModelError, ModelTurn, Price, RunEvent, SignalReason,
    TerminationSignal, ToolCall, ToolReport, ToolStatus,
};
use endstop_wire::Decoded;
use endstop_wire::catalog::prices::{ModelInfo, lookup};
use endstop_wire::dialect::dialect;
use serde::de::IgnoredAny;
use std::sync::Arc;
use std::time::Duration;

/// The state of a run between two calls.
pub(crate) struct RunState {
    pub(crate) guest: Guest,
    /// The model call that waits for its response.
    call: Option<EffectId>,
    /// Bytes of the conversation so far: an upper bound on the tokens of the next prompt, if the
    /// caller gives none.
    known_bytes: u64,
    pub(crate) pricing: Pricing,
    /// The format of the last response; empty if none is known.
    pub(crate) api: &'static str,
    /// Messages of the kernel for the next request.
    notes: Vec<String>,
}

/// The price of the run's calls.
pub(crate) struct Pricing {
    /// The price of the next call.
    pub(crate) price: Option<Price>,
    /// `true` if the caller gave the price, so that the catalogue is not asked.
    pub(crate) is_fixed: bool,
    /// The provider, if the caller named it.
    pub(crate) provider: Option<String>,
    /// The model whose price was looked up last.
    pub(crate) looked_up: Option<String>,
    /// The source of the price, if that is the catalogue, which also has prices of service tiers.
    pub(crate) source: Option<ModelInfo>,
}

impl Pricing {
    /// Looks the price of the model up that answered, if it is another than before.
    fn follow(&mut self, api: &str, turn: &ModelTurn) {
        let Some(model) = turn.model.as_deref().filter(|_| !self.is_fixed) else { return };
        if self.looked_up.as_deref() == Some(model) {
            return;
        }
        self.looked_up = Some(model.to_owned());
        let of_format = || dialect(api).ok().map(|dialect| dialect.family.provider());
        let provider = self.provider.as_deref().or_else(of_format);
        // A model that the catalogue does not know may still be the one that the caller named.
        if let Some(known) = provider.and_then(|provider| lookup(provider, model)) {
            self.price = Some(known.price);
            self.source = Some(known);
        }
    }
}

/// A model call that the caller is about to make.
#[derive(Default)]
pub(crate) struct Ask {
    pub(crate) input: Vec<String>,
    pub(crate) prompt_bytes: Option<u64>,
    pub(crate) output_cap: Option<u64>,
    pub(crate) streaming: bool,
    pub(crate) retry: bool,
}

impl RunState {
    pub(crate) fn new(guest: Guest, pricing: Pricing, known_bytes: u64) -> RunState {
        RunState { guest, call: None, known_bytes, pricing, api: "", notes: Vec::new() }
    }

    /// The outcome, if the run has ended.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.guest.outcome().map(|outcome| Outcome(Arc::clone(outcome)))
    }

    /// Asks if the model may be called. `false`: the run has ended.
    pub(crate) fn ask(&mut self, at: Duration, ask: Ask) -> bool {
        let text: usize = ask.input.iter().map(String::len).sum();
        self.known_bytes = self.known_bytes.saturating_add(text as u64);
        let call = GuestCall {
            input: ask.input.into_iter().map(Message::user).collect(),
            prompt_bytes: ask.prompt_bytes.unwrap_or(self.known_bytes),
            output_cap: ask.output_cap,
            price: self.pricing.price,
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

    /// Feeds a response, after asking for its call if the caller did not.
    pub(crate) fn turn(&mut self, at: Duration, found: Detection) -> Turn {
        let Detection { mut decoded, api } = found;
        self.api = api;
        // A loop that did not ask still counts against the limits that are checked before a turn.
        if self.call.is_none() {
            self.ask(at, Ask { streaming: decoded.streamed, ..Ask::default() });
        }
        let Some(call) = self.call.take() else {
            return self.ended_turn(decoded.signal, decoded.error);
        };
        let asked_price = self.pricing.price;
        if let Some(turn) = &decoded.turn {
            self.pricing.follow(api, turn);
        }
        decoded.price_service_tier(self.pricing.source.as_ref());
        let Decoded { mut turn, error, signal, .. } = decoded;
        if let Some(turn) = &mut turn
            && turn.cost.is_none()
            && self.pricing.price != asked_price
        {
            // The call was admitted without this price.
            turn.cost = self.pricing.price.map(|price| price.cost(&turn.usage));
        }
        let text = turn.as_ref().map(ModelTurn::text).unwrap_or_default();
        // Of a response that asks for its tools only invalid calls can be held back.
        let whole = error.is_none() && signal.reason == SignalReason::ToolUse;
        let requested: Vec<ToolCall> = match &turn {
            Some(turn) if !whole => turn.tool_calls().cloned().collect(),
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
        let released = if let Reply::Tools(calls) = reply { calls } else { Vec::new() };
        let (calls, mut held_back) = self.split_invalid(at, released);
        held_back.extend(requested.into_iter().filter(|call| !calls.contains(call)));
        let run = self.guest.run();
        let ending = run.and_then(endstop_core::Run::provisional).map(|(ending, _)| ending);
        Turn { text, calls, held_back, signal, usage, error, ending, outcome: self.outcome() }
    }

    /// Splits the calls that may run from those whose arguments are not a JSON object, because they
    /// are probably cut. Answers the latter. After the end of the run, none may run.
    fn split_invalid(
        &mut self,
        at: Duration,
        released: Vec<ToolCall>,
    ) -> (Vec<ToolCall>, Vec<ToolCall>) {
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
            usage: endstop_core::Usage::default(),
            error,
            ending: None,
            outcome: self.outcome(),
        }
    }

    /// Feeds the failure of a model call.
    pub(crate) fn failed(&mut self, at: Duration, error: ModelError) {
        if self.call.is_none() {
            self.ask(at, Ask::default());
        }
        if let Some(call) = self.call.take() {
            let _ = self.guest.failed(at, call, error, None);
            self.collect_notes();
        }
    }

    /// Feeds streamed content of the open call.
    pub(crate) fn delta(&mut self, at: Duration, delta: endstop_core::TurnDelta) {
        if self.call.is_none() {
            self.ask(at, Ask { streaming: true, ..Ask::default() });
        }
        if let Some(call) = self.call {
            let _ = self.guest.delta(at, call, delta);
            self.collect_notes();
        }
    }

    /// Feeds the result of a tool.
    pub(crate) fn result(&mut self, at: Duration, call_id: &str, report: ToolReport) {
        self.known_bytes = self.known_bytes.saturating_add(report.content.len() as u64);
        let _ = self.guest.result(at, call_id, report);
        self.collect_notes();
    }

    /// Ends the run with its last response if that was an answer, or a response from which a plain
    /// loop cannot continue.
    pub(crate) fn end_if_answered(&mut self, at: Duration) {
        let decided = self.guest.run().is_some_and(|run| run.provisional().is_some());
        if decided {
            self.guest.close(at, true, "");
        }
    }

    /// Takes the messages for the next request.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
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
