//! Cohere's `/v2/chat`. Its requests differ from those of Chat Completions in few places.

use super::chat::{calls_of, content_part};
use super::fields::Fields;
use super::parts::{elements, elements_mut, message, result, role, str_of, text_of};
use super::tools::tools_of;
use super::top::{Top, asks_for_json};
use endstop_core::{Message, Part, Role};
use endstop_wire::WireFormat;
use serde_json::Value;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Top<'a> {
    let choice = fields.string("tool_choice");
    Top {
        tools: tools_of(fields, "tools"),
        schema: asks_for_json(&fields.value("response_format")),
        tool_choice: choice.is_some_and(|choice| choice.eq_ignore_ascii_case("required")),
        thinking: fields.object("thinking").value("token_budget").as_u64(),
        messages: fields.list("messages"),
        ..Top::new(WireFormat::CohereV2, fields)
    }
}

pub(super) fn read_message(value: &mut Value) -> Message {
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
