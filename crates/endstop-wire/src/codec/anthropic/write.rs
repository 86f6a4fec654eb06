//! Writes responses of the Messages API.

use crate::codec::response::tail::{Blocks, NoEnd, Place, Watch};
use crate::codec::response::write::{Closing, Event, Response, SIGNATURE, arguments, halves};
use endstop_core::Usage;
use serde_json::{Value, json};

pub(crate) fn body(response: &Response<'_>) -> Value {
    let mut content = Vec::new();
    if !response.reasoning.is_empty() {
        content.push(
            json!({"type": "thinking", "thinking": response.reasoning, "signature": SIGNATURE}),
        );
    }
    let text = response.text.concat();
    if !text.is_empty() {
        content.push(json!({"type": "text", "text": text}));
    }
    content.extend(response.calls.iter().map(|call| {
        json!({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments(call)})
    }));
    message(response, &json!(content), &json!(finish(response)), response.usage.output_tokens)
}

fn message(response: &Response<'_>, content: &Value, stop: &Value, output: Option<u64>) -> Value {
    json!({
        "id": format!("msg_{}", response.id), "type": "message", "role": "assistant",
        "model": response.model, "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": usage(&response.usage, output)
    })
}

/// Returns the usage. Anthropic's input tokens do not include the cached ones.
fn usage(used: &Usage, output: Option<u64>) -> Value {
    let (written, read) = (used.cache_write_tokens, used.cached_input_tokens);
    let cached = written.unwrap_or(0) + read.unwrap_or(0);
    let input = used
        .input_tokens
        .map(|all| if used.cache_apart { all } else { all.saturating_sub(cached) });
    let mut usage = json!({"input_tokens": input});
    for (name, count) in
        [("cache_creation_input_tokens", written), ("cache_read_input_tokens", read)]
    {
        if let Some(count) = count {
            usage[name] = count.into();
        }
    }
    usage["output_tokens"] = json!(output);
    usage
}

fn finish<'a>(response: &Response<'a>) -> &'a str {
    response.finish_or("end_turn", "tool_use")
}

pub(crate) fn events(response: &Response<'_>) -> Vec<Event> {
    // The start has a preliminary output count, which `message_delta` replaces.
    let begun = response.usage.output_tokens.map(|output| output.min(1));
    let start = message(response, &json!([]), &Value::Null, begun);
    let mut events = vec![Event::typed("message_start", json!({"message": start}))];
    let mut index = 0;
    let mut add = |start: Value, deltas: Vec<Value>| {
        events.push(begin(index, &start));
        events.extend(deltas.iter().map(|delta| change(index, delta)));
        events.push(stop_block(index));
        index += 1;
    };
    if !response.reasoning.is_empty() {
        let deltas = vec![
            json!({"type": "thinking_delta", "thinking": response.reasoning}),
            json!({"type": "signature_delta", "signature": SIGNATURE}),
        ];
        add(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
    }
    if !response.text.is_empty() {
        add(empty_text(), response.text.iter().map(|text| text_delta(text)).collect());
    }
    for call in response.calls {
        let start = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        let part = |part: &str| json!({"type": "input_json_delta", "partial_json": part});
        add(start, halves(&call.arguments).map(part).into());
    }
    events.extend(stop(finish(response), response.usage.output_tokens));
    events
}

fn empty_text() -> Value {
    json!({"type": "text", "text": ""})
}

fn text_delta(text: &str) -> Value {
    json!({"type": "text_delta", "text": text})
}

fn begin(index: u64, block: &Value) -> Event {
    Event::typed("content_block_start", json!({"index": index, "content_block": block}))
}

fn change(index: u64, delta: &Value) -> Event {
    Event::typed("content_block_delta", json!({"index": index, "delta": delta}))
}

fn stop_block(index: u64) -> Event {
    Event::typed("content_block_stop", json!({"index": index}))
}

/// Returns the events that end a message.
fn stop(finish: &str, output: Option<u64>) -> [Event; 2] {
    let delta = json!({"stop_reason": finish, "stop_sequence": null});
    let usage = json!({"output_tokens": output});
    [
        Event::typed("message_delta", json!({"delta": delta, "usage": usage})),
        Event::typed("message_stop", json!({})),
    ]
}

pub(super) fn error(message: &str, id: &str) -> Value {
    let error = json!({"type": "invalid_request_error", "message": message});
    json!({"type": "error", "error": error, "request_id": format!("req_{id}")})
}

/// Writes Anthropic's error for a thread that cannot be continued.
pub(super) fn unknown_response(message: &str) -> Value {
    let details = json!({"error_code": "thread_unsupported_request"});
    json!({
        "type": "error",
        "error": {"type": "invalid_request_error", "message": message, "details": details}
    })
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
            "message_start" => self.0.begin(),
            "content_block_start" => {
                let kind = data["content_block"]["type"].as_str().unwrap_or_default();
                // The client would run the call, whole or not.
                if kind == "tool_use" {
                    self.0.close();
                }
                self.0.open(index, kind == "text");
            }
            "content_block_stop" => self.0.end(index),
            "message_delta" | "message_stop" | "error" => self.0.close(),
            _ => {}
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
                events.push(begin(index, &empty_text()));
            }
            if !note.is_empty() {
                events.push(change(index, &text_delta(note)));
            }
            events.push(stop_block(index));
        }
        events.extend(stop("end_turn", Some(0)));
        Ok(events)
    }
}
