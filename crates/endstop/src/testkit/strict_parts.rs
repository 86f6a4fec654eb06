//! Rules that the formats have in common: names of tools, and blank content.

use serde_json::Value;

/// Checks the name of a tool: 1 to 64 letters, digits, `_` or `-`.
pub(super) fn named(call: &Value, id: &str) -> Result<(), String> {
    let name = call["name"].as_str().unwrap_or_default();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match name.len() {
        0 => Err(format!("the call `{id}` has no name")),
        1..=64 if name.bytes().all(fits) => Ok(()),
        _ => Err(format!("the name of the call `{id}` is not a valid tool name")),
    }
}

/// `true` if the content is absent, a blank string, or a list without blocks.
pub(super) fn is_blank(content: &Value) -> bool {
    match content {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(blocks) => blocks.is_empty(),
        _ => true,
    }
}
