//! Encodes a scripted turn in the format of Cohere's `/v2/chat`. In a turn with calls the reasoning
//! is the `tool_plan`, otherwise a `thinking` block.

use super::parts::halves;
use crate::testkit::Turn;
use serde_json::{Value, json};

fn finish(turn: &Turn) -> &str {
    turn.finish.as_deref().unwrap_or(if turn.calls.is_empty() { "COMPLETE" } else { "TOOL_CALL" })
}

fn usage(turn: &Turn) -> Value {
    let used = turn.used();
    let tokens = json!({"input_tokens": used.input_tokens, "output_tokens": used.output_tokens});
    json!({"billed_units": tokens, "tokens": tokens})
}

fn calls(turn: &Turn) -> Vec<Value> {
    let function = |name, arguments| json!({"name": name, "arguments": arguments});
    turn.calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({"id": id, "type": "function", "function": function(name, arguments)})
        })
        .collect()
}

pub(super) fn body(turn: &Turn) -> Value {
    let mut message = json!({"role": "assistant"});
    let mut content = Vec::new();
    if !turn.calls.is_empty() {
        message["tool_plan"] = turn.reasoning.clone().into();
        message["tool_calls"] = calls(turn).into();
    } else if !turn.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": turn.reasoning}));
    }
    if !turn.text.is_empty() {
        content.push(json!({"type": "text", "text": turn.text}));
    }
    if !content.is_empty() {
        message["content"] = content.into();
    }
    json!({"id": "script", "message": message, "finish_reason": finish(turn), "usage": usage(turn)})
}

pub(crate) fn events(turn: &Turn) -> Vec<String> {
    let event = |data: Value| {
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
    };
    let mut events = vec![event(json!({"id": "script", "type": "message-start", "delta": {
        "message": {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [],
                    "citations": []}}}))];
    let mut index = 0;
    let mut block = |kind: &str, pieces: &[&str]| {
        let message = |content: Value| json!({"message": {"content": content}});
        let mut block = vec![event(json!({"type": "content-start", "index": index,
            "delta": message(json!({"type": kind, kind: ""}))}))];
        block.extend(pieces.iter().map(|piece| {
            let delta = message(json!({kind: piece}));
            event(json!({"type": "content-delta", "index": index, "delta": delta}))
        }));
        block.push(event(json!({"type": "content-end", "index": index})));
        index += 1;
        block
    };
    if turn.calls.is_empty() && !turn.reasoning.is_empty() {
        events.extend(block("thinking", &[&turn.reasoning]));
    }
    if !turn.text.is_empty() {
        events.extend(block("text", &turn.words()));
    }
    if !turn.calls.is_empty() && !turn.reasoning.is_empty() {
        let plan = json!({"message": {"tool_plan": turn.reasoning}});
        events.push(event(json!({"type": "tool-plan-delta", "delta": plan})));
    }
    for (index, (mut call, (.., arguments))) in calls(turn).into_iter().zip(&turn.calls).enumerate()
    {
        let delta = |call: Value| json!({"message": {"tool_calls": call}});
        // Like the real API, the start event has empty arguments, which the deltas fill.
        call["function"]["arguments"] = "".into();
        events
            .push(event(json!({"type": "tool-call-start", "index": index, "delta": delta(call)})));
        for part in halves(arguments) {
            let delta = delta(json!({"function": {"arguments": part}}));
            events.push(event(json!({"type": "tool-call-delta", "index": index, "delta": delta})));
        }
        events.push(event(json!({"type": "tool-call-end", "index": index})));
    }
    events.push(event(json!({"type": "message-end",
        "delta": {"finish_reason": finish(turn), "usage": usage(turn)}})));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
