//! A final text in OpenAI Responses.

use super::final_text::FinalText;
use crate::exchange::answer::deliver::Event;
use serde_json::{Value, json};

pub(super) fn body(turn: FinalText<'_>) -> Value {
    response(turn, "completed", &json!([item(&item_id(turn), turn.text)]))
}

fn item_id(turn: FinalText<'_>) -> String {
    format!("msg_{}", turn.id)
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

/// Returns a whole message item.
pub(crate) fn item(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
           "content": [text_part(text)]})
}

fn response(turn: FinalText<'_>, status: &str, output: &Value) -> Value {
    // The usage is known at the end only.
    let usage = if status == "completed" { usage() } else { Value::Null };
    json!({
        "id": format!("resp_{}", turn.id), "object": "response", "created_at": turn.at,
        "status": status, "model": turn.model, "output": output, "error": null,
        "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": 1.0,
        "top_p": 1.0, "usage": usage
    })
}

/// Returns a usage of 0.
pub(crate) fn usage() -> Value {
    json!({
        "input_tokens": 0, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0
    })
}

pub(super) fn events(turn: FinalText<'_>) -> Vec<Event> {
    let id = item_id(turn);
    let begun = response(turn, "in_progress", &json!([]));
    let mut numbered = Numbered::after(0);
    numbered.add("response.created", json!({"response": begun}));
    numbered.add("response.in_progress", json!({"response": begun}));
    numbered.begin_item(0, &id);
    numbered.text(0, 0, &id, turn.text);
    numbered.end_item(0, 0, &id, turn.text);
    numbered.add("response.completed", json!({"response": body(turn)}));
    numbered.events
}

/// Events with their sequence numbers.
pub(crate) struct Numbered {
    number: u64,
    pub(crate) events: Vec<Event>,
}

impl Numbered {
    /// Starts after this number.
    pub(crate) fn after(number: u64) -> Numbered {
        Numbered { number, events: Vec::new() }
    }

    /// Adds an event with these members.
    pub(crate) fn add(&mut self, kind: &'static str, members: Value) {
        // SDKs check that the numbers rise.
        self.number += 1;
        let mut event = json!({"type": kind, "sequence_number": self.number});
        if let (Some(event), Value::Object(members)) = (event.as_object_mut(), members) {
            event.extend(members);
        }
        self.events.push((kind, event));
    }

    /// Begins a message item with one text.
    pub(crate) fn begin_item(&mut self, index: u64, id: &str) {
        let mut begun = item(id, "");
        begun["status"] = json!("in_progress");
        begun["content"] = json!([]);
        self.add("response.output_item.added", json!({"output_index": index, "item": begun}));
        self.begin_part(index, 0, id);
    }

    /// Begins a text in an item.
    pub(crate) fn begin_part(&mut self, index: u64, part: u64, id: &str) {
        self.add(
            "response.content_part.added",
            json!({"item_id": id, "output_index": index, "content_index": part, "part": text_part("")}),
        );
    }

    /// Adds a text, unless it is empty.
    pub(crate) fn text(&mut self, index: u64, part: u64, id: &str, text: &str) {
        if !text.is_empty() {
            self.add(
                "response.output_text.delta",
                json!({"item_id": id, "output_index": index, "content_index": part,
                       "delta": text, "logprobs": []}),
            );
        }
    }

    /// Ends the text and its item.
    pub(crate) fn end_item(&mut self, index: u64, part: u64, id: &str, text: &str) {
        let place = |more: Value| {
            let mut members = json!({"item_id": id, "output_index": index, "content_index": part});
            if let (Some(members), Value::Object(more)) = (members.as_object_mut(), more) {
                members.extend(more);
            }
            members
        };
        self.add("response.output_text.done", place(json!({"text": text, "logprobs": []})));
        self.add("response.content_part.done", place(json!({"part": text_part(text)})));
        let done = json!({"output_index": index, "item": item(id, text)});
        self.add("response.output_item.done", done);
    }
}
