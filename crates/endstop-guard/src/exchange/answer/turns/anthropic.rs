//! A final text in Anthropic Messages.

use super::final_text::FinalText;
use crate::exchange::answer::deliver::Event;
use serde_json::{Value, json};

pub(super) fn body(turn: FinalText<'_>) -> Value {
    message(turn, &json!([{"type": "text", "text": turn.text}]), &json!("end_turn"))
}

fn message(turn: FinalText<'_>, content: &Value, stop: &Value) -> Value {
    json!({
        "id": format!("msg_{}", turn.id), "type": "message", "role": "assistant",
        "model": turn.model, "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 0, "cache_creation_input_tokens": 0,
                  "cache_read_input_tokens": 0, "output_tokens": 0}
    })
}

pub(super) fn events(turn: FinalText<'_>) -> Vec<Event> {
    let start = message(turn, &json!([]), &Value::Null);
    let mut events = vec![("message_start", json!({"type": "message_start", "message": start}))];
    events.extend(block(0, turn.text));
    events.extend(stop());
    events
}

/// Returns the events of a whole text block.
pub(crate) fn block(index: u64, text: &str) -> Vec<Event> {
    let empty = json!({"type": "text", "text": ""});
    let start = json!({"type": "content_block_start", "index": index, "content_block": empty});
    let mut events = vec![("content_block_start", start)];
    events.extend(delta(index, text));
    events.push(end(index));
    events
}

/// Returns the event that adds a text, unless that is empty.
pub(crate) fn delta(index: u64, text: &str) -> Option<Event> {
    let delta = json!({"type": "text_delta", "text": text});
    let data = json!({"type": "content_block_delta", "index": index, "delta": delta});
    (!text.is_empty()).then_some(("content_block_delta", data))
}

/// Returns the event that ends a block.
pub(crate) fn end(index: u64) -> Event {
    ("content_block_stop", json!({"type": "content_block_stop", "index": index}))
}

/// Returns the events that end a message.
pub(crate) fn stop() -> [Event; 2] {
    let delta = json!({"stop_reason": "end_turn", "stop_sequence": null});
    let usage = json!({"output_tokens": 0});
    [
        ("message_delta", json!({"type": "message_delta", "delta": delta, "usage": usage})),
        ("message_stop", json!({"type": "message_stop"})),
    ]
}
