//! Reads requests of the Responses API. The history is a list of items: messages, calls and results are items of their
//! own.

use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::Fields;
use crate::codec::request::members::Holds::{Any, MessagesOrText, Nothing, Parts, Tools};
use crate::codec::request::members::{Member, Members, REASONING, TIER};
use crate::codec::request::parts::{
    call, elements, elements_mut, joined, message, result, role, stand_in, str_of, take_text, text,
    text_of,
};
use crate::codec::request::read::{
    RequestHead, RequestReader, asks_for_json, forces_tool, named_tool,
};
use crate::codec::request::tools::tools_of;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::{Message, Part, Role};
use serde_json::Value;

const MEMBERS: &[Member] = &[
    ("model", Any),
    ("input", MessagesOrText),
    ("instructions", Parts),
    ("tools", Tools),
    ("tool_choice", Any),
    ("parallel_tool_calls", Any),
    ("max_tool_calls", Any),
    ("stream", Any),
    ("stream_options", Any),
    ("temperature", Any),
    ("top_p", Any),
    ("top_logprobs", Any),
    ("text", Any),
    ("reasoning", REASONING),
    ("include", Any),
    ("truncation", Any),
    ("store", Any),
    ("metadata", Any),
    ("client_metadata", Any),
    ("user", Any),
    ("safety_identifier", Any),
    ("prompt_cache_key", Any),
    ("prompt_cache_retention", Any),
    // Whether the stored part of a conversation is known is asked elsewhere.
    ("previous_response_id", Any),
    ("conversation", Any),
    ("background", Any),
    ("service_tier", TIER),
    ("prompt", Nothing),
    ("context_management", Nothing),
];

/// The reader of requests.
pub(super) static READER: RequestReader = RequestReader {
    format: WireFormat::OpenAiResponses,
    cap: CapPlace::at_top(&["max_output_tokens"]),
    members: Members { rows: MEMBERS, also_in_snake_case: false },
    streams_by_default: false,
    streamed: Delivery::Events,
    text_type: Some("input_text"),
    matches_results_by_name: false,
    head,
    message: read_message,
};

fn head<'a>(fields: &Fields<'a>) -> RequestHead<'a> {
    let mut messages = fields.list("input");
    // A prompt can be a plain string.
    if messages.is_empty() {
        messages.extend(fields.raw("input").filter(|text| text.starts_with('"')));
    }
    // A conversation that the provider stores is a thread, given by its id or as an object.
    let conversation = fields.object("conversation").string("id");
    let conversation = conversation.or_else(|| fields.string("conversation"));
    RequestHead {
        tools: tools_of(fields, "tools"),
        schema: asks_for_json(&fields.object("text").value("format")),
        tool_choice: forces_tool(&fields.value("tool_choice")),
        named_tool: named_tool(&fields.value("tool_choice")),
        previous_response: fields.string("previous_response_id").filter(|id| !id.is_empty()),
        conversation: conversation.filter(|id| !id.is_empty()),
        background: fields.has("background") && fields.raw("background") != Some("false"),
        client_metadata: fields.object("client_metadata"),
        messages,
        ..RequestHead::of(fields)
    }
}

fn read_message(item: &mut Value) -> Message {
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
