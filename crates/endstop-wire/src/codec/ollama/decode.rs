//! Ollama decoder: collects a stream's objects, or a complete body, into a turn.

use super::wire::{Call, Chunk, Logprob, MADE_ID, Message};
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Part, ToolCall, Usage};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// A partially received turn.
#[derive(Default)]
pub(crate) struct Accumulator {
    common: Common,
    parts: Vec<Part>,
    calls: usize,
    ids: HashSet<String>,
    /// Creation time of the response, as far as it fits into an id, so that generated ids differ
    /// between turns.
    begun: String,
    logprob_sum: f64,
    logprobs: u64,
}

impl Accumulator {
    pub(crate) fn new() -> Accumulator {
        Accumulator::default()
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, text: &str, sink: DeltaSink<'_>) {
        self.common.named(chunk.model.filled(), None);
        if json::is_error(chunk.error) {
            self.common.fail(|| ErrorBody::read(text));
        }
        // The first object decides, because every object has a later time.
        if self.begun.is_empty() {
            let begun = chunk.created_at.get().chars().filter(char::is_ascii_alphanumeric);
            self.begun.extend(begun.take(64));
        }
        self.thought(chunk.thinking.get(), sink);
        self.text(chunk.response.get(), sink);
        if let Some(message) = &chunk.message {
            self.message(message, sink);
        }
        self.common.count(&Usage {
            input_tokens: chunk.prompt_eval_count.0,
            output_tokens: chunk.eval_count.0,
            ..Usage::default()
        });
        let logprobs = chunk.logprobs.and_then(|raw| serde_json::from_str(raw.get()).ok());
        for token in logprobs.into_iter().flat_map(|list: Vec<Logprob>| list) {
            self.logprob_sum += token.logprob.exp();
            self.logprobs += 1;
        }
        if chunk.done.get() == "true" {
            // Only `done` ends a stream. A server that stops earlier has failed.
            self.common.terminated = true;
            if let Some(value) = &chunk.done_reason.0 {
                self.common.finishes(WireFormat::Ollama, value);
            }
        }
    }

    fn message(&mut self, message: &Message<'_>, sink: DeltaSink<'_>) {
        self.thought(message.thinking.get(), sink);
        self.text(message.content.get(), sink);
        for call in message.tool_calls.iter().flat_map(|calls| calls.iter()) {
            self.call(call, sink);
        }
    }

    fn thought(&mut self, text: &str, sink: DeltaSink<'_>) {
        if text.is_empty() || !self.common.room(self.parts.len()) {
            return;
        }
        sink(Delta::Reasoning(text));
        match self.parts.last_mut() {
            Some(Part::Reasoning { text: so_far }) => so_far.push_str(text),
            _ => self.parts.push(Part::Reasoning { text: text.to_owned() }),
        }
    }

    fn text(&mut self, text: &str, sink: DeltaSink<'_>) {
        if text.is_empty() || !self.common.room(self.parts.len()) {
            return;
        }
        sink(Delta::Text(text));
        match self.parts.last_mut() {
            Some(Part::Text { text: so_far }) => so_far.push_str(text),
            _ => self.parts.push(Part::Text { text: text.to_owned() }),
        }
    }

    /// Handles a call, which always arrives complete. A call without a name is a placeholder.
    fn call(&mut self, call: &Call<'_>, sink: DeltaSink<'_>) {
        let Some(function) = call.function.as_ref().filter(|f| f.name.filled().is_some()) else {
            return;
        };
        if !self.common.room(self.parts.len()) {
            return;
        }
        let name = function.name.get();
        let index = self.calls;
        self.calls += 1;
        let made = || format!("{MADE_ID}{}_{index}", self.begun);
        let mut id = call.id.filled().map_or_else(made, str::to_owned);
        // Ids must be unique, because results are matched to calls by them.
        while !self.ids.insert(id.clone()) {
            id = format!("{MADE_ID}{id}_{index}");
        }
        sink(Delta::ToolCallStarted { index, id: &id, name });
        let arguments = function.arguments.map(arguments).unwrap_or_default();
        if !arguments.is_empty() {
            sink(Delta::ToolArguments { index, json: &arguments });
        }
        self.parts.push(Part::ToolCall(ToolCall { id, name: name.to_owned(), arguments }));
    }

    fn read(&mut self, data: &str, sink: DeltaSink<'_>) -> Parsed {
        if !data.starts_with('{') {
            // serde would read a list as the struct's fields in their order.
            return serde_json::from_str::<Map<String, Value>>(data).map(|_| ());
        }
        let mut repaired = String::new();
        let chunk = json::event(data, &mut repaired)?;
        self.chunk(&chunk, data, sink);
        Ok(())
    }
}

/// Returns the arguments as JSON text. Some servers send that text as a string already.
fn arguments(raw: &RawValue) -> String {
    match raw.get() {
        "null" => String::new(),
        text if text.starts_with('"') => serde_json::from_str(text).unwrap_or_default(),
        text => text.to_owned(),
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let data = data.trim();
        if name == "error" {
            self.common.fail(|| ErrorBody::read(data));
            return Ok(());
        }
        // Gateways in front of Ollama may end the events with `[DONE]`, which has no meaning here.
        if data == "[DONE]" { Ok(()) } else { self.read(data, sink) }
    }

    fn body(&mut self, text: &str) -> Parsed {
        self.read(text.trim(), &mut |_| ())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn) {
        let raw = self.common.finish.as_deref().unwrap_or("");
        let (finish, by_done) = match finish_of(WireFormat::Ollama, raw) {
            // Ollama reports `stop` for a turn with tool calls.
            Finish::Natural if self.calls > 0 => (Finish::ToolUse, false),
            // Old servers send `done` without a `done_reason`.
            Finish::Missing if self.common.terminated => (Finish::Natural, true),
            finish => (finish, false),
        };
        if self.logprobs > 0 {
            self.common.confidence = Some(self.logprob_sum / self.logprobs as f64);
        }
        let said = DecodedTurn {
            parts: self.parts,
            finish,
            field: "done_reason",
            matched_stop: None,
            stop_ambiguous: facts.stop_strings || by_done,
            metadata: Map::new(),
        };
        (self.common, said)
    }
}
