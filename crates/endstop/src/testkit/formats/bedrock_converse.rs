//! Encodes a scripted turn in the format of Bedrock's Converse: a body, or binary frames.

use super::parts::raw_arguments;
use crate::testkit::Turn;
use serde_json::{Value, json};

fn finish(turn: &Turn) -> &str {
    turn.finish.as_deref().unwrap_or(if turn.calls.is_empty() { "end_turn" } else { "tool_use" })
}

fn blocks(turn: &Turn) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !turn.reasoning.is_empty() {
        let text = json!({"text": turn.reasoning, "signature": "c2ln"});
        blocks.push(json!({"reasoningContent": {"reasoningText": text}}));
    }
    if !turn.text.is_empty() {
        blocks.push(json!({"text": turn.text}));
    }
    for (id, name, arguments) in &turn.calls {
        // A complete body cannot contain truncated JSON; only a stream can.
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({"toolUse": {"toolUseId": id, "name": name, "input": input}}));
    }
    blocks
}

fn usage(turn: &Turn) -> Value {
    let used = turn.used();
    json!({"inputTokens": used.input_tokens, "outputTokens": used.output_tokens,
           "totalTokens": used.total_tokens()})
}

pub(super) fn body(turn: &Turn) -> Value {
    json!({"output": {"message": {"role": "assistant", "content": blocks(turn)}},
           "stopReason": finish(turn), "usage": usage(turn), "metrics": {"latencyMs": 1}})
}

pub(super) fn events(turn: &Turn) -> Vec<Vec<u8>> {
    let event = |kind: &str, data: &Value| super::parts::message(kind, data);
    // `p` is padding that Bedrock adds to every event; decoders must ignore it.
    let mut events = vec![event("messageStart", &json!({"role": "assistant", "p": "abcd"}))];
    for (index, block) in blocks(turn).into_iter().enumerate() {
        let mut deltas = Vec::new();
        if let Some(call) = block.get("toolUse") {
            let start = json!({"toolUseId": call["toolUseId"], "name": call["name"]});
            let start = json!({"contentBlockIndex": index, "start": {"toolUse": start}});
            events.push(event("contentBlockStart", &start));
            for part in raw_arguments(turn, &call["toolUseId"]) {
                deltas.push(json!({"toolUse": {"input": part}}));
            }
        } else if let Some(reasoning) = block.pointer("/reasoningContent/reasoningText") {
            for key in ["text", "signature"] {
                deltas.push(json!({"reasoningContent": {key: reasoning[key]}}));
            }
        } else {
            deltas.extend(turn.words().iter().map(|word| json!({"text": word})));
        }
        for delta in deltas {
            let delta = json!({"contentBlockIndex": index, "delta": delta, "p": "ab"});
            events.push(event("contentBlockDelta", &delta));
        }
        events.push(event("contentBlockStop", &json!({"contentBlockIndex": index})));
    }
    events.push(event("messageStop", &json!({"stopReason": finish(turn)})));
    let metadata = json!({"usage": usage(turn), "metrics": {"latencyMs": 1}});
    events.push(event("metadata", &metadata));
    events
}
