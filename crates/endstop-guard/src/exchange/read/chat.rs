//! OpenAI Chat Completions, and Ollama's format, which differs in few places.

use super::fields::Fields;
use super::parts::{
    call, elements, elements_mut, message, result, role, stand_in, str_of, take_joined, take_text,
    text,
};
use super::tools::tools_of;
use super::top::{Top, asks_for_json, forces_tool, named_tool};
use endstop_core::{Message, Part, Role};
use endstop_wire::WireFormat;
use serde_json::Value;

pub(super) fn read<'a>(shape: WireFormat, fields: &Fields<'a>) -> Top<'a> {
    let mut tools = tools_of(fields, "tools");
    // The older spelling of tools.
    tools.extend(tools_of(fields, "functions"));
    let usage = fields.object("stream_options").flag("include_usage");
    Top {
        tools,
        // Ollama's `format` is `json` or a schema.
        schema: asks_for_json(&fields.value("response_format"))
            || shape == WireFormat::Ollama && fields.has("format"),
        tool_choice: forces_tool(&fields.value("tool_choice")),
        named_tool: named_tool(&fields.value("tool_choice")),
        choices: fields.value("n").as_u64(),
        usage_omitted: shape == WireFormat::OpenAiChat && usage != Some(true),
        messages: fields.list("messages"),
        ..Top::new(shape, fields)
    }
}

pub(super) fn read_message(value: &mut Value) -> Message {
    let role = role(str_of(value, "role"));
    if role == Role::Tool {
        let content = take_joined(value, "content");
        let id = str_of(value, "tool_call_id");
        let name = value.get("name").or_else(|| value.get("tool_name"));
        let name = name.and_then(Value::as_str).unwrap_or_default();
        return message(role, vec![result(id, name, content, false)]);
    }
    let mut parts = Vec::new();
    // Servers of open models return their reasoning under one of these names.
    let reasoning = ["reasoning_content", "reasoning", "thinking"];
    if let Some(text) = reasoning.iter().find_map(|name| value.get(name)?.as_str()) {
        parts.push(Part::Reasoning { text: text.to_owned() });
    }
    let content = value.get_mut("content").map(elements_mut).unwrap_or_default();
    parts.extend(content.iter_mut().map(content_part));
    if let Some(refusal) = value.get("refusal").and_then(Value::as_str) {
        parts.push(Part::Refusal { text: refusal.to_owned() });
    }
    parts.extend(calls_of(value));
    message(role, parts)
}

/// Returns the calls of a message.
pub(super) fn calls_of(value: &Value) -> impl Iterator<Item = Part> + '_ {
    elements(value.get("tool_calls").unwrap_or(&Value::Null)).iter().map(|one| {
        let function = one.get("function").or_else(|| one.get("custom")).unwrap_or(&Value::Null);
        // A custom tool takes plain text as its input.
        let arguments = function.get("arguments").or_else(|| function.get("input"));
        call(str_of(one, "id"), str_of(function, "name"), arguments.unwrap_or(&Value::Null))
    })
}

/// Returns a part of a message's content.
pub(super) fn content_part(part: &mut Value) -> Part {
    text(take_text(part).unwrap_or_else(|| stand_in(part)))
}
