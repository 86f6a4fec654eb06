//! OpenAI Responses. Its history is a list of items: messages, calls and results are items of their
//! own, as codex sends them.

use super::fields::Fields;
use super::parts::{
    call, elements, joined, message, result, role, stand_in, str_of, text, text_of,
};
use super::tools::tools_of;
use super::top::{Top, asks_for_json, forces_tool, named_tool};
use crate::exchange::signs::{CLIENTS, Sign, Signs};
use endstop_core::{Message, Part, Role};
use endstop_wire::WireFormat;
use serde_json::Value;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Top<'a> {
    let mut messages = fields.list("input");
    // A prompt can be a plain string.
    if messages.is_empty() {
        messages.extend(fields.raw("input").filter(|text| text.starts_with('"')));
    }
    let mut signs = signs(&fields.object("client_metadata"));
    // A conversation that the provider stores is a thread, given by its id or as an object.
    let conversation = fields.object("conversation").string("id");
    let conversation = conversation.or_else(|| fields.string("conversation")).unwrap_or_default();
    signs.take(Sign::Thread, &conversation);
    Top {
        tools: tools_of(fields, "tools"),
        schema: asks_for_json(&fields.object("text").value("format")),
        tool_choice: forces_tool(&fields.value("tool_choice")),
        named_tool: named_tool(&fields.value("tool_choice")),
        previous_response: fields.string("previous_response_id").filter(|id| !id.is_empty()),
        stored: !conversation.is_empty(),
        signs,
        messages,
        ..Top::new(WireFormat::OpenAiResponses, fields)
    }
}

/// Reads codex's ids from the body, because a proxy before guard may have dropped the headers.
fn signs(metadata: &Fields<'_>) -> Signs {
    let mut signs = Signs::default();
    let plain = [("session_id", Sign::Session), ("thread_id", Sign::Thread)];
    let headers = CLIENTS.iter().flat_map(|client| client.headers.iter().copied());
    for (name, sign) in headers.chain(plain) {
        if let Some(value) = metadata.string(name) {
            signs.take(sign, &value);
        }
    }
    signs
}

pub(super) fn read_message(item: &Value) -> Message {
    if let Some(prompt) = item.as_str() {
        return message(Role::User, vec![text(prompt)]);
    }
    let kind = str_of(item, "type");
    let id = str_of(item, "call_id");
    if !id.is_empty() && kind.ends_with("_output") {
        return message(Role::Tool, vec![answer(item, id)]);
    }
    // Calls that the server ran itself have no `call_id`, and nothing to answer.
    if !id.is_empty() {
        let name = Some(str_of(item, "name")).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| kind.strip_suffix("_call").unwrap_or(kind));
        // Built-in tools have their arguments under other names.
        let arguments = ["arguments", "input", "action", "operation"];
        let arguments = arguments.iter().find_map(|field| item.get(field));
        let call = call(id, name, arguments.unwrap_or(&Value::Null));
        return message(Role::Assistant, vec![call]);
    }
    if kind == "reasoning" {
        let summary = elements(item.get("summary").unwrap_or(&Value::Null));
        let text = summary.iter().map(|part| str_of(part, "text")).collect();
        return message(Role::Assistant, vec![Part::Reasoning { text }]);
    }
    // References, compacted histories and calls of the server are the model's part of the history.
    if item.get("role").is_none() {
        return message(Role::Assistant, vec![text(&stand_in(item))]);
    }
    let parts = elements(item.get("content").unwrap_or(&Value::Null)).iter().map(part).collect();
    message(role(str_of(item, "role")), parts)
}

fn part(part: &Value) -> Part {
    match part.as_str().or_else(|| part.get("text")?.as_str()) {
        Some(found) => text(found),
        None if part.get("refusal").is_some() => {
            Part::Refusal { text: str_of(part, "refusal").to_owned() }
        }
        None => text(&stand_in(part)),
    }
}

fn answer(item: &Value, id: &str) -> Part {
    let output = item.get("output").unwrap_or(&Value::Null);
    // An object wraps the content with a flag.
    let success = output.get("success").and_then(Value::as_bool);
    let failed =
        success == Some(false) || matches!(str_of(item, "status"), "failed" | "incomplete");
    let content = match output.get("content") {
        Some(content) => joined(content),
        None if output.is_array() => joined(output),
        None => text_of(output),
    };
    result(id, str_of(item, "name"), content, failed)
}
