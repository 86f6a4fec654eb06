//! Parts of messages that the formats share. Texts are moved out of the parsed value, because they may be
//! long.

use endstop_core::{Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus};
use serde_json::Value;
use std::mem::take;

/// Creates a message that has no number yet.
pub(crate) fn message(role: Role, parts: Vec<Part>) -> Message {
    Message::new(MessageId::NEW, role, parts)
}

/// Reads a message of a format that has no role for results: a message of the user with nothing but
/// results is the tool's. `content` is the member with the parts.
pub(crate) fn message_of(
    value: &mut Value,
    content: &str,
    part: impl Fn(&mut Value) -> Part,
) -> Message {
    let blocks = value.get_mut(content).map(elements_mut).unwrap_or_default();
    let parts: Vec<Part> = blocks.iter_mut().map(part).collect();
    let results = parts.iter().all(|part| matches!(part, Part::ToolResult(_)));
    let role = match role(str_of(value, "role")) {
        Role::User if results && !parts.is_empty() => Role::Tool,
        role => role,
    };
    message(role, parts)
}

pub(crate) fn text(text: String) -> Part {
    Part::Text { text }
}

/// Takes the text of a part that is a string, or an object with a `text`.
pub(crate) fn take_text(part: &mut Value) -> Option<String> {
    let text = if part.is_object() { part.get_mut("text")? } else { part };
    match text {
        Value::String(text) => Some(take(text)),
        _ => None,
    }
}

/// Returns a member that is a string, or an empty string.
pub(crate) fn str_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the elements of a list; another value is one element, and `null` none.
pub(crate) fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(list) => list,
        Value::Null => &[],
        one => std::slice::from_ref(one),
    }
}

/// As [`elements`], to take their texts.
pub(crate) fn elements_mut(value: &mut Value) -> &mut [Value] {
    match value {
        Value::Array(list) => list,
        Value::Null => &mut [],
        one => std::slice::from_mut(one),
    }
}

/// Returns the text of a value: a string as it is, other values as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Takes the text of a member that is a result's content: a string, or the texts of its parts.
pub(crate) fn take_joined(value: &mut Value, member: &str) -> String {
    value.get_mut(member).map(joined).unwrap_or_default()
}

/// Takes the text of a result's content.
pub(crate) fn joined(content: &mut Value) -> String {
    let parts = match content {
        Value::Array(parts) => parts,
        // Most clients send results as strings.
        Value::String(text) => return take(text),
        other => return text_of(other),
    };
    let mut out = String::new();
    for part in parts {
        match part.get("text").and_then(Value::as_str) {
            Some(text) => out.push_str(text),
            None => out.push_str(&stand_in(part)),
        }
    }
    out
}

/// Names content that is not text. Guard reads a history and never sends it, so the data itself is
/// not stored.
pub(crate) fn stand_in(part: &Value) -> String {
    // Google's and Amazon's parts have a member instead of a type.
    let keys = || part.as_object().and_then(|members| members.keys().next());
    let kind = part.get("type").and_then(Value::as_str).or_else(|| keys().map(String::as_str));
    match kind {
        Some(kind) => format!("[{}]", kind.chars().take(64).collect::<String>()),
        None => text_of(part),
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: &Value) -> Part {
    let (id, name) = (id.to_owned(), name.to_owned());
    Part::ToolCall(ToolCall { id, name, arguments: text_of(arguments) })
}

pub(crate) fn result(id: &str, name: &str, content: String, failed: bool) -> Part {
    Part::ToolResult(ToolResult {
        call_id: id.to_owned(),
        name: name.to_owned(),
        status: if failed { ToolStatus::Error } else { ToolStatus::Ok },
        content,
        attachments: Vec::new(),
        started: true,
        pinned: false,
    })
}

/// Returns the role with this name. An unknown one is the user's, so that its text is not lost.
pub(crate) fn role(name: &str) -> Role {
    match name {
        "system" | "developer" => Role::System,
        "assistant" | "model" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        _ => Role::User,
    }
}
