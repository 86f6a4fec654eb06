//! Google's `generateContent`, also on Vertex. The path names the model.

use super::fields::Fields;
use super::parts::{call, message_of, result, stand_in, str_of, take_text, text, text_of};
use super::tools::tools_of;
use super::top::Top;
use endstop_core::{Message, Part};
use endstop_wire::WireFormat;
use serde_json::Value;

/// Members of the configuration that ask for JSON, in both spellings that Google reads.
const SCHEMAS: &[&str] = &[
    "responseSchema",
    "responseJsonSchema",
    "response_schema",
    "response_json_schema",
    "_responseJsonSchema",
];

pub(super) fn read<'a>(fields: &Fields<'a>) -> Top<'a> {
    let config = either(fields, "generationConfig", "generation_config");
    let tool_config = either(fields, "toolConfig", "tool_config");
    let calling = either(&tool_config, "functionCallingConfig", "function_calling_config");
    let mime = ["responseMimeType", "response_mime_type"];
    let mime = mime.iter().find_map(|name| config.string(name));
    let choices = ["candidateCount", "candidate_count"];
    Top {
        tools: tools_of(fields, "tools"),
        schema: SCHEMAS.iter().any(|name| config.has(name))
            || mime.is_some_and(|mime| mime != "text/plain"),
        tool_choice: calling.string("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("any")),
        choices: choices.iter().find_map(|name| config.value(name).as_u64()),
        messages: fields.list("contents"),
        ..Top::new(WireFormat::Gemini, fields)
    }
}

fn either<'a>(fields: &Fields<'a>, camel: &str, snake: &str) -> Fields<'a> {
    fields.object(if fields.has(camel) { camel } else { snake })
}

pub(super) fn read_message(value: &mut Value) -> Message {
    message_of(value, "parts", part)
}

fn part(block: &mut Value) -> Part {
    let member = |camel: &str, snake: &str| block.get(camel).or_else(|| block.get(snake));
    if let Some(one) = member("functionCall", "function_call") {
        let arguments = one.get("args").unwrap_or(&Value::Null);
        return call(str_of(one, "id"), str_of(one, "name"), arguments);
    }
    if let Some(one) = member("functionResponse", "function_response") {
        let response = one.get("response").unwrap_or(&Value::Null);
        let failed = response.get("error").is_some_and(|error| !error.is_null());
        // Clients wrap the text of a result under one of these names.
        let content = ["output", "result", "error"].iter().find_map(|name| response.get(name));
        let content = text_of(content.unwrap_or(response));
        return result(str_of(one, "id"), str_of(one, "name"), content, failed);
    }
    let is_thought = block.get("thought").and_then(Value::as_bool) == Some(true);
    match take_text(block) {
        Some(text) if is_thought => Part::Reasoning { text },
        Some(found) => text(found),
        None => text(stand_in(block)),
    }
}
