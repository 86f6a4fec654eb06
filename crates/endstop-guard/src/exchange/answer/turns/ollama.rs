//! A final text in Ollama's format.

use super::final_text::FinalText;
use serde_json::{Value, json};

pub(super) fn body(turn: FinalText<'_>) -> Value {
    let message = json!({"role": "assistant", "content": turn.text});
    json!({
        // Ollama requires a time; the caller's is in seconds, and no client shows it.
        "model": turn.model, "created_at": "1970-01-01T00:00:00Z", "message": message,
        "done": true, "done_reason": "stop", "total_duration": 0, "prompt_eval_count": 0,
        "eval_count": 0
    })
}

/// Returns the rest of a stream: the text, unless it is empty, and the end.
pub(crate) fn lines(turn: FinalText<'_>) -> String {
    let mut out = String::new();
    if !turn.text.is_empty() {
        let message = json!({"role": "assistant", "content": turn.text});
        let line = json!({"model": turn.model, "created_at": "1970-01-01T00:00:00Z",
                          "message": message, "done": false});
        out = format!("{line}\n");
    }
    out + &format!("{}\n", body(FinalText { text: "", ..turn }))
}
