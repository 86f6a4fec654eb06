//! The rules of the formats whose conversations are not lists of messages: the items of OpenAI's
//! Responses, and the contents of Gemini.

use super::strict_parts::{is_blank, named};
use serde_json::Value;

/// The longest id of a call that OpenAI accepts.
const LONGEST_ID: usize = 64;

/// Checks the items of a Responses request.
pub(super) fn responses(items: &[Value]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let wrong = |what: &str| Err(format!("item {at}: {what}"));
        let kind = item["type"].as_str().unwrap_or("message");
        match kind {
            "message" => {
                if let Some(id) = open.first() {
                    return wrong(&format!("the call `{id}` has no result"));
                }
                if is_blank(&item["content"]) {
                    return wrong("the content is blank");
                }
            }
            "function_call" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                if id.is_empty() || id.len() > LONGEST_ID || open.contains(&id) {
                    return wrong(&format!("the call id `{id}` is empty, too long or used twice"));
                }
                named(item, id).map_err(|problem| format!("item {at}: {problem}"))?;
                let arguments = item["arguments"].as_str().unwrap_or_default();
                if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
                    return wrong(&format!("the arguments of `{id}` are not a JSON object"));
                }
                if item["id"].as_str().is_some_and(|own| !own.starts_with("fc_")) {
                    return wrong("the id of a call begins with `fc_`");
                }
                open.push(id);
            }
            "function_call_output" => {
                let id = item["call_id"].as_str().unwrap_or_default();
                let Some(place) = open.iter().position(|open| *open == id) else {
                    return wrong(&format!("the result `{id}` answers no call before it"));
                };
                open.remove(place);
            }
            "reasoning" => {
                // The server refuses reasoning without the item that came after it.
                let next = items.get(at + 1).and_then(|next| next["type"].as_str());
                if !matches!(next, Some("message" | "function_call" | "reasoning")) {
                    return wrong("reasoning without the item that follows it");
                }
                if !item["id"].as_str().is_some_and(|id| id.starts_with("rs_")) {
                    return wrong("the id of reasoning begins with `rs_`");
                }
            }
            "" => return wrong("an item has no type"),
            _ => {}
        }
    }
    match open.first() {
        Some(id) => Err(format!("item {}: the call `{id}` has no result", items.len())),
        None => Ok(()),
    }
}

/// The kinds of data of which a part has exactly one.
const DATA: [&str; 7] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
];

/// Checks the contents of a Gemini request, with the rules of Gemini 3 for signatures.
pub(super) fn gemini(contents: &[Value]) -> Result<(), String> {
    let mut called: Vec<&str> = Vec::new();
    for (at, content) in contents.iter().enumerate() {
        let wrong = |what: &str| Err(format!("content {at}: {what}"));
        let expected = if at % 2 == 0 { "user" } else { "model" };
        if content["role"] != expected {
            return wrong(&format!("expected the role `{expected}`"));
        }
        let parts = content["parts"].as_array().map_or(&[][..], Vec::as_slice);
        if parts.is_empty() {
            return wrong("there are no parts");
        }
        for part in parts {
            gemini_part(part).map_err(|problem| format!("content {at}: {problem}"))?;
        }
        let names = |kind: &str| -> Vec<&str> {
            let mut names: Vec<&str> =
                parts.iter().filter_map(|part| part[kind]["name"].as_str()).collect();
            names.sort_unstable();
            names
        };
        if names("functionResponse") != called {
            return wrong("the responses are not those of the calls directly before");
        }
        called = names("functionCall");
        if expected == "user" && !called.is_empty() {
            return wrong("a call of the user");
        }
        let is_current = contents[at + 1..].iter().all(|later| !is_input(later));
        let first = parts.iter().find(|part| part.get("functionCall").is_some());
        let signed =
            |part: &Value| part["thoughtSignature"].as_str().is_some_and(|s| !s.is_empty());
        if is_current && first.is_some_and(|part| !signed(part)) {
            return wrong("the first call of the current turn has no thought signature");
        }
    }
    if contents.len().is_multiple_of(2) {
        return Err("the last content is from the model".to_owned());
    }
    Ok(())
}

/// `true` if a content is the user's input, which begins a turn.
fn is_input(content: &Value) -> bool {
    let parts = content["parts"].as_array().map_or(&[][..], Vec::as_slice);
    content["role"] == "user" && parts.iter().any(|part| part.get("functionResponse").is_none())
}

fn gemini_part(part: &Value) -> Result<(), String> {
    let data: Vec<&str> = DATA.into_iter().filter(|kind| part.get(*kind).is_some()).collect();
    let [kind] = data[..] else {
        return Err(format!("a part has {} kinds of data: {data:?}", data.len()));
    };
    match kind {
        "text" if part["text"] == "" && part.get("thoughtSignature").is_none() => {
            Err("a text is empty".to_owned())
        }
        "functionCall" => {
            let call = &part[kind];
            named(call, "")?;
            if call["args"].is_object() { Ok(()) } else { Err("args are not an object".to_owned()) }
        }
        "functionResponse" if !part[kind]["response"].is_object() => {
            Err("a response is not an object".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{gemini, responses};
    use serde_json::{Value, json};

    #[test]
    fn responses_format_rejects_broken_conversations() {
        let user = json!({"type": "message", "role": "user", "content": "hi"});
        let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
        let result =
            |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
        let thought = json!({"type": "reasoning", "id": "rs_1", "summary": []});
        let whole = [user.clone(), thought.clone(), call("a"), call("b"), result("b"), result("a")];
        assert_eq!(responses(&whole), Ok(()));
        let torn = [
            vec![user.clone(), call("a")],
            vec![user.clone(), call("a"), user.clone(), result("a")],
            vec![user.clone(), result("a")],
            vec![user.clone(), call("a"), call("a"), result("a")],
            vec![user.clone(), call(&"a".repeat(65)), result(&"a".repeat(65))],
            vec![user.clone(), thought],
            vec![json!({"type": "message", "role": "user", "content": " "})],
        ];
        for items in torn {
            assert!(responses(&items).is_err(), "{items:?}");
        }
    }

    #[test]
    fn gemini_format_rejects_broken_conversations() {
        let user = json!({"role": "user", "parts": [{"text": "hi"}]});
        let call = json!({"functionCall": {"name": "f", "args": {}}});
        let mut signed = call.clone();
        signed["thoughtSignature"] = "s".into();
        let model = |parts: &[&Value]| json!({"role": "model", "parts": parts});
        let response = json!({"functionResponse": {"name": "f", "response": {"output": "r"}}});
        let answer = |parts: &[&Value]| json!({"role": "user", "parts": parts});
        let whole = [user.clone(), model(&[&signed, &call]), answer(&[&response, &response])];
        assert_eq!(gemini(&whole), Ok(()));
        // Signatures of earlier turns are not checked.
        let text = model(&[&json!({"text": "so"})]);
        let earlier =
            [user.clone(), model(&[&call]), answer(&[&response]), text.clone(), user.clone()];
        assert_eq!(gemini(&earlier), Ok(()));
        let torn = [
            vec![user.clone(), model(&[&call]), answer(&[&response])],
            vec![user.clone(), model(&[&signed]), answer(&[&response, &response])],
            vec![user.clone(), model(&[&signed]), user.clone()],
            vec![user.clone(), text.clone()],
            vec![user.clone(), user.clone(), user.clone()],
            vec![user.clone(), model(&[]), user.clone()],
            vec![user.clone(), model(&[&json!({"text": ""})]), user.clone()],
            vec![answer(&[&response])],
        ];
        for contents in torn {
            assert!(gemini(&contents).is_err(), "{contents:?}");
        }
    }
}
