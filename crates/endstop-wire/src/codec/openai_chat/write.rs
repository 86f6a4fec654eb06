//! Writes responses of Chat Completions.

use crate::codec::response::tail::{NoEnd, Progress, Watch};
use crate::codec::response::write::{Closing, DONE, Event, Response, halves};
use serde_json::{Value, json};

/// The prefix of the ids of responses.
const PREFIX: &str = "chatcmpl-";

pub(super) fn body(response: &Response<'_>) -> Value {
    let mut message = json!({"role": "assistant", "content": response.text.concat()});
    if !response.reasoning.is_empty() {
        message["reasoning_content"] = response.reasoning.into();
    }
    if !response.calls.is_empty() {
        let call = |call: &endstop_core::ToolCall| {
            let function = json!({"name": call.name, "arguments": call.arguments});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message["tool_calls"] = response.calls.iter().map(call).collect();
    }
    json!({
        "id": id(response), "object": "chat.completion", "created": response.unix_seconds,
        "model": response.model, "usage": usage(response),
        "choices": [{"index": 0, "message": message, "finish_reason": finish(response)}]
    })
}

pub(super) fn events(response: &Response<'_>) -> Vec<Event> {
    let first = json!({"role": "assistant", "content": ""});
    let mut events = vec![chunk(response, &first, &Value::Null)];
    events.extend(rest(response));
    events
}

/// Returns the events after the first: the content, and the end.
fn rest(response: &Response<'_>) -> Vec<Event> {
    let mut deltas = Vec::new();
    if !response.reasoning.is_empty() {
        deltas.push(json!({"reasoning_content": response.reasoning}));
    }
    deltas.extend(response.text.iter().map(|text| json!({"content": text})));
    for (index, call) in response.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        deltas.push(json!({"tool_calls": [{"index": index, "id": call.id, "type": "function",
                                           "function": function}]}));
        deltas.extend(halves(&call.arguments).map(
            |part| json!({"tool_calls": [{"index": index, "function": {"arguments": part}}]}),
        ));
    }
    let mut events: Vec<Event> =
        deltas.iter().map(|delta| chunk(response, delta, &Value::Null)).collect();
    events.push(chunk(response, &json!({}), &json!(finish(response))));
    // Clients that asked for usage wait for a chunk without choices.
    if !response.omits_usage {
        events.push(Event::unnamed(object(response, &json!([]), Some(usage(response)))));
    }
    events.push(DONE);
    events
}

fn chunk(response: &Response<'_>, delta: &Value, finish: &Value) -> Event {
    let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    Event::unnamed(object(response, &choices, None))
}

fn object(response: &Response<'_>, choices: &Value, usage: Option<Value>) -> Value {
    let mut object = json!({
        "id": id(response), "object": "chat.completion.chunk", "created": response.unix_seconds,
        "model": response.model, "choices": choices
    });
    if let Some(usage) = usage {
        object["usage"] = usage;
    }
    object
}

/// Returns the id. A stream that is cut has one with its prefix already.
fn id(response: &Response<'_>) -> String {
    if response.id.starts_with(PREFIX) {
        response.id.to_owned()
    } else {
        format!("{PREFIX}{}", response.id)
    }
}

fn finish<'a>(response: &Response<'a>) -> &'a str {
    response.finish_or("stop", "tool_calls")
}

fn usage(response: &Response<'_>) -> Value {
    let used = &response.usage;
    json!({"prompt_tokens": used.input_tokens, "completion_tokens": used.output_tokens,
           "total_tokens": response.total_tokens()})
}

pub(crate) fn error(message: &str, _id: &str) -> Value {
    let kind = "invalid_request_error";
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}

/// Follows a stream.
pub(super) struct Following {
    closing: Closing,
    progress: Progress,
}

impl Following {
    pub(super) fn start(closing: Closing) -> Box<dyn Watch> {
        Box::new(Following { closing, progress: Progress::Before })
    }
}

/// The longest id or name that is taken from a stream, in bytes.
const LONGEST: usize = 256;

impl Watch for Following {
    fn event(&mut self, _name: &str, data: &Value) {
        if self.progress == Progress::Before {
            let text = |name: &str| data[name].as_str().filter(|text| text.len() <= LONGEST);
            // The closing chunks repeat the id of the stream.
            if let Some(id) = text("id").filter(|id| id.starts_with(PREFIX)) {
                id.clone_into(&mut self.closing.id);
            }
            if let Some(model) = text("model") {
                model.clone_into(&mut self.closing.model);
            }
            self.closing.unix_seconds =
                data["created"].as_u64().unwrap_or(self.closing.unix_seconds);
        }
        self.progress.advance(Progress::Text);
        if !data["error"].is_null() {
            self.progress = Progress::Closed;
        }
        for choice in data["choices"].as_array().into_iter().flatten() {
            let delta = &choice["delta"];
            let calls = delta["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
            // Only the first of several answers could be ended.
            let another = choice["index"].as_u64().is_some_and(|index| index > 0);
            // The provider has ended the answer itself.
            let over = !choice["finish_reason"].is_null();
            if calls || !delta["function_call"].is_null() || another || over {
                self.progress = Progress::Closed;
            }
        }
    }

    fn other(&mut self, data: &str) {
        if data.trim() == "[DONE]" {
            self.progress = Progress::Closed;
        }
    }

    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd> {
        self.progress.can_end()?;
        Ok(self.closing.write(note, rest))
    }
}
