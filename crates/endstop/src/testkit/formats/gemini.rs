//! Encodes a scripted turn in the format of Google's `generateContent`.

use crate::testkit::Turn;
use serde_json::{Value, json};

fn parts(turn: &Turn, words: &[&str]) -> Vec<Value> {
    let mut parts = Vec::new();
    if !turn.reasoning.is_empty() {
        parts.push(json!({"text": turn.reasoning, "thought": true}));
    }
    parts.extend(words.iter().filter(|word| !word.is_empty()).map(|word| json!({"text": word})));
    for (_, name, arguments) in &turn.calls {
        // Gemini sends arguments as an object, also in a stream, so they cannot be truncated.
        let args: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        parts.push(json!({"functionCall": {"name": name, "args": args}}));
    }
    // A model that has reasoned signs the first call.
    let first = parts.iter_mut().find(|part| part.get("functionCall").is_some());
    if let Some(call) = first.filter(|_| !turn.reasoning.is_empty()) {
        call["thoughtSignature"] = "c2ln".into();
    }
    parts
}

fn chunk(turn: &Turn, parts: &[Value], last: bool) -> Value {
    let used = turn.used();
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if last {
        candidate["finishReason"] = turn.finish.as_deref().unwrap_or("STOP").into();
    }
    json!({"candidates": [candidate], "modelVersion": "script", "responseId": "script",
           "usageMetadata": {"promptTokenCount": used.input_tokens,
                             "candidatesTokenCount": used.output_tokens}})
}

pub(super) fn body(turn: &Turn) -> Value {
    chunk(turn, &parts(turn, &[&turn.text]), true)
}

pub(crate) fn events(turn: &Turn) -> Vec<String> {
    let event = |parts: &[Value], last| format!("data: {}\n\n", chunk(turn, parts, last));
    let parts = parts(turn, &turn.words());
    let mut events: Vec<String> = parts.chunks(1).map(|part| event(part, false)).collect();
    // The finish reason comes in a separate chunk with an empty text, as in many real streams.
    events.push(event(&[json!({"text": ""})], true));
    events
}
