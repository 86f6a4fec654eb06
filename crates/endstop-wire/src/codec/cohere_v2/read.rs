//! Reads requests of `/v2/chat`, which differ from those of Chat Completions in few places.

use crate::codec::openai_chat::read::{calls_of, content_part};
use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::Fields;
use crate::codec::request::members::Holds::{Any, Messages, Tools};
use crate::codec::request::members::{Member, Members, THINKING};
use crate::codec::request::parts::{
    elements, elements_mut, message, result, role, str_of, text_of,
};
use crate::codec::request::read::{RequestHead, RequestReader, asks_for_json};
use crate::codec::request::tools::tools_of;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::{Message, Part, Role};
use serde_json::Value;

const MEMBERS: &[Member] = &[
    ("model", Any),
    ("messages", Messages),
    ("tools", Tools),
    ("strict_tools", Any),
    ("tool_choice", Any),
    ("documents", Any),
    ("citation_options", Any),
    ("response_format", Any),
    ("safety_mode", Any),
    ("stream", Any),
    ("stop_sequences", Any),
    ("temperature", Any),
    ("seed", Any),
    ("frequency_penalty", Any),
    ("presence_penalty", Any),
    ("k", Any),
    ("p", Any),
    ("logprobs", Any),
    ("thinking", THINKING),
];

/// The reader of requests.
pub(super) static READER: RequestReader = RequestReader {
    format: WireFormat::CohereV2,
    cap: CapPlace::at_top(&["max_tokens"]),
    members: Members { rows: MEMBERS, also_in_snake_case: false },
    streams_by_default: false,
    streamed: Delivery::Events,
    text_type: Some("text"),
    matches_results_by_name: false,
    head,
    message: read_message,
};

fn head<'a>(fields: &Fields<'a>) -> RequestHead<'a> {
    let choice = fields.string("tool_choice");
    RequestHead {
        tools: tools_of(fields, "tools"),
        schema: asks_for_json(&fields.value("response_format")),
        tool_choice: choice.is_some_and(|choice| choice.eq_ignore_ascii_case("required")),
        thinking: fields.object("thinking").value("token_budget").as_u64(),
        messages: fields.list("messages"),
        ..RequestHead::of(fields)
    }
}

fn read_message(value: &mut Value) -> Message {
    let role = role(str_of(value, "role"));
    if role == Role::Tool {
        let content = value.get("content").unwrap_or(&Value::Null);
        let found = elements(content).iter().map(document).collect();
        return message(role, vec![result(str_of(value, "tool_call_id"), "", found, false)]);
    }
    let mut parts = Vec::new();
    let plan = str_of(value, "tool_plan");
    if !plan.is_empty() {
        parts.push(Part::Reasoning { text: plan.to_owned() });
    }
    for block in value.get_mut("content").map(elements_mut).unwrap_or_default() {
        parts.push(match str_of(block, "type") {
            "thinking" => Part::Reasoning { text: str_of(block, "thinking").to_owned() },
            _ => content_part(block),
        });
    }
    parts.extend(calls_of(value));
    message(role, parts)
}

/// Returns the text of a part of a result. Results are documents: an object whose `data` is text or
/// JSON.
fn document(part: &Value) -> String {
    let data = part.get("document").map(|document| document.get("data").unwrap_or(document));
    match data.or_else(|| part.get("text")) {
        Some(data) => text_of(data),
        None => text_of(part),
    }
}
