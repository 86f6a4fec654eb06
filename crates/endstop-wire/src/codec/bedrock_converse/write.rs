//! Writes responses of Converse.

use crate::codec::response::tail::{Blocks, NoEnd, Place, Watch};
use crate::codec::response::write::{
    Closing, Event, NO_USAGE, Response, SIGNATURE, arguments, halves,
};
use endstop_core::Usage;
use serde_json::{Value, json};

pub(super) fn body(response: &Response<'_>) -> Value {
    let mut content = Vec::new();
    if !response.reasoning.is_empty() {
        let text = json!({"text": response.reasoning, "signature": SIGNATURE});
        content.push(json!({"reasoningContent": {"reasoningText": text}}));
    }
    let text = response.text.concat();
    if !text.is_empty() {
        content.push(json!({"text": text}));
    }
    content.extend(response.calls.iter().map(|call| {
        json!({"toolUse": {"toolUseId": call.id, "name": call.name, "input": arguments(call)}})
    }));
    let message = json!({"role": "assistant", "content": content});
    json!({"output": {"message": message}, "stopReason": finish(response),
           "usage": usage(&response.usage), "metrics": {"latencyMs": 0}})
}

fn finish<'a>(response: &Response<'a>) -> &'a str {
    response.finish_or("end_turn", "tool_use")
}

fn usage(used: &Usage) -> Value {
    let (input, output) = (used.input_tokens, used.output_tokens);
    json!({"inputTokens": input, "outputTokens": output,
           "totalTokens": input.unwrap_or(0) + output.unwrap_or(0)})
}

pub(super) fn events(response: &Response<'_>) -> Vec<Event> {
    let mut events = vec![Event::named("messageStart", json!({"role": "assistant"}))];
    let mut index = 0;
    let mut add = |start: Option<Value>, deltas: Vec<Value>| {
        events.extend(start.map(|start| {
            let start = json!({"contentBlockIndex": index, "start": start});
            Event::named("contentBlockStart", start)
        }));
        events.extend(deltas.into_iter().map(|delta| change(index, &delta)));
        events.push(stop_block(index));
        index += 1;
    };
    if !response.reasoning.is_empty() {
        let parts = [("text", response.reasoning), ("signature", SIGNATURE)];
        add(None, parts.map(|(key, text)| json!({"reasoningContent": {key: text}})).into());
    }
    if !response.text.is_empty() {
        add(None, response.text.iter().map(|text| json!({"text": text})).collect());
    }
    for call in response.calls {
        let start = json!({"toolUse": {"toolUseId": call.id, "name": call.name}});
        let deltas = halves(&call.arguments).map(|part| json!({"toolUse": {"input": part}}));
        add(Some(start), deltas.into());
    }
    events.extend(stop(finish(response), &response.usage));
    events
}

fn change(index: u64, delta: &Value) -> Event {
    Event::named("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}))
}

fn stop_block(index: u64) -> Event {
    Event::named("contentBlockStop", json!({"contentBlockIndex": index}))
}

/// Returns the events that end a message.
fn stop(finish: &str, used: &Usage) -> [Event; 2] {
    [
        Event::named("messageStop", json!({"stopReason": finish})),
        Event::named("metadata", json!({"usage": usage(used), "metrics": {"latencyMs": 0}})),
    ]
}

pub(crate) fn error(message: &str, _id: &str) -> Value {
    json!({"message": message})
}

/// Follows a stream.
#[derive(Default)]
pub(super) struct Following(Blocks);

impl Following {
    pub(super) fn start(_: Closing) -> Box<dyn Watch> {
        Box::new(Following::default())
    }
}

impl Watch for Following {
    fn event(&mut self, name: &str, data: &Value) {
        let index = data["contentBlockIndex"].as_u64();
        match name {
            "messageStart" => self.0.begin(),
            "contentBlockStart" => {
                self.0.open(index, false);
                if !data["start"]["toolUse"].is_null() {
                    self.0.close();
                }
            }
            // A text has no event for its beginning, so its deltas open it.
            "contentBlockDelta" => {
                self.0.open(index, !data["delta"]["text"].is_null());
                if !data["delta"]["toolUse"].is_null() {
                    self.0.close();
                }
            }
            "contentBlockStop" => self.0.end(index),
            // The end, or an exception.
            _ => self.0.close(),
        }
    }

    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd> {
        let (index, is_open) = match self.0.place()? {
            Place::Inside(index) => (index, true),
            Place::After(next) => (next, false),
        };
        let mut events = Vec::new();
        if !note.is_empty() {
            events.push(change(index, &json!({"text": note})));
        }
        if is_open || !note.is_empty() {
            events.push(stop_block(index));
        }
        events.extend(stop("end_turn", &NO_USAGE));
        Ok(events)
    }
}
