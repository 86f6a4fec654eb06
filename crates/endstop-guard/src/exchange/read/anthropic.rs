//! Anthropic Messages, also inside Bedrock's InvokeModel and on Vertex.

use super::fields::{Fields, folded};
use super::parts::{call, message_of, result, stand_in, str_of, take_joined, take_text, text};
use super::tools::tools_of;
use super::top::{Top, asks_for_json, forces_tool, named_tool};
use crate::exchange::signs::{Sign, Signs};
use endstop_core::{Message, Part};
use endstop_wire::WireFormat;
use serde_json::Value;

pub(super) fn read<'a>(fields: &Fields<'a>) -> Top<'a> {
    // `output_config` also holds the effort, so only its format asks for JSON.
    let format = fields.object("output_config").value("format");
    Top {
        previous_response: continued(fields),
        tools: tools_of(fields, "tools"),
        schema: asks_for_json(&format) || asks_for_json(&fields.value("output_format")),
        tool_choice: forces_tool(&fields.value("tool_choice")),
        named_tool: named_tool(&fields.value("tool_choice")),
        thinking: fields.object("thinking").value("budget_tokens").as_u64(),
        signs: signs(&fields.object("metadata").string("user_id").unwrap_or_default()),
        messages: fields.list("messages"),
        ..Top::new(WireFormat::Anthropic, fields)
    }
}

/// Returns the id of the message that a request continues: after the creation of a message thread, a request has only
/// the new messages, without system and tools. Empty if the thread is not written plainly, so that a server may read
/// an id where guard does not: such an id is not known.
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

/// Reads the session from `metadata.user_id`: a JSON object in a string, or in older versions
/// `user_…_account__session_ID`.
fn signs(user: &str) -> Signs {
    let mut signs = Signs::default();
    // Claude Code puts a JSON object into the string.
    let id = match serde_json::from_str::<Value>(user) {
        Ok(object) => str_of(&object, "session_id").to_owned(),
        Err(_) => user.rsplit_once("_session_").map_or("", |(_, id)| id).to_owned(),
    };
    signs.take(Sign::Session, &id);
    signs
}

pub(super) fn read_message(value: &mut Value) -> Message {
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
