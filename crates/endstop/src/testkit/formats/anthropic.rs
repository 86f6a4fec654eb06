//! Encodes a scripted turn in the format of Anthropic's messages.

use super::parts::raw_arguments;
use crate::testkit::Turn;
use serde_json::{Value, json};

fn finish(turn: &Turn) -> &str {
    turn.finish.as_deref().unwrap_or(if turn.calls.is_empty() { "end_turn" } else { "tool_use" })
}

fn blocks(turn: &Turn) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !turn.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": turn.reasoning, "signature": "c2ln"}));
    }
    if !turn.text.is_empty() {
        blocks.push(json!({"type": "text", "text": turn.text}));
    }
    for (id, name, arguments) in &turn.calls {
        // A complete body cannot contain truncated JSON; only a stream can.
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    blocks
}

/// The usage of a turn. Anthropic's input tokens do not include cached ones.
fn usage(turn: &Turn, output: Option<u64>) -> Value {
    let used = turn.used();
    let Some((read, written)) = turn.cached else {
        return json!({"input_tokens": used.input_tokens, "output_tokens": output});
    };
    let plain = used.input_tokens.unwrap_or(0).saturating_sub(read).saturating_sub(written);
    json!({"input_tokens": plain, "output_tokens": output, "cache_read_input_tokens": read,
           "cache_creation_input_tokens": written})
}

pub(super) fn body(turn: &Turn) -> Value {
    let used = turn.used();
    json!({"id": "msg_script", "type": "message", "role": "assistant", "model": "script",
           "content": blocks(turn), "stop_reason": finish(turn),
           "stop_sequence": null,
           "usage": usage(turn, used.output_tokens)})
}

pub(crate) fn events(turn: &Turn) -> Vec<String> {
    let event = |data: Value| {
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
    };
    let used = turn.used();
    // Like the real API, the start has a preliminary output count, which `message_delta` replaces.
    let mut events = vec![event(json!({"type": "message_start", "message": {
        "id": "msg_script", "type": "message", "role": "assistant", "model": "script",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": usage(turn, Some(1))}}))];
    events.push(event(json!({"type": "ping"})));
    for (index, block) in blocks(turn).into_iter().enumerate() {
        let kind = block["type"].as_str().unwrap_or_default().to_owned();
        let (start, deltas) = match kind.as_str() {
            "thinking" => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ],
            ),
            "text" => (
                json!({"type": "text", "text": ""}),
                turn.words().iter().map(|w| json!({"type": "text_delta", "text": w})).collect(),
            ),
            _ => (
                json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}),
                raw_arguments(turn, &block["id"])
                    .iter()
                    .map(|part| json!({"type": "input_json_delta", "partial_json": part}))
                    .collect(),
            ),
        };
        events.push(event(
            json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        for delta in deltas {
            events.push(event(
                json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
        }
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(json!({"type": "message_delta",
        "delta": {"stop_reason": finish(turn), "stop_sequence": null},
        "usage": {"output_tokens": used.output_tokens}})));
    events.push(event(json!({"type": "message_stop"})));
    events
}
