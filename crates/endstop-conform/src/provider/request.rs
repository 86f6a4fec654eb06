//! Reads a request of a client: its body, its tools, and its first prompt.

use endstop::testkit::Request;
use endstop_wire::WireFormat;
use serde_json::{Value, json};
use std::io::Read as _;

/// The most bytes of an unpacked body.
const MOST: u64 = 64 << 20;

/// Returns the body as JSON; null if it is not.
pub(super) fn body(request: &Request) -> Value {
    let bytes = request.bytes.as_slice();
    let encoding = request.headers.get("content-encoding").map(String::as_str).unwrap_or_default();
    let mut unpacked = Vec::new();
    let read = match encoding {
        "gzip" => flate2::read::MultiGzDecoder::new(bytes).take(MOST).read_to_end(&mut unpacked),
        "zstd" => zstd::stream::read::Decoder::new(bytes)
            .and_then(|decoder| decoder.take(MOST).read_to_end(&mut unpacked)),
        _ => return request.body.clone(),
    };
    match read {
        Ok(_) => serde_json::from_slice(&unpacked).unwrap_or(Value::Null),
        Err(_) => Value::Null,
    }
}

/// Returns the names of the tools, each with the schema of its arguments.
pub(super) fn tools(format: WireFormat, body: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let mut add = |name: &Value, schema: &Value| {
        if let Some(name) = name.as_str() {
            found.push((name.to_owned(), schema.clone()));
        }
    };
    for tool in body["tools"].as_array().into_iter().flatten() {
        match format {
            WireFormat::Anthropic | WireFormat::BedrockInvoke => {
                add(&tool["name"], &tool["input_schema"]);
            }
            WireFormat::Gemini => {
                for one in tool["functionDeclarations"].as_array().into_iter().flatten() {
                    let schema = [&one["parametersJsonSchema"], &one["parameters"]];
                    let schema = schema.into_iter().find(|schema| schema.is_object());
                    add(&one["name"], schema.unwrap_or(&Value::Null));
                }
            }
            WireFormat::OpenAiResponses => add(&tool["name"], &tool["parameters"]),
            // Converse has its tools elsewhere.
            WireFormat::BedrockConverse => {}
            // The other formats have OpenAI's form.
            _ => {
                add(&tool["function"]["name"], &tool["function"]["parameters"]);
            }
        }
    }
    for tool in body["toolConfig"]["tools"].as_array().into_iter().flatten() {
        let spec = &tool["toolSpec"];
        add(&spec["name"], &spec["inputSchema"]["json"]);
    }
    found
}

/// Returns the texts of the user's messages, without results of tools.
pub(super) fn prompts(format: WireFormat, body: &Value) -> String {
    let (messages, parts) = match format {
        WireFormat::Gemini => (&body["contents"], "parts"),
        WireFormat::OpenAiResponses => (&body["input"], "content"),
        _ => (&body["messages"], "content"),
    };
    let mut prompt = String::new();
    for message in messages.as_array().into_iter().flatten().filter(|one| one["role"] == "user") {
        match &message[parts] {
            Value::String(text) => prompt.push_str(text),
            Value::Array(parts) => {
                for text in parts.iter().filter_map(|part| part["text"].as_str()) {
                    prompt.push_str(text);
                }
            }
            _ => {}
        }
    }
    prompt
}

/// Returns a request as a provider reads it. Anthropic joins messages of one role, and accepts system messages between them
/// from clients that ask for it.
pub(super) fn as_read(format: WireFormat, body: &Value) -> Value {
    let mut body = body.clone();
    if format != WireFormat::Anthropic {
        return body;
    }
    let mut joined: Vec<Value> = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        let mut message = message.clone();
        if message["role"] == "system" {
            continue;
        }
        if let Some(text) = message["content"].as_str() {
            message["content"] = json!([{"type": "text", "text": text}]);
        }
        match joined.last_mut().filter(|last| last["role"] == message["role"]) {
            Some(last) => {
                let more = message["content"].as_array().cloned().unwrap_or_default();
                if let Some(parts) = last["content"].as_array_mut() {
                    parts.extend(more);
                }
            }
            None => joined.push(message),
        }
    }
    body["messages"] = joined.into();
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::testkit::strict::problem;

    #[test]
    fn messages_of_one_role_are_joined() {
        let text = |role: &str| json!({"role": role, "content": "a text"});
        let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
        let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "r"});
        let calls = json!({"role": "assistant", "content": [call]});
        let whole = [
            text("user"),
            text("system"),
            calls.clone(),
            json!({"role": "user", "content": [result]}),
            text("user"),
        ];
        let read =
            |messages: &[Value]| as_read(WireFormat::Anthropic, &json!({"messages": messages}));
        assert_eq!(problem("anthropic-messages", &read(&whole)), None);
        // A call without a result stays a problem.
        let broken = read(&[text("user"), calls, text("user")]);
        assert!(problem("anthropic-messages", &broken).is_some());
    }
}
