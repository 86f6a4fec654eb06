//! Writes responses of `generateContent`.

use crate::codec::response::tail::{NoEnd, Progress, Watch};
use crate::codec::response::write::{Closing, Event, Response, SIGNATURE, arguments};
use serde_json::{Value, json};

pub(super) fn body(response: &Response<'_>) -> Value {
    let text = response.text.concat();
    object(response, &parts(response, &[&text]), true)
}

/// Returns the parts of a message with these chunks of text.
fn parts(response: &Response<'_>, text: &[&str]) -> Vec<Value> {
    let mut parts = Vec::new();
    if !response.reasoning.is_empty() {
        parts.push(json!({"text": response.reasoning, "thought": true}));
    }
    parts.extend(text.iter().filter(|text| !text.is_empty()).map(|text| json!({"text": text})));
    for (at, call) in response.calls.iter().enumerate() {
        // Arguments are an object, also in a stream, so that they cannot be truncated.
        let mut part = json!({"functionCall": {"name": call.name, "args": arguments(call)}});
        // A model that has reasoned signs the first call.
        if at == 0 && !response.reasoning.is_empty() {
            part["thoughtSignature"] = SIGNATURE.into();
        }
        parts.push(part);
    }
    parts
}

fn object(response: &Response<'_>, parts: &[Value], is_last: bool) -> Value {
    let used = &response.usage;
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}});
    if is_last {
        candidate["finishReason"] = response.finish_or("STOP", "STOP").into();
    }
    candidate["index"] = 0.into();
    json!({
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": used.input_tokens,
                          "candidatesTokenCount": used.output_tokens,
                          "totalTokenCount": response.total_tokens()},
        "modelVersion": response.model, "responseId": response.id
    })
}

pub(super) fn events(response: &Response<'_>) -> Vec<Event> {
    let event = |parts: &[Value], is_last| Event::unnamed(object(response, parts, is_last));
    let parts = parts(response, response.text);
    // A short answer is one chunk. Otherwise the finish reason comes after the content, with an empty text.
    match parts.as_slice() {
        [only] if only.get("functionCall").is_none() => vec![event(&parts, true)],
        _ => {
            let content = parts.chunks(1).map(|part| event(part, false));
            content.chain([event(&[json!({"text": ""})], true)]).collect()
        }
    }
}

/// Returns a server-sent event. Google's servers end lines with CR LF.
pub(super) fn frame(event: &Event) -> Vec<u8> {
    format!("data: {}\r\n\r\n", event.text()).into_bytes()
}

pub(super) fn error(message: &str, _id: &str) -> Value {
    json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
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
        if !data["error"].is_null() {
            self.progress = Progress::Closed;
        }
        for candidate in data["candidates"].as_array().into_iter().flatten() {
            let parts = candidate["content"]["parts"].as_array();
            let calls = parts.into_iter().flatten().any(|part| !part["functionCall"].is_null());
            if calls || !candidate["finishReason"].is_null() {
                self.progress = Progress::Closed;
            }
        }
    }

    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd> {
        self.progress.can_end()?;
        Ok(self.closing.write(note, events))
    }
}
