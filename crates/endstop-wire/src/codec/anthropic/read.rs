//! Reads requests of the Messages API, also inside Bedrock's InvokeModel and on Vertex.

use crate::codec::request::cap::CapPlace;
use crate::codec::request::fields::{Fields, folded};
use crate::codec::request::members::Holds::{
    Any, Edits, Messages, Nothing, Object, Parts, Tools, Word,
};
use crate::codec::request::members::{Member, Members, THINKING, TIER};
use crate::codec::request::parts::{
    call, message_of, result, stand_in, str_of, take_joined, take_text, text,
};
use crate::codec::request::read::{
    RequestHead, RequestReader, asks_for_json, forces_tool, named_tool,
};
use crate::codec::request::tools::tools_of;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::{Message, Part};
use serde_json::Value;

const MEMBERS: &[Member] = &[
    ("model", Any),
    ("messages", Messages),
    ("system", Parts),
    ("tools", Tools),
    ("tool_choice", Any),
    ("stream", Any),
    ("temperature", Any),
    ("top_p", Any),
    ("top_k", Any),
    ("stop_sequences", Any),
    ("thinking", THINKING),
    ("output_config", Object(&[("effort", Any), ("format", Any), ("task_budget", Any)])),
    ("output_format", Any),
    ("context_management", Object(&[("edits", Edits)])),
    ("metadata", Any),
    ("cache_control", Any),
    // Whether the stored part of a conversation is known is asked elsewhere.
    ("thread", Any),
    ("service_tier", TIER),
    ("speed", TIER),
    ("anthropic_version", Any),
    ("anthropic_beta", Any),
    ("container", Nothing),
    ("mcp_servers", Nothing),
    ("fallbacks", Nothing),
    ("inference_geo", Word(&["global"])),
];

/// The reader of requests.
pub(crate) static READER: RequestReader = RequestReader {
    format: WireFormat::Anthropic,
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
    // `output_config` also holds the effort, so only its format asks for JSON.
    let format = fields.object("output_config").value("format");
    RequestHead {
        previous_response: continued(fields),
        tools: tools_of(fields, "tools"),
        schema: asks_for_json(&format) || asks_for_json(&fields.value("output_format")),
        tool_choice: forces_tool(&fields.value("tool_choice")),
        named_tool: named_tool(&fields.value("tool_choice")),
        thinking: fields.object("thinking").value("budget_tokens").as_u64(),
        user_id: fields.object("metadata").string("user_id"),
        messages: fields.list("messages"),
        ..RequestHead::of(fields)
    }
}

/// Returns the id of the message that a request continues: after the creation of a message thread, a request has only
/// the new messages, without system and tools. Empty if the thread is not written plainly, so that a server may read
/// an id where this reader does not: such an id is not known.
fn continued(fields: &Fields<'_>) -> Option<String> {
    let mut threads =
        fields.iter().filter(|(name, text)| folded(name) == "thread" && *text != "null");
    threads.next()?;
    let thread = fields.object("thread");
    let is_plain = !fields.is_ambiguous("thread")
        && !["type", "previous_message_id"].into_iter().any(|name| thread.is_ambiguous(name));
    let id = thread.string("previous_message_id").filter(|id| is_plain && !id.is_empty());
    let is_new = is_plain && thread.string("type").as_deref() == Some("create");
    if is_new { id } else { Some(id.unwrap_or_default()) }
}

fn read_message(value: &mut Value) -> Message {
    message_of(value, "content", part)
}

fn part(block: &mut Value) -> Part {
    if block.is_string() {
        return text(take_text(block).unwrap_or_default());
    }
    match str_of(block, "type") {
        "tool_use" => call(
            str_of(block, "id"),
            str_of(block, "name"),
            block.get("input").unwrap_or(&Value::Null),
        ),
        "tool_result" => {
            let content = take_joined(block, "content");
            let failed = block.get("is_error").and_then(Value::as_bool) == Some(true);
            result(str_of(block, "tool_use_id"), "", content, failed)
        }
        "thinking" => Part::Reasoning { text: str_of(block, "thinking").to_owned() },
        "redacted_thinking" => Part::Reasoning { text: String::new() },
        "text" => text(take_text(block).unwrap_or_default()),
        _ => text(stand_in(block)),
    }
}
