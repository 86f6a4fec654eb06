//! Writes responses of `/api/chat`.

use crate::codec::response::tail::{NoEnd, Progress, Watch};
use crate::codec::response::write::{Closing, Event, Response, arguments};
use serde_json::{Value, json};

pub(super) fn body(response: &Response<'_>) -> Value {
    let mut message = said(&response.text.concat());
    if !response.reasoning.is_empty() {
        message["thinking"] = response.reasoning.into();
    }
    if !response.calls.is_empty() {
        message["tool_calls"] = calls(response);
    }
    last(response, &message)
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn calls(response: &Response<'_>) -> Value {
    // Arguments are an object, also in a stream, so that they cannot be truncated.
    let calls = response.calls.iter();
    calls
        .map(|call| json!({"function": {"name": call.name, "arguments": arguments(call)}}))
        .collect()
}

fn object(response: &Response<'_>, message: &Value, is_done: bool) -> Value {
    // Ollama requires a time; the response's is in seconds, and no client shows it.
    json!({"model": response.model, "created_at": "1970-01-01T00:00:00Z", "message": message,
           "done": is_done})
}

/// Returns the last object of a response, with the finish reason and the usage.
fn last(response: &Response<'_>, message: &Value) -> Value {
    let mut last = object(response, message, true);
    // `stop` also ends a turn with calls.
    last["done_reason"] = response.finish_or("stop", "stop").into();
    last["total_duration"] = 0.into();
    last["prompt_eval_count"] = json!(response.usage.input_tokens);
    last["eval_count"] = json!(response.usage.output_tokens);
    last
}

pub(super) fn events(response: &Response<'_>) -> Vec<Event> {
    let mut messages = Vec::new();
    if !response.reasoning.is_empty() {
        messages.push(json!({"role": "assistant", "content": "", "thinking": response.reasoning}));
    }
    messages.extend(response.text.iter().map(|text| said(text)));
    if !response.calls.is_empty() {
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": calls(response)}));
    }
    let lines = messages.iter().map(|message| object(response, message, false));
    lines.chain([last(response, &said(""))]).map(Event::unnamed).collect()
}

pub(super) fn frame(event: &Event) -> Vec<u8> {
    format!("{}\n", event.text()).into_bytes()
}

pub(super) fn error(message: &str, _id: &str) -> Value {
    json!({"error": message})
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

impl Watch for Following {
    fn event(&mut self, _name: &str, data: &Value) {
        self.progress.advance(Progress::Text);
        let calls = data["message"]["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if calls || data["done"] == true || !data["error"].is_null() {
            self.progress = Progress::Closed;
        }
    }

    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd> {
        self.progress.can_end()?;
        Ok(self.closing.write(note, events))
    }
}
