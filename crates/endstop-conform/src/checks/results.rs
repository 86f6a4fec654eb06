//! The results of tools in a request, as the model would read them.

use crate::evidence::Call;
use serde_json::Value;

/// Returns the texts of the results of tools, in order.
pub(super) fn results(call: &Call) -> Vec<String> {
    let list = |key: &str| call.body[key].as_array().map_or(&[][..], Vec::as_slice);
    let parts = |message: &Value, key: &str| message[key].as_array().cloned().unwrap_or_default();
    match call.format.as_str() {
        "gemini" => list("contents")
            .iter()
            .flat_map(|message| parts(message, "parts"))
            .filter(|part| part["functionResponse"].is_object())
            .map(|part| text(&part["functionResponse"]["response"]))
            .collect(),
        "openai-responses" => list("input")
            .iter()
            .filter(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("call_output")))
            .map(|item| text(&item["output"]))
            .collect(),
        "anthropic-messages" => list("messages")
            .iter()
            .flat_map(|message| parts(message, "content"))
            .filter(|part| part["type"] == "tool_result")
            .map(|part| text(&part["content"]))
            .collect(),
        _ => list("messages")
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| text(&message["content"]))
            .collect(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
