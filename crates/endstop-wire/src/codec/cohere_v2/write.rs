//! Writes responses of `/v2/chat`. In a turn with calls the reasoning is the plan, otherwise a block of thinking.

use crate::codec::response::tail::{Blocks, NoEnd, Place, Watch};
use crate::codec::response::write::{Closing, DONE, Event, NO_USAGE, Response, halves};
use endstop_core::{ToolCall, Usage};
use serde_json::{Value, json};

pub(super) fn body(response: &Response<'_>) -> Value {
    let mut message = json!({"role": "assistant"});
    let mut content = Vec::new();
    if !response.calls.is_empty() {
        message["tool_plan"] = response.reasoning.into();
        message["tool_calls"] =
            response.calls.iter().map(|one| call(one, &one.arguments)).collect();
    } else if !response.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": response.reasoning}));
    }
    let text = response.text.concat();
    if !text.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    if !content.is_empty() {
        message["content"] = content.into();
    }
    json!({"id": response.id, "message": message, "finish_reason": finish(response),
           "usage": usage(&response.usage)})
}

fn call(call: &ToolCall, arguments: &str) -> Value {
    let function = json!({"name": call.name, "arguments": arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

fn finish<'a>(response: &Response<'a>) -> &'a str {
    response.finish_or("COMPLETE", "TOOL_CALL")
}

fn usage(used: &Usage) -> Value {
    let tokens = json!({"input_tokens": used.input_tokens, "output_tokens": used.output_tokens});
    json!({"billed_units": tokens, "tokens": tokens})
}

pub(super) fn events(response: &Response<'_>) -> Vec<Event> {
    let message = json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [],
                         "citations": []});
    let start = json!({"id": response.id, "type": "message-start", "delta": {"message": message}});
    let mut events = vec![Event::named("message-start", start)];
    let mut index = 0;
    let mut add = |kind: &str, pieces: &[&str]| {
        events.push(begin(index, kind));
        events.extend(pieces.iter().map(|piece| change(index, kind, piece)));
        events.push(stop_block(index));
        index += 1;
    };
    if response.calls.is_empty() && !response.reasoning.is_empty() {
        add("thinking", &[response.reasoning]);
    }
    if !response.text.is_empty() {
        add("text", response.text);
    }
    if !response.calls.is_empty() && !response.reasoning.is_empty() {
        let plan = json!({"message": {"tool_plan": response.reasoning}});
        events.push(Event::typed("tool-plan-delta", json!({"delta": plan})));
    }
    for (index, one) in response.calls.iter().enumerate() {
        let place =
            |call: Value| json!({"index": index, "delta": {"message": {"tool_calls": call}}});
        // The start has empty arguments, which the deltas fill.
        events.push(Event::typed("tool-call-start", place(call(one, ""))));
        for part in halves(&one.arguments) {
            let part = json!({"function": {"arguments": part}});
            events.push(Event::typed("tool-call-delta", place(part)));
        }
        events.push(Event::typed("tool-call-end", json!({"index": index})));
    }
    events.extend(stop(finish(response), &response.usage));
    events
}

fn begin(index: u64, kind: &str) -> Event {
    let content = json!({"message": {"content": {"type": kind, kind: ""}}});
    Event::typed("content-start", json!({"index": index, "delta": content}))
}

fn change(index: u64, kind: &str, piece: &str) -> Event {
    let content = json!({"message": {"content": {kind: piece}}});
    Event::typed("content-delta", json!({"index": index, "delta": content}))
}

fn stop_block(index: u64) -> Event {
    Event::typed("content-end", json!({"index": index}))
}

/// Returns the end of a stream.
fn stop(finish: &str, used: &Usage) -> [Event; 2] {
    let delta = json!({"finish_reason": finish, "usage": usage(used)});
    [Event::typed("message-end", json!({"delta": delta})), DONE]
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
    fn event(&mut self, _name: &str, data: &Value) {
        let index = data["index"].as_u64();
        match data["type"].as_str().unwrap_or_default() {
            "message-start" => self.0.begin(),
            "content-start" => {
                let kind = &data["delta"]["message"]["content"]["type"];
                self.0.open(index, kind == "text");
            }
            "content-end" => self.0.end(index),
            "content-delta" | "citation-start" | "citation-end" => {}
            // A plan for calls, a call, the end of the turn, or an error.
            _ => self.0.close(),
        }
    }

    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd> {
        let mut events = Vec::new();
        let (index, is_open) = match self.0.place()? {
            Place::Inside(index) => (index, true),
            Place::After(next) => (next, false),
        };
        // Between two blocks, the finished ones are a whole answer.
        if is_open || !note.is_empty() {
            if !is_open {
                events.push(begin(index, "text"));
            }
            if !note.is_empty() {
                events.push(change(index, "text", note));
            }
            events.push(stop_block(index));
        }
        events.extend(stop("COMPLETE", &NO_USAGE));
        Ok(events)
    }
}
