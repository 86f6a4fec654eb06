//! Encodes a scripted turn in Ollama's native format: one JSON object per line.

use crate::testkit::Turn;
use serde_json::{Value, json};

fn object(message: &Value, done: bool) -> Value {
    json!({"model": "script", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done})
}

fn calls(turn: &Turn) -> Vec<Value> {
    let call = |(_, name, arguments): &(String, String, String)| {
        // Ollama sends arguments as an object, also in a stream, so they cannot be truncated.
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        json!({"function": {"name": name, "arguments": arguments}})
    };
    turn.calls.iter().map(call).collect()
}

/// Returns the last object of a response, with the finish reason and the usage.
fn end(turn: &Turn, message: &Value) -> Value {
    let used = turn.used();
    let mut last = object(message, true);
    // Ollama reports `stop` for turns with calls as well.
    last["done_reason"] = turn.finish.as_deref().unwrap_or("stop").into();
    last["prompt_eval_count"] = json!(used.input_tokens);
    last["eval_count"] = json!(used.output_tokens);
    last
}

pub(super) fn body(turn: &Turn) -> Value {
    let mut message = json!({"role": "assistant", "content": turn.text});
    if !turn.reasoning.is_empty() {
        message["thinking"] = Value::String(turn.reasoning.clone());
    }
    if !turn.calls.is_empty() {
        message["tool_calls"] = Value::Array(calls(turn));
    }
    end(turn, &message)
}

pub(crate) fn lines(turn: &Turn) -> Vec<String> {
    let say = |message: Value| format!("{}\n", object(&message, false));
    let mut lines = Vec::new();
    if !turn.reasoning.is_empty() {
        lines.push(say(json!({"role": "assistant", "content": "", "thinking": turn.reasoning})));
    }
    for word in turn.words() {
        lines.push(say(json!({"role": "assistant", "content": word})));
    }
    if !turn.calls.is_empty() {
        lines.push(say(json!({"role": "assistant", "content": "", "tool_calls": calls(turn)})));
    }
    lines.push(format!("{}\n", end(turn, &json!({"role": "assistant", "content": ""}))));
    lines
}
