//! Cohere v2 decoder: collects stream events, or a complete body, into a turn.

use super::wire::{Block, Body, Call, Change, Event, FINISH, Logprobs, Message, count, items};
use crate::bounded::made_id;
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json::{self, Str, lenient};
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Part, ToolCall};
use serde::de::Error as _;
use serde_json::Map;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

/// A partially received turn.
#[derive(Default)]
pub(crate) struct Accumulator {
    common: Common,
    said: Vec<PartialBlock>,
    calls: Vec<ToolCall>,
    /// Position in `calls` of each stream index.
    places: HashMap<u64, usize>,
    logprob_sum: f64,
    logprobs: u64,
}

/// A partially received content part.
#[derive(Debug, PartialEq, Eq)]
enum PartialBlock {
    Text(String),
    Thinking(String),
    Plan(String),
}

impl Accumulator {
    fn change(&mut self, event: &Event<'_>, sink: DeltaSink<'_>) {
        let Some(change) = event.delta.and_then(|raw| self.common.read::<Change<'_>>(raw)) else {
            return;
        };
        self.finish(&change.finish_reason, change.usage);
        if let Some(error) = change.error.filter(|e| !matches!(e.get(), "null" | "\"\"")) {
            // Restore the object around the field, because `ErrorBody` expects a complete error
            // body.
            let body = ErrorBody::read(&format!("{{\"error\":{}}}", error.get()));
            let value = self.common.finish.as_deref().unwrap_or("");
            // Cohere reports some failures as a finish value with an error text; the value then
            // decides the class.
            let body = match finish_of(WireFormat::CohereV2, value) {
                Finish::Error => ErrorBody::of_finish(FINISH, value, &body.message),
                _ => body,
            };
            self.common.fail(|| body);
        }
        if let Some(message) = change.message.and_then(|raw| self.common.read::<Message<'_>>(raw)) {
            let starts = event.kind.get() == "tool-call-start";
            self.message(&message, Some((event.index.0, starts)), sink);
        }
    }

    fn finish(&mut self, value: &Str<'_>, usage: Option<&RawValue>) {
        if let Some(value) = &value.0 {
            self.common.finishes(WireFormat::CohereV2, value);
        }
        if let Some(usage) = usage {
            count(usage, &mut self.common);
        }
    }

    /// Handles a complete message, or a fragment of one. `piece` then holds the index of the call,
    /// and `true` if the call starts.
    fn message(
        &mut self,
        message: &Message<'_>,
        piece: Option<(Option<u64>, bool)>,
        sink: DeltaSink<'_>,
    ) {
        self.say(PartialBlock::Plan, message.tool_plan.get(), sink);
        // `content` may be a plain string instead of a list of blocks.
        for text in message.content.iter().filter_map(|raw| lenient::<Str<'_>>(raw)) {
            self.say(PartialBlock::Text, text.get(), sink);
        }
        for block in items::<Block<'_>>(&mut self.common, message.content) {
            self.say(PartialBlock::Thinking, block.thinking.get(), sink);
            self.say(PartialBlock::Text, block.text.get(), sink);
        }
        for call in items::<Call<'_>>(&mut self.common, message.tool_calls) {
            self.call(&call, piece, sink);
        }
    }

    fn say(&mut self, kind: fn(String) -> PartialBlock, text: &str, sink: DeltaSink<'_>) {
        if text.is_empty() || !self.common.room(self.said.len()) {
            return;
        }
        let new = kind(String::new());
        sink(if matches!(new, PartialBlock::Text(_)) {
            Delta::Text(text)
        } else {
            Delta::Reasoning(text)
        });
        // Join neighbouring fragments of the same kind into one part.
        let same = |last: &&mut PartialBlock| {
            std::mem::discriminant::<PartialBlock>(last) == std::mem::discriminant(&new)
        };
        match self.said.last_mut().filter(same) {
            Some(PartialBlock::Text(t) | PartialBlock::Thinking(t) | PartialBlock::Plan(t)) => {
                t.push_str(text);
            }
            None => self.said.push(kind(text.to_owned())),
        }
    }

    /// Starts a call if it is complete or marked as a start. Other fragments continue the call of
    /// their index.
    fn call(&mut self, call: &Call<'_>, piece: Option<(Option<u64>, bool)>, sink: DeltaSink<'_>) {
        let name = call.function.as_ref().map_or("", |f| f.name.get());
        let (index, starts) = piece.unwrap_or((None, true));
        let known = match index {
            Some(index) => self.places.get(&index).copied(),
            // A fragment without an index continues the latest call.
            None => self.calls.len().checked_sub(1),
        };
        let place = match known.filter(|_| !starts) {
            Some(place) => place,
            // A continuation without a start, or a call without a name, is a placeholder.
            None if name.is_empty() => return,
            None if !self.common.room(self.calls.len()) => return,
            None => {
                let place = self.calls.len();
                let id = call.id.get().to_owned();
                let arguments = String::new();
                self.calls.push(ToolCall { id, name: name.to_owned(), arguments });
                if let Some(index) = index {
                    self.places.insert(index, place);
                }
                sink(Delta::ToolCallStarted { index: place, id: call.id.get(), name });
                place
            }
        };
        if let Some(json) = call.function.as_ref().and_then(|f| f.arguments.filled()) {
            self.calls[place].arguments.push_str(json);
            sink(Delta::ToolArguments { index: place, json });
        }
    }

    fn probable(&mut self, raw: Option<&RawValue>) {
        let tokens =
            items::<Logprobs>(&mut self.common, raw).into_iter().filter_map(|item| item.logprobs);
        for logprob in tokens.flatten() {
            // Confidence is the mean of probabilities, so each logarithm is converted first.
            self.logprob_sum += logprob.exp();
            self.logprobs += 1;
        }
    }

    fn parts(&mut self) -> Vec<Part> {
        let mut parts = Vec::with_capacity(2 * self.said.len() + self.calls.len());
        for said in std::mem::take(&mut self.said) {
            match said {
                PartialBlock::Text(text) => parts.push(Part::Text { text }),
                PartialBlock::Thinking(text) => {
                    let back = opaque(r#"{"type":"thinking","thinking":"#, &text);
                    parts.extend([Part::Reasoning { text }, back]);
                }
                PartialBlock::Plan(text) => {
                    let back = opaque(r#"{"tool_plan":"#, &text);
                    parts.extend([Part::Reasoning { text }, back]);
                }
            }
        }
        let mut ids = HashSet::new();
        for (n, mut call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            if call.id.is_empty() {
                call.id = made_id("call_", self.common.id.as_deref(), n);
            }
            // The API rejects a conversation with two calls of the same id.
            while !ids.insert(call.id.clone()) {
                call.id = format!("{}_{n}", call.id);
            }
            parts.push(Part::ToolCall(call));
        }
        parts
    }
}

/// Returns an opaque part `{"field":…` with the text, which is sent back in its original place.
fn opaque(open: &str, text: &str) -> Part {
    let mut json = open.as_bytes().to_vec();
    json::string(&mut json, text);
    json.push(b'}');
    let json = String::from_utf8_lossy(&json).into_owned();
    Part::Opaque { api: WireFormat::CohereV2.as_str().to_owned(), json }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let Some(data) = self.common.event_object(data) else {
            return Ok(());
        };
        let mut repaired = String::new();
        let event: Event<'_> = json::event(data, &mut repaired)?;
        // An error body has a `message` string and no type.
        let bare = event.kind.filled().is_none() && event.message.filled().is_some();
        if name == "error" || event.kind.get() == "error" || bare || json::is_error(event.error) {
            self.common.fail(|| ErrorBody::read(data));
            return Ok(());
        }
        self.common.named(None, event.id.filled());
        self.probable(event.logprobs);
        self.change(&event, sink);
        self.common.terminated |= event.kind.get() == "message-end";
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        let mut repaired = String::new();
        let body: Body<'_> = json::event(text, &mut repaired)?;
        self.common.named(None, body.id.filled());
        let message = body.message.and_then(|raw| self.common.read::<Message<'_>>(raw));
        // In an error `message` is a string; in an answer it is an object.
        let words = body.message.is_some_and(|m| m.get().starts_with('"'));
        if words || json::is_error(body.error) {
            self.common.fail(|| ErrorBody::read(text));
        } else if message.is_none() {
            return Err(serde_json::Error::custom("`message` is missing"));
        }
        if let Some(message) = message {
            self.message(&message, None, &mut |_| ());
        }
        self.probable(body.logprobs);
        self.finish(&body.finish_reason, body.usage);
        Ok(())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, _: &RequestFacts) -> (Common, DecodedTurn) {
        let parts = self.parts();
        if self.logprobs > 0 {
            self.common.confidence = Some(self.logprob_sum / self.logprobs as f64);
        }
        let said = DecodedTurn {
            parts,
            finish: finish_of(WireFormat::CohereV2, self.common.finish.as_deref().unwrap_or("")),
            field: FINISH,
            matched_stop: None,
            // A stop string has its own finish value.
            stop_ambiguous: false,
            metadata: Map::new(),
        };
        (self.common, said)
    }
}
