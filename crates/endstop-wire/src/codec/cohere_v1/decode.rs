//! Cohere v1 decoder: collects stream events, or a complete body, into a turn.

use super::wire::{Call, Event, Piece};
use crate::bounded::{List, made_id};
use crate::codec::cohere_v2::{FINISH, count};
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Part, ToolCall};
use serde::de::Error as _;
use serde_json::Map;
use serde_json::value::RawValue;

/// A partially received turn.
#[derive(Default)]
pub(crate) struct Accumulator {
    common: Common,
    text: String,
    /// Name and arguments of each call.
    calls: Vec<(String, String)>,
}

impl Accumulator {
    fn take(&mut self, event: &Event<'_>, text: &str, sink: DeltaSink<'_>) {
        self.common.named(None, event.generation_id.filled());
        if let Some(value) = &event.finish_reason.0 {
            self.common.finishes(WireFormat::CohereV1, value);
        }
        if json::is_error(event.error) {
            let value = self.common.finish.as_deref().unwrap_or("");
            let body = ErrorBody::read(text);
            let body = match finish_of(WireFormat::CohereV1, value) {
                // Cohere reports some failures as a finish value with an error text; the value then
                // decides the class.
                Finish::Error => ErrorBody::of_finish(FINISH, value, &body.message),
                _ => body,
            };
            self.common.fail(|| body);
        }
        match event.kind.get() {
            "text-generation" => self.say(event.text.get(), sink),
            "tool-calls-chunk" => {
                let piece =
                    event.tool_call_delta.and_then(|raw| self.common.read::<Piece<'_>>(raw));
                self.say(piece.as_ref().map_or("", |p| p.text.get()), sink);
            }
            "stream-end" => {
                if let Some(raw) = event.response {
                    if let Some(response) = self.common.read::<Event<'_>>(raw) {
                        self.whole(&response, sink);
                    }
                }
                self.common.terminated = true;
            }
            // A body is complete, and so are the calls of `tool-calls-generation`.
            "" | "tool-calls-generation" => self.whole(event, sink),
            _ => {}
        }
    }

    /// Takes complete text and calls, unless they were already streamed.
    fn whole(&mut self, event: &Event<'_>, sink: DeltaSink<'_>) {
        self.common.named(None, event.generation_id.filled());
        if self.text.is_empty() {
            self.say(event.text.get(), sink);
        }
        if self.calls.is_empty() {
            let calls = event.tool_calls.and_then(|raw| self.common.read::<List<&RawValue>>(raw));
            for raw in calls.into_iter().flatten() {
                if let Some(call) = self.common.read::<Call<'_>>(raw) {
                    self.call(&call, sink);
                }
            }
        }
        if let Some(meta) = event.meta {
            count(meta, &mut self.common);
        }
        if self.common.finish.is_none() {
            self.common.finish = event.finish_reason.0.clone().map(std::borrow::Cow::into_owned);
        }
    }

    fn say(&mut self, text: &str, sink: DeltaSink<'_>) {
        if !text.is_empty() {
            self.text.push_str(text);
            sink(Delta::Text(text));
        }
    }

    fn call(&mut self, call: &Call<'_>, sink: DeltaSink<'_>) {
        let Some(name) = call.name.filled() else {
            return; // a placeholder without a name, not a call
        };
        let index = self.calls.len();
        // The ids of this format are made from that of the response, which arrives first.
        let of = self.common.id.as_deref();
        let id = of.map(|of| made_id("call_", Some(of), index)).unwrap_or_default();
        sink(Delta::ToolCallStarted { index, id: &id, name });
        let json = call.parameters.map_or("", RawValue::get);
        let json = if json == "null" { "" } else { json };
        if !json.is_empty() {
            sink(Delta::ToolArguments { index, json });
        }
        self.calls.push((name.to_owned(), json.to_owned()));
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let Some(data) = self.common.event_object(data) else {
            return Ok(());
        };
        let mut repaired = String::new();
        let event: Event<'_> = json::event(data, &mut repaired)?;
        // A complete body is an event without a type, so one function handles both.
        let body = event.kind.filled().is_none();
        let said =
            event.text.0.is_some() || event.finish_reason.0.is_some() || event.tool_calls.is_some();
        if name == "error" || body && event.message.filled().is_some() {
            self.common.fail(|| ErrorBody::read(data));
            return Ok(());
        }
        self.take(&event, data, sink);
        // A body without any known field is some other JSON, which must not pass as an empty turn.
        if body && !said && self.common.error.is_none() {
            return Err(serde_json::Error::custom("`text` is missing"));
        }
        self.common.terminated |= body;
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        if !text.trim_start().starts_with('{') {
            return Err(serde_json::Error::custom("expected an object"));
        }
        self.event("", text, &mut |_| ())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, _: &RequestFacts) -> (Common, DecodedTurn) {
        let of = self.common.id.as_deref();
        let mut parts = Vec::with_capacity(self.calls.len() + 1);
        if !self.text.is_empty() {
            parts.push(Part::Text { text: std::mem::take(&mut self.text) });
        }
        for (n, (name, arguments)) in self.calls.into_iter().enumerate() {
            parts.push(Part::ToolCall(ToolCall { id: made_id("call_", of, n), name, arguments }));
        }
        let said = DecodedTurn {
            parts,
            finish: finish_of(WireFormat::CohereV1, self.common.finish.as_deref().unwrap_or("")),
            field: FINISH,
            matched_stop: None,
            // A stop string has its own finish value.
            stop_ambiguous: false,
            metadata: Map::new(),
        };
        (self.common, said)
    }
}
