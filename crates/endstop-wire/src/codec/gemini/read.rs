//! Reads requests of `generateContent`, also on Vertex. The path names the model.

use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::Fields;
use crate::codec::request::members::Holds::{
    Any, Count, Messages, Nothing, Object, Parts, Text, Tools,
};
use crate::codec::request::members::{Member, Members, TIER};
use crate::codec::request::parts::{
    call, message_of, result, stand_in, str_of, take_text, text, text_of,
};
use crate::codec::request::read::{RequestHead, RequestReader};
use crate::codec::request::tools::tools_of;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::{Message, Part};
use serde_json::Value;

/// Members of the configuration that ask for JSON, in both spellings that Google reads.
const SCHEMAS: &[&str] = &[
    "responseSchema",
    "responseJsonSchema",
    "response_schema",
    "response_json_schema",
    "_responseJsonSchema",
];

const MEMBERS: &[Member] = &[
    ("model", Any),
    ("contents", Messages),
    ("systemInstruction", Parts),
    ("tools", Tools),
    ("toolConfig", Object(&[("functionCallingConfig", Any)])),
    ("safetySettings", Any),
    ("labels", Any),
    ("generationConfig", Object(GENERATION)),
    ("serviceTier", TIER),
    ("cachedContent", Nothing),
];

const GENERATION: &[Member] = &[
    ("candidateCount", Count),
    ("temperature", Any),
    ("topP", Any),
    ("topK", Any),
    ("stopSequences", Any),
    ("seed", Any),
    ("presencePenalty", Any),
    ("frequencyPenalty", Any),
    ("responseLogprobs", Any),
    ("logprobs", Any),
    ("responseMimeType", Any),
    ("responseSchema", Any),
    ("responseJsonSchema", Any),
    ("_responseJsonSchema", Any),
    ("thinkingConfig", Any),
    ("mediaResolution", Any),
    ("responseModalities", Text),
];

/// The reader of requests.
pub(super) static READER: RequestReader = RequestReader {
    format: WireFormat::Gemini,
    cap: CapPlace::within(
        // Google's servers read both spellings of protocol buffers in JSON.
        &["generationConfig", "generation_config"],
        &["maxOutputTokens", "max_output_tokens"],
    ),
    members: Members { rows: MEMBERS, also_in_snake_case: true },
    streams_by_default: false,
    streamed: Delivery::Events,
    text_type: None,
    matches_results_by_name: true,
    head,
    message: read_message,
};

fn head<'a>(fields: &Fields<'a>) -> RequestHead<'a> {
    let config = either(fields, "generationConfig", "generation_config");
    let tool_config = either(fields, "toolConfig", "tool_config");
    let calling = either(&tool_config, "functionCallingConfig", "function_calling_config");
    let mime = ["responseMimeType", "response_mime_type"];
    let mime = mime.iter().find_map(|name| config.string(name));
    let choices = ["candidateCount", "candidate_count"];
    RequestHead {
        tools: tools_of(fields, "tools"),
        schema: SCHEMAS.iter().any(|name| config.has(name))
            || mime.is_some_and(|mime| mime != "text/plain"),
        tool_choice: calling.string("mode").is_some_and(|mode| mode.eq_ignore_ascii_case("any")),
        choices: choices.iter().find_map(|name| config.value(name).as_u64()),
        messages: fields.list("contents"),
        ..RequestHead::of(fields)
    }
}

fn either<'a>(fields: &Fields<'a>, camel: &str, snake: &str) -> Fields<'a> {
    fields.object(if fields.has(camel) { camel } else { snake })
}

fn read_message(value: &mut Value) -> Message {
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
