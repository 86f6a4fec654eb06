//! Reads a request of a client: its body, its tools, and its first prompt.

use endstop::testkit::Request;
use endstop_wire::WireFormat;
use serde_json::Value;
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
            // The other formats have OpenAI's form.
            _ => {
                add(&tool["function"]["name"], &tool["function"]["parameters"]);
            }
        }
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
