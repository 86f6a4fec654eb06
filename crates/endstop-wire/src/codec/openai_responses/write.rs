//! Writes responses of the Responses API. The closing event of a stream repeats the whole output.

use crate::codec::response::tail::{NoEnd, Progress, Watch};
use crate::codec::response::write::{Closing, Event, NO_USAGE, Response, extended, halves};
use endstop_core::Usage;
use serde_json::{Value, json};

/// The statuses that a response may end with. Another finish value is the reason of an
/// `incomplete` response.
const STATUSES: [&str; 6] =
    ["completed", "incomplete", "failed", "cancelled", "queued", "in_progress"];

/// Returns the status that the response ends with, and the reason if it is incomplete.
fn ending<'a>(response: &Response<'a>) -> (&'a str, Value) {
    match response.finish {
        None => ("completed", Value::Null),
        Some(status) if STATUSES.contains(&status) => (status, Value::Null),
        Some(reason) => ("incomplete", json!({"reason": reason})),
    }
}

pub(super) fn body(response: &Response<'_>) -> Value {
    let (status, details) = ending(response);
    let error = match status {
        "failed" => json!({"code": "server_error", "message": "The model failed."}),
        _ => Value::Null,
    };
    let mut body = object(response, status, &json!(items(response)));
    body["error"] = error;
    body["incomplete_details"] = details;
    body["usage"] = usage(&response.usage);
    body
}

/// Returns the response object, as it is at the beginning of a stream. The usage is known at the end only.
fn object(response: &Response<'_>, status: &str, output: &Value) -> Value {
    json!({
        "id": format!("resp_{}", response.id), "object": "response",
        "created_at": response.unix_seconds, "status": status, "model": response.model,
        "output": output, "error": null, "incomplete_details": null, "instructions": null,
        "metadata": {}, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "temperature": 1.0, "top_p": 1.0, "usage": null
    })
}

fn usage(used: &Usage) -> Value {
    let (input, output) = (used.input_tokens, used.output_tokens);
    json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.unwrap_or(0) + output.unwrap_or(0)
    })
}

/// Returns the finished items of the output.
fn items(response: &Response<'_>) -> Vec<Value> {
    let mut items = Vec::new();
    if !response.reasoning.is_empty() {
        items.push(json!({"id": format!("rs_{}", response.id), "type": "reasoning",
                          "summary": [summary(response.reasoning)]}));
    }
    let text = response.text.concat();
    if !text.is_empty() {
        items.push(message(&format!("msg_{}", response.id), &text));
    }
    for (at, call) in response.calls.iter().enumerate() {
        items.push(json!({"id": format!("fc_{}_{}", response.id, at + 1), "type": "function_call",
                          "status": "completed", "arguments": call.arguments,
                          "call_id": call.id, "name": call.name}));
    }
    // Only the last item can be truncated, and items of reasoning have no status.
    let is_cut = ending(response).0 == "incomplete";
    if let Some(last) = items.last_mut().filter(|last| is_cut && last["type"] != "reasoning") {
        last["status"] = "incomplete".into();
    }
    items
}

fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// Returns a finished message.
fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
           "content": [text_part(text)]})
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

pub(super) fn events(response: &Response<'_>) -> Vec<Event> {
    let begun = object(response, "in_progress", &json!([]));
    let mut events = Numbered::after(0);
    events.add("response.created", json!({"response": begun}));
    events.add("response.in_progress", json!({"response": begun}));
    for (at, item) in items(response).iter().enumerate() {
        events.item(response, at as u64, item);
    }
    // A status such as `queued` has no closing event of its own.
    let kind = match ending(response).0 {
        "incomplete" => "response.incomplete",
        "failed" => "response.failed",
        _ => "response.completed",
    };
    events.add(kind, json!({"response": body(response)}));
    events.events
}

/// Events with their sequence numbers.
struct Numbered {
    number: u64,
    events: Vec<Event>,
}

impl Numbered {
    /// Starts after this number.
    fn after(number: u64) -> Numbered {
        Numbered { number, events: Vec::new() }
    }

    /// Adds an event with these members.
    fn add(&mut self, kind: &'static str, members: Value) {
        // SDKs check that the numbers rise.
        self.number += 1;
        let number = json!({"sequence_number": self.number});
        self.events.push(Event::typed(kind, extended(number, members)));
    }

    /// Adds all events of a finished item: its beginning, its deltas and its end.
    fn item(&mut self, response: &Response<'_>, index: u64, item: &Value) {
        let id = item["id"].as_str().unwrap_or_default();
        let place = |more: Value| extended(json!({"item_id": id, "output_index": index}), more);
        let mut begun = item.clone();
        if !item["status"].is_null() {
            begun["status"] = "in_progress".into();
        }
        let content = match item["type"].as_str().unwrap_or_default() {
            "reasoning" => "summary",
            "message" => "content",
            _ => "arguments",
        };
        begun[content] = if content == "arguments" { json!("") } else { json!([]) };
        self.add("response.output_item.added", json!({"output_index": index, "item": begun}));
        match content {
            "summary" => {
                let part = |more: Value| place(extended(json!({"summary_index": 0}), more));
                let added = part(json!({"part": summary("")}));
                self.add("response.reasoning_summary_part.added", added);
                for piece in halves(response.reasoning) {
                    let delta = part(json!({"delta": piece}));
                    self.add("response.reasoning_summary_text.delta", delta);
                }
                let text = part(json!({"text": response.reasoning}));
                self.add("response.reasoning_summary_text.done", text);
                let done = part(json!({"part": summary(response.reasoning)}));
                self.add("response.reasoning_summary_part.done", done);
                self.end_item(index, item);
            }
            "content" => {
                self.begin_part(index, id);
                for text in response.text {
                    self.text(index, id, text);
                }
                self.end_message(index, item);
            }
            _ => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                for piece in halves(arguments) {
                    let delta = place(json!({"delta": piece}));
                    self.add("response.function_call_arguments.delta", delta);
                }
                let whole = place(json!({"arguments": arguments}));
                self.add("response.function_call_arguments.done", whole);
                self.end_item(index, item);
            }
        }
    }

    /// Begins a text in a message.
    fn begin_part(&mut self, index: u64, id: &str) {
        let part = json!({"part": text_part("")});
        self.add("response.content_part.added", in_message(index, id, part));
    }

    /// Adds a text, unless it is empty.
    fn text(&mut self, index: u64, id: &str, text: &str) {
        if !text.is_empty() {
            let delta = in_message(index, id, json!({"delta": text, "logprobs": []}));
            self.add("response.output_text.delta", delta);
        }
    }

    /// Ends the text of a finished message, and the message.
    fn end_message(&mut self, index: u64, item: &Value) {
        let id = item["id"].as_str().unwrap_or_default();
        let part = &item["content"][0];
        let text = json!({"text": part["text"], "logprobs": []});
        self.add("response.output_text.done", in_message(index, id, text));
        let done = in_message(index, id, json!({"part": part}));
        self.add("response.content_part.done", done);
        self.end_item(index, item);
    }

    fn end_item(&mut self, index: u64, item: &Value) {
        self.add("response.output_item.done", json!({"output_index": index, "item": item}));
    }
}

/// Returns the place of a message's first part, and more members.
fn in_message(index: u64, id: &str, more: Value) -> Value {
    extended(json!({"item_id": id, "output_index": index, "content_index": 0}), more)
}

/// The most bytes of output that are kept of a stream. A longer answer cannot be ended cleanly.
const MOST: usize = 16 << 20;

/// Writes OpenAI's error for a response that is not stored.
pub(super) fn unknown_response(message: &str) -> Value {
    json!({"error": {
        "message": message,
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }})
}

/// Follows a stream, and keeps its output for the closing event.
pub(super) struct Following {
    closing: Closing,
    progress: Progress,
    /// The response as its first event had it.
    response: Value,
    done: Vec<Value>,
    open: Open,
    /// Bytes of the finished items and of the open text.
    bytes: usize,
    number: u64,
}

/// The item that is being written.
enum Open {
    Nothing,
    /// A message, with its text and `true` if a part for the text has started.
    Message {
        index: u64,
        id: String,
        text: String,
        part: bool,
    },
    /// Reasoning, or a second part of a message.
    Other,
}

impl Following {
    pub(super) fn start(closing: Closing) -> Box<dyn Watch> {
        Box::new(Following {
            closing,
            progress: Progress::Before,
            response: Value::Null,
            done: Vec::new(),
            open: Open::Nothing,
            bytes: 0,
            number: 0,
        })
    }

    fn item_added(&mut self, data: &Value) {
        let item = &data["item"];
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let index = data["output_index"].as_u64().unwrap_or(self.done.len() as u64);
        self.open = match item["type"].as_str() {
            Some("message") => Open::Message { index, id, text: String::new(), part: false },
            Some("reasoning") => Open::Other,
            _ => {
                self.progress = Progress::Closed;
                Open::Other
            }
        };
    }

    fn part_added(&mut self, data: &Value) {
        // A second part would have to be repeated at the end of its item.
        let first = data["content_index"].as_u64() == Some(0);
        match &mut self.open {
            Open::Message { part, .. } if first && data["part"]["type"] == "output_text" => {
                *part = true;
            }
            Open::Message { .. } => self.open = Open::Other,
            _ => {}
        }
    }

    fn keep(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST {
            self.progress = Progress::Closed;
        }
    }
}

impl Watch for Following {
    fn event(&mut self, _name: &str, data: &Value) {
        self.number = self.number.max(data["sequence_number"].as_u64().unwrap_or(0));
        match data["type"].as_str().unwrap_or_default() {
            "response.created" => {
                self.response = data["response"].clone();
                self.keep(self.response.to_string().len());
                self.progress.advance(Progress::Text);
            }
            "response.output_item.added" => self.item_added(data),
            "response.content_part.added" => self.part_added(data),
            "response.output_text.delta" => {
                let delta = data["delta"].as_str().unwrap_or_default();
                if let Open::Message { text, .. } = &mut self.open {
                    text.push_str(delta);
                }
                self.keep(delta.len());
            }
            // The text is complete, so nothing can be added before its item is.
            "response.output_text.done" => self.open = Open::Other,
            "response.output_item.done" => {
                self.keep(data["item"].to_string().len());
                if self.progress != Progress::Closed {
                    self.done.push(data["item"].clone());
                }
                self.open = Open::Nothing;
            }
            "response.completed" | "response.incomplete" | "response.failed" | "error" => {
                self.progress = Progress::Closed;
            }
            _ => {}
        }
    }

    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd> {
        self.progress.can_end()?;
        let mut events = Numbered::after(self.number);
        let mut output = self.done.clone();
        match &self.open {
            Open::Other => return Err(NoEnd::Yet),
            // The finished items are a whole answer.
            Open::Nothing if note.is_empty() => {}
            Open::Nothing => {
                // SDKs reject a stream with two items of one id.
                let whole = message(&format!("msg_{}_end", self.closing.id), note);
                let index = output.len() as u64;
                self.closing.write(note, |rest| events.item(rest, index, &whole));
                output.push(whole);
            }
            Open::Message { index, id, text, part } => {
                if !part {
                    events.begin_part(*index, id);
                }
                events.text(*index, id, note);
                let whole = message(id, &format!("{text}{note}"));
                events.end_message(*index, &whole);
                output.push(whole);
            }
        }
        let mut response = self.response.clone();
        if let Some(members) = response.as_object_mut() {
            members.insert("status".into(), json!("completed"));
            members.insert("output".into(), Value::Array(output));
            members.insert("usage".into(), usage(&NO_USAGE));
        }
        events.add("response.completed", json!({"response": response}));
        Ok(events.events)
    }
}
