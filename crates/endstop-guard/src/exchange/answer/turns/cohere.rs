//! A final text in Cohere's `/v2/chat`.

use super::final_text::FinalText;
use crate::exchange::answer::deliver::{Event, sse};
use serde_json::{Value, json};

/// The end of a stream, after its last event.
const DONE: &str = "data: [DONE]\n\n";

fn usage() -> Value {
    let tokens = json!({"input_tokens": 0, "output_tokens": 0});
    json!({"billed_units": tokens, "tokens": tokens})
}

pub(super) fn body(turn: FinalText<'_>) -> Value {
    let content = json!([{"type": "text", "text": turn.text}]);
    json!({
        "id": turn.id, "message": {"role": "assistant", "content": content},
        "finish_reason": "COMPLETE", "usage": usage()
    })
}

pub(super) fn stream(turn: FinalText<'_>) -> String {
    let message = json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [],
                         "citations": []});
    let start = json!({"id": turn.id, "type": "message-start", "delta": {"message": message}});
    sse(&("message-start", start)) + &block(0, turn.text) + &end()
}

/// Returns the events of a whole text block.
pub(crate) fn block(index: u64, text: &str) -> String {
    let content = json!({"message": {"content": {"type": "text", "text": ""}}});
    let start = json!({"type": "content-start", "index": index, "delta": content});
    sse(&("content-start", start)) + &rest_of_block(index, text)
}

/// Returns the rest of a block: the text, unless it is empty, and the end.
pub(crate) fn rest_of_block(index: u64, text: &str) -> String {
    let mut events: Vec<Event> = Vec::new();
    if !text.is_empty() {
        let content = json!({"message": {"content": {"text": text}}});
        let delta = json!({"type": "content-delta", "index": index, "delta": content});
        events.push(("content-delta", delta));
    }
    events.push(("content-end", json!({"type": "content-end", "index": index})));
    events.iter().map(sse).collect()
}

/// Returns the end of a stream.
pub(crate) fn end() -> String {
    let delta = json!({"finish_reason": "COMPLETE", "usage": usage()});
    sse(&("message-end", json!({"type": "message-end", "delta": delta}))) + DONE
}
