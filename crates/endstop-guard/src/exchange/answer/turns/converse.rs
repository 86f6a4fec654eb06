//! A final text in Bedrock's Converse.

use super::final_text::FinalText;
use crate::exchange::answer::deliver::Event;
use serde_json::{Value, json};

fn usage() -> Value {
    json!({"inputTokens": 0, "outputTokens": 0, "totalTokens": 0})
}

pub(super) fn body(turn: FinalText<'_>) -> Value {
    let message = json!({"role": "assistant", "content": [{"text": turn.text}]});
    json!({"output": {"message": message}, "stopReason": "end_turn", "usage": usage(),
           "metrics": {"latencyMs": 0}})
}

pub(super) fn events(turn: FinalText<'_>) -> Vec<Event> {
    let mut events = vec![("messageStart", json!({"role": "assistant"}))];
    events.extend(end(0, true, turn.text));
    events
}

/// Returns the rest of a stream: the text in this block, unless it is empty, and the end. `open` is
/// `true` if the block has to be closed even without a text.
pub(crate) fn end(index: u64, open: bool, text: &str) -> Vec<Event> {
    let mut events = Vec::new();
    if !text.is_empty() {
        let delta = json!({"contentBlockIndex": index, "delta": {"text": text}});
        events.push(("contentBlockDelta", delta));
    }
    if open || !text.is_empty() {
        events.push(("contentBlockStop", json!({"contentBlockIndex": index})));
    }
    events.push(("messageStop", json!({"stopReason": "end_turn"})));
    events.push(("metadata", json!({"usage": usage(), "metrics": {"latencyMs": 0}})));
    events
}
