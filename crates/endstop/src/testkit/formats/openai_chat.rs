//! Encodes a scripted turn in the format of OpenAI's chat completions.

use super::parts::halves;
use crate::testkit::Turn;
use serde_json::{Value, json};

fn finish(turn: &Turn) -> &str {
    turn.finish.as_deref().unwrap_or(if turn.calls.is_empty() { "stop" } else { "tool_calls" })
}

fn usage(turn: &Turn) -> Value {
    let used = turn.used();
    let (input, output) = (used.input_tokens, used.output_tokens);
    json!({"prompt_tokens": input, "completion_tokens": output,
           "total_tokens": input.unwrap_or(0) + output.unwrap_or(0)})
}

fn calls(turn: &Turn) -> Vec<Value> {
    turn.calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect()
}

pub(super) fn body(turn: &Turn) -> Value {
    let mut message = json!({"role": "assistant", "content": turn.text, "refusal": null});
    if !turn.calls.is_empty() {
        message["tool_calls"] = Value::Array(calls(turn));
    }
    if !turn.reasoning.is_empty() {
        message["reasoning_content"] = Value::String(turn.reasoning.clone());
    }
    json!({"id": "chatcmpl-script", "object": "chat.completion", "created": 0, "model": "script",
           "choices": [{"index": 0, "message": message, "finish_reason": finish(turn)}],
           "usage": usage(turn)})
}

pub(crate) fn events(turn: &Turn) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let event = json!({"id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0,
            "model": "script", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {event}\n\n")
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    if !turn.reasoning.is_empty() {
        events.push(chunk(json!({"reasoning_content": turn.reasoning}), Value::Null));
    }
    for word in turn.words() {
        events.push(chunk(json!({"content": word}), Value::Null));
    }
    for (index, (id, name, arguments)) in turn.calls.iter().enumerate() {
        events.push(chunk(
            json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                   "function": {"name": name, "arguments": ""}}]}),
            Value::Null,
        ));
        for part in halves(arguments) {
            events.push(chunk(
                json!({"tool_calls": [{"index": index, "function": {"arguments": part}}]}),
                Value::Null,
            ));
        }
    }
    events.push(chunk(json!({}), finish(turn).into()));
    // With `include_usage`, OpenAI sends the usage after the finish reason, in a chunk without
    // choices.
    let usage = json!({"id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0,
                       "model": "script", "choices": [], "usage": usage(turn)});
    events.push(format!("data: {usage}\n\n"));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
