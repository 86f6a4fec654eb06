//! OpenAI Responses. Its history is a list of items: messages, calls and results are items of their
//! own, as codex sends them.

use super::fields::Fields;
use super::parts::{
    call, elements, elements_mut, joined, message, result, role, stand_in, str_of, take_text, text,
    text_of,
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
        background: fields.has("background") && fields.raw("background") != Some("false"),
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

pub(super) fn read_message(item: &mut Value) -> Message {
    if item.is_string() {
        return message(Role::User, vec![text(take_text(item).unwrap_or_default())]);
    }
    if !str_of(item, "call_id").is_empty() && str_of(item, "type").ends_with("_output") {
        return message(Role::Tool, vec![answer(item)]);
    }
    let kind = str_of(item, "type");
    let id = str_of(item, "call_id");
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
        return message(Role::Assistant, vec![text(stand_in(item))]);
    }
    let parts = item.get_mut("content").map(elements_mut).unwrap_or_default();
    let parts = parts.iter_mut().map(part).collect();
    message(role(str_of(item, "role")), parts)
}

fn part(part: &mut Value) -> Part {
    match take_text(part) {
        Some(found) => text(found),
        None if part.get("refusal").is_some() => {
            Part::Refusal { text: str_of(part, "refusal").to_owned() }
        }
        None => text(stand_in(part)),
    }
}

fn answer(item: &mut Value) -> Part {
    let has_failed = matches!(str_of(item, "status"), "failed" | "incomplete");
    let mut nothing = Value::Null;
    let output = item.get_mut("output").unwrap_or(&mut nothing);
    // An object wraps the content with a flag.
    let success = output.get("success").and_then(Value::as_bool);
    let content = match output {
        Value::Object(wrapper) => match wrapper.get_mut("content") {
            Some(content) => joined(content),
            None => text_of(output),
        },
        _ => joined(output),
    };
    let failed = has_failed || success == Some(false);
    result(str_of(item, "call_id"), str_of(item, "name"), content, failed)
}
