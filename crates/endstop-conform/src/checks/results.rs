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
        "bedrock-converse" => list("messages")
            .iter()
            .flat_map(|message| parts(message, "content"))
            .filter(|part| part["toolResult"].is_object())
            .map(|part| text(&part["toolResult"]["content"]))
            .collect(),
        "anthropic-messages" | "bedrock-invoke" => list("messages")
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

/// Returns the results of tools with the arguments of the calls that they stand under, if the history has both.
pub(super) fn answered(call: &Call) -> Vec<(String, String)> {
    // Each call or result: its id, and its arguments or its text.
    let mut calls: Vec<(Value, String)> = Vec::new();
    let mut found: Vec<(Value, String)> = Vec::new();
    let list = |key: &str| call.body[key].as_array().map_or(&[][..], Vec::as_slice);
    let parts = |message: &Value, key: &str| message[key].as_array().cloned().unwrap_or_default();
    for message in list("contents") {
        for part in parts(message, "parts") {
            // Without ids, the order counts.
            let (one, result) = (&part["functionCall"], &part["functionResponse"]);
            if one.is_object() {
                calls.push((or_number(&one["id"], calls.len()), text(&one["args"])));
            }
            if result.is_object() {
                found.push((or_number(&result["id"], found.len()), text(&result["response"])));
            }
        }
    }
    for item in list("input") {
        let kind = item["type"].as_str().unwrap_or_default();
        if kind.ends_with("call_output") {
            found.push((item["call_id"].clone(), text(&item["output"])));
        } else if kind.ends_with("call") {
            let arguments = if item["arguments"].is_null() { item } else { &item["arguments"] };
            calls.push((item["call_id"].clone(), text(arguments)));
        }
    }
    for message in list("messages") {
        for one in parts(message, "tool_calls") {
            calls.push((one["id"].clone(), text(&one["function"]["arguments"])));
        }
        if message["role"] == "tool" {
            found.push((message["tool_call_id"].clone(), text(&message["content"])));
        }
        for part in parts(message, "content") {
            if part["type"] == "tool_use" {
                calls.push((part["id"].clone(), text(&part["input"])));
            } else if part["type"] == "tool_result" {
                found.push((part["tool_use_id"].clone(), text(&part["content"])));
            }
            let (one, result) = (&part["toolUse"], &part["toolResult"]);
            if one.is_object() {
                calls.push((one["toolUseId"].clone(), text(&one["input"])));
            }
            if result.is_object() {
                found.push((result["toolUseId"].clone(), text(&result["content"])));
            }
        }
    }
    let of = |id: &Value| calls.iter().find(|(one, _)| one == id && !id.is_null());
    found.into_iter().filter_map(|(id, result)| Some((of(&id)?.1.clone(), result))).collect()
}

fn or_number(id: &Value, number: usize) -> Value {
    if id.is_null() { number.into() } else { id.clone() }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
