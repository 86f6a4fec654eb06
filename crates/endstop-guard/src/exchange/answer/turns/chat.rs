//! A final text in OpenAI Chat Completions.

use super::final_text::FinalText;
use crate::exchange::answer::deliver::sse;
use serde_json::{Value, json};

fn usage() -> Value {
    json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
}

pub(super) fn body(turn: FinalText<'_>) -> Value {
    let message = json!({"role": "assistant", "content": turn.text});
    json!({
        "id": format!("chatcmpl-{}", turn.id), "object": "chat.completion", "created": turn.at,
        "model": turn.model, "usage": usage(),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]
    })
}

pub(super) fn stream(turn: FinalText<'_>) -> String {
    let first = chunk(turn, &json!({"role": "assistant", "content": ""}), &Value::Null);
    format!("{}{}", sse(&("", first)), end(turn))
}

/// Returns the rest of a stream: the text, unless it is empty, and the end.
pub(crate) fn end(turn: FinalText<'_>) -> String {
    let mut out = String::new();
    if !turn.text.is_empty() {
        out += &sse(&("", chunk(turn, &json!({"content": turn.text}), &Value::Null)));
    }
    out += &sse(&("", chunk(turn, &json!({}), &json!("stop"))));
    // Clients that asked for usage wait for a chunk without choices.
    if turn.usage {
        let mut last = chunk(turn, &Value::Null, &Value::Null);
        last["choices"] = json!([]);
        last["usage"] = usage();
        out += &sse(&("", last));
    }
    out + "data: [DONE]\n\n"
}

fn chunk(turn: FinalText<'_>, delta: &Value, finish: &Value) -> Value {
    json!({
        "id": turn.id_of_chunk(), "object": "chat.completion.chunk", "created": turn.at,
        "model": turn.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]
    })
}

impl FinalText<'_> {
    /// Returns the id of a chunk. A stream that is cut has an id already.
    fn id_of_chunk(&self) -> String {
        if self.id.starts_with("chatcmpl-") {
            self.id.to_owned()
        } else {
            format!("chatcmpl-{}", self.id)
        }
    }
}
