//! Checks a conversation for everything that providers reject, as strictly as the strictest
//! provider.
//!
//! ```
//! use endstop::testkit::strict::problem;
//! use serde_json::json;
//! let orphan = json!({"messages": [
//!     {"role": "user", "content": "hi"},
//!     {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
//!         "function": {"name": "look", "arguments": "{}"}}]},
//!     {"role": "user", "content": "go on"},
//! ]});
//! assert_eq!(problem("openai-chat", &orphan).as_deref(), Some("message 2: the call `a` has no result"));
//! ```
//!
//! The checker supports `openai-chat`, `openai-responses`, `anthropic-messages` and `gemini`, the last
//! with the rules of Gemini 3 for thought signatures. The rules of the other formats are subsets of
//! these.

use super::strict_items::{gemini, responses};
use super::strict_parts::{is_blank, named};
use serde_json::Value;
use std::collections::HashSet;

/// Returns the first problem for which a provider of this format would reject the messages of a
/// request, or `None`.
pub fn problem(format: &str, body: &Value) -> Option<String> {
    let key = match format {
        "openai-responses" => "input",
        "gemini" => "contents",
        _ => "messages",
    };
    let Some(messages) = body[key].as_array().filter(|all| !all.is_empty()) else {
        return Some("there are no messages".to_owned());
    };
    let checked = match format {
        "openai-chat" => openai(messages),
        "openai-responses" => responses(messages),
        "anthropic-messages" => anthropic(messages),
        "gemini" => gemini(messages),
        _ => Err(format!("no rules are known for `{format}`")),
    };
    checked.err()
}

fn openai(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| Err(format!("message {at}: {what}"));
        let role = message["role"].as_str().unwrap_or_default();
        // Every call needs its result directly after it; another message in between is an error.
        if role != "tool"
            && let Some(id) = open.first()
        {
            return wrong(&format!("the call `{id}` has no result"));
        }
        match role {
            "system" | "developer" | "user" if is_blank(&message["content"]) => {
                return wrong("the content is blank");
            }
            "system" | "developer" | "user" => {}
            "assistant" => {
                let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                if calls.is_empty() && is_blank(&message["content"]) {
                    return wrong("there is neither content nor a call");
                }
                for call in calls {
                    let id = openai_call(call).map_err(|e| format!("message {at}: {e}"))?;
                    if !ids.insert(id) {
                        return wrong(&format!("the call id `{id}` is used twice"));
                    }
                    open.push(id);
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let Some(place) = open.iter().position(|open| *open == id) else {
                    return wrong(&format!("the result `{id}` answers no call before it"));
                };
                // Some servers number calls per turn, so an id may return once it is answered.
                ids.remove(open.remove(place));
                if !message["content"].is_string() && !message["content"].is_array() {
                    return wrong("the result has no content");
                }
            }
            other => return wrong(&format!("unknown role `{other}`")),
        }
    }
    match open.first() {
        Some(id) => Err(format!("message {}: the call `{id}` has no result", messages.len())),
        None => Ok(()),
    }
}

fn openai_call(call: &Value) -> Result<&str, String> {
    let id = call["id"].as_str().filter(|id| !id.is_empty()).ok_or("a call without an id")?;
    let function = &call["function"];
    named(function, id)?;
    let arguments = function["arguments"].as_str().unwrap_or_default();
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(_)) => Ok(id),
        _ => Err(format!("the arguments of `{id}` are not a JSON object: {arguments:?}")),
    }
}

fn anthropic(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| Err(format!("message {at}: {what}"));
        let role = message["role"].as_str().unwrap_or_default();
        // Anthropic merges consecutive messages of one role, but not every server of its format
        // does.
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if role != expected {
            return wrong(&format!("unexpected role `{role}`: expected `{expected}`"));
        }
        if is_blank(&message["content"]) {
            return wrong("the content is empty");
        }
        let blocks = message["content"].as_array().map_or(&[][..], Vec::as_slice);
        let mut said = false;
        for block in blocks {
            match block["type"].as_str().unwrap_or_default() {
                "tool_result" => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    let Some(place) = open.iter().position(|open| *open == id) else {
                        return wrong(&format!("the result `{id}` answers no call before it"));
                    };
                    // Results must come first in the message.
                    if said {
                        return wrong("a result follows other content");
                    }
                    open.remove(place);
                }
                "tool_use" => {
                    let id = block["id"].as_str().unwrap_or_default();
                    if id.is_empty() || !ids.insert(id) {
                        return wrong(&format!("the call id `{id}` is empty or used twice"));
                    }
                    if let Err(problem) = named(block, id) {
                        return wrong(&problem);
                    }
                    if !block["input"].is_object() {
                        return wrong(&format!("the input of `{id}` is not an object"));
                    }
                }
                "text" if is_blank(&block["text"]) => return wrong("a text block is blank"),
                "" => return wrong("a block has no type"),
                _ => said = true,
            }
        }
        if let Some(id) = open.first() {
            return wrong(&format!("the call `{id}` has no result"));
        }
        // Added after the check, because the results of these calls are in the next message.
        open.extend(
            blocks
                .iter()
                .filter(|block| block["type"] == "tool_use")
                .filter_map(|block| block["id"].as_str()),
        );
    }
    match open.first() {
        Some(id) => Err(format!("message {}: the call `{id}` has no result", messages.len())),
        None if messages.len().is_multiple_of(2) => {
            // A last message of the assistant is a prefill, which some models reject.
            Err("the last message is from the assistant".to_owned())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::problem;
    use serde_json::{Value, json};

    fn body(messages: &[Value]) -> Value {
        json!({"messages": messages})
    }

    #[test]
    fn openai_format_rejects_broken_conversations() {
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
        let user = json!({"role": "user", "content": "hi"});
        let calls = json!({"role": "assistant", "content": null, "tool_calls": [call("a", "{}"), call("b", "{}")]});
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
        let whole = [user.clone(), calls.clone(), result("b"), result("a"), user.clone()];
        assert_eq!(problem("openai-chat", &body(&whole)), None);
        let torn = [
            vec![user.clone(), calls.clone(), result("a")],
            vec![user.clone(), calls.clone(), result("a"), user.clone()],
            vec![user.clone(), calls.clone(), result("a"), result("b"), result("b")],
            vec![user.clone(), result("a")],
            vec![user.clone(), json!({"role": "assistant", "content": ""})],
            vec![json!({"role": "user", "content": " "})],
            vec![user.clone(), json!({"role": "assistant", "tool_calls": [call("a", "{")]})],
            vec![
                user,
                json!({"role": "assistant", "tool_calls": [call("a", "{}"), call("a", "{}")]}),
            ],
            vec![
                json!({"role": "user", "content": "hi"}),
                json!({"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
                    "function": {"name": "f g", "arguments": "{}"}}]}),
                result("a"),
            ],
            vec![],
        ];
        for messages in torn {
            assert!(problem("openai-chat", &body(&messages)).is_some(), "{messages:?}");
        }
    }

    #[test]
    fn anthropic_format_rejects_broken_conversations() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
        let calls = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]});
        let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "r"});
        let text = json!({"type": "text", "text": "and"});
        let answer = json!({"role": "user", "content": [result, text]});
        assert_eq!(
            problem("anthropic-messages", &body(&[user.clone(), calls.clone(), answer.clone()])),
            None
        );
        let torn = [
            vec![user.clone(), calls.clone()],
            vec![user.clone(), calls.clone(), user.clone()],
            vec![user.clone(), user.clone()],
            vec![calls.clone()],
            vec![user.clone(), calls.clone(), json!({"role": "user", "content": [text, result]})],
            vec![user.clone(), calls.clone(), answer.clone(), calls, answer.clone()],
            vec![
                user.clone(),
                json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f\n", "input": {}}]}),
                answer,
            ],
            vec![user.clone(), json!({"role": "assistant", "content": []})],
            vec![user, json!({"role": "assistant", "content": [{"type": "text", "text": " "}]})],
        ];
        for messages in torn {
            assert!(problem("anthropic-messages", &body(&messages)).is_some(), "{messages:?}");
        }
    }
}
