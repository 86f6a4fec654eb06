//! Encodes a scripted turn in the format of OpenAI's Responses.

use super::parts::halves;
use crate::testkit::Turn;
use serde_json::{Value, json};

/// The statuses that a response may end with. Any other finish value of a script is the reason of
/// an `incomplete` response.
const STATUSES: [&str; 6] =
    ["completed", "incomplete", "failed", "cancelled", "queued", "in_progress"];

/// Returns the status that the response ends with, and the reason if it is incomplete.
fn ending(turn: &Turn) -> (&str, Value) {
    match turn.finish.as_deref() {
        None => ("completed", Value::Null),
        Some(status) if STATUSES.contains(&status) => (status, Value::Null),
        Some(reason) => ("incomplete", json!({"reason": reason})),
    }
}

fn usage(turn: &Turn) -> Value {
    let used = turn.used();
    let (input, output) = (used.input_tokens, used.output_tokens);
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": 0},
           "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0},
           "total_tokens": input.unwrap_or(0) + output.unwrap_or(0)})
}

/// Returns the response object with this status.
fn response(turn: &Turn, status: &str, output: &[Value]) -> Value {
    let ended = status != "in_progress";
    let (details, usage) =
        if ended { (ending(turn).1, usage(turn)) } else { (Value::Null, Value::Null) };
    let error = match status {
        "failed" => json!({"code": "server_error", "message": "The model failed."}),
        _ => Value::Null,
    };
    json!({"id": "resp_script", "object": "response", "created_at": 0, "status": status,
           "background": false, "error": error, "incomplete_details": details,
           "instructions": null, "max_output_tokens": null, "max_tool_calls": null,
           "model": "script", "output": output, "parallel_tool_calls": true,
           "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
           "store": true, "temperature": 1.0, "text": {"format": {"type": "text"}},
           "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled",
           "usage": usage, "user": null, "metadata": {}})
}

/// Returns the completed items of the output.
fn items(turn: &Turn) -> Vec<Value> {
    let mut items = Vec::new();
    if !turn.reasoning.is_empty() {
        items.push(json!({"id": "rs_script", "type": "reasoning",
            "summary": [{"type": "summary_text", "text": turn.reasoning}]}));
    }
    if !turn.text.is_empty() {
        items.push(json!({"id": "msg_script", "type": "message", "status": "completed",
            "content": [text_part(&turn.text)], "role": "assistant"}));
    }
    for (at, (id, name, arguments)) in turn.calls.iter().enumerate() {
        items.push(json!({"id": format!("fc_script_{}", at + 1), "type": "function_call",
            "status": "completed", "arguments": arguments, "call_id": id, "name": name}));
    }
    // Only the last item can be truncated, and items of reasoning have no status.
    let cut = matches!(ending(turn).0, "incomplete");
    if let Some(last) = items.last_mut().filter(|last| cut && last["type"] != "reasoning") {
        last["status"] = "incomplete".into();
    }
    items
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

pub(super) fn body(turn: &Turn) -> Value {
    response(turn, ending(turn).0, &items(turn))
}

pub(crate) fn events(turn: &Turn) -> Vec<String> {
    let mut stream = Stream::default();
    for kind in ["response.created", "response.in_progress"] {
        stream.push(kind, json!({"response": response(turn, "in_progress", &[])}));
    }
    let items = items(turn);
    for (at, item) in items.iter().enumerate() {
        stream.item(turn, at, item);
    }
    let status = ending(turn).0;
    // A status such as `queued` has no final event; such a script ends with `response.completed`.
    let kind = match status {
        "incomplete" => "response.incomplete",
        "failed" => "response.failed",
        _ => "response.completed",
    };
    stream.push(kind, json!({"response": response(turn, status, &items)}));
    stream.events
}

/// Collects events and numbers them in order.
#[derive(Default)]
struct Stream {
    events: Vec<String>,
}

impl Stream {
    fn push(&mut self, kind: &str, fields: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.events.len()});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.events.push(format!("event: {kind}\ndata: {event}\n\n"));
    }

    /// Adds an event about an item or a part of it.
    fn of(&mut self, kind: &str, (at, item): (usize, &Value), fields: Value) {
        let mut event = json!({"item_id": item["id"], "output_index": at});
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.push(kind, event);
    }

    /// Adds all events of an item: start, deltas and end.
    fn item(&mut self, turn: &Turn, at: usize, item: &Value) {
        // The start event shows the item without the content that the deltas then add.
        let mut begun = item.clone();
        match item["type"].as_str().unwrap_or_default() {
            "reasoning" => begun["summary"] = json!([]),
            "message" => begun["content"] = json!([]),
            _ => begun["arguments"] = "".into(),
        }
        if !item["status"].is_null() {
            begun["status"] = "in_progress".into();
        }
        self.push("response.output_item.added", json!({"output_index": at, "item": begun}));
        let place = (at, item);
        match item["type"].as_str().unwrap_or_default() {
            "reasoning" => {
                let index = json!({"summary_index": 0});
                let with = |name: &str, value: Value| {
                    let mut fields = index.clone();
                    fields[name] = value;
                    fields
                };
                let part = |text: &str| json!({"type": "summary_text", "text": text});
                let kind = |end: &str| format!("response.reasoning_summary_{end}");
                self.of(&kind("part.added"), place, with("part", part("")));
                for piece in halves(&turn.reasoning) {
                    self.of(&kind("text.delta"), place, with("delta", piece.into()));
                }
                let whole = turn.reasoning.as_str();
                self.of(&kind("text.done"), place, with("text", whole.into()));
                self.of(&kind("part.done"), place, with("part", part(whole)));
            }
            "message" => {
                let part = |text: &str| json!({"content_index": 0, "part": text_part(text)});
                self.of("response.content_part.added", place, part(""));
                for word in turn.words() {
                    let delta = json!({"content_index": 0, "delta": word, "logprobs": []});
                    self.of("response.output_text.delta", place, delta);
                }
                let whole = json!({"content_index": 0, "text": turn.text, "logprobs": []});
                self.of("response.output_text.done", place, whole);
                self.of("response.content_part.done", place, part(&turn.text));
            }
            _ => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                for piece in halves(arguments) {
                    let delta = json!({"delta": piece});
                    self.of("response.function_call_arguments.delta", place, delta);
                }
                let whole = json!({"arguments": arguments});
                self.of("response.function_call_arguments.done", place, whole);
            }
        }
        self.push("response.output_item.done", json!({"output_index": at, "item": item}));
    }
}
