//! A final text in Google's `generateContent`. A stream is one such object.

use super::final_text::FinalText;
use serde_json::{Value, json};

pub(crate) fn body(turn: FinalText<'_>) -> Value {
    let content = json!({"parts": [{"text": turn.text}], "role": "model"});
    json!({
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 0, "candidatesTokenCount": 0, "totalTokenCount": 0},
        "modelVersion": turn.model, "responseId": turn.id
    })
}
