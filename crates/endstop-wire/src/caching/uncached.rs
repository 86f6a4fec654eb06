//! A request without what it carries for prompt caching, to compare it with another.

use serde_json::Value;

/// Removes cache marks and the key of the conversation from a request. They affect the price of a
/// call, but not the prompt.
pub fn without_marks(mut request: Value) -> Value {
    if let Some(fields) = request.as_object_mut() {
        fields.shift_remove("prompt_cache_key");
    }
    remove(&mut request);
    // Anthropic's system prompt must be a list if it has a mark, and is otherwise sent as a string.
    if let Some(text) = only_text(&request["system"]) {
        request["system"] = text.into();
    }
    request
}

/// Returns the text of a list with a single block of text.
fn only_text(blocks: &Value) -> Option<String> {
    match blocks.as_array()?.as_slice() {
        [block] if block["type"] == "text" => block["text"].as_str().map(str::to_owned),
        _ => None,
    }
}

fn remove(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.retain(|item| item.get("cachePoint").is_none());
            items.iter_mut().for_each(remove);
        }
        Value::Object(fields) => {
            fields.shift_remove("cache_control");
            fields.values_mut().for_each(remove);
        }
        _ => {}
    }
}
