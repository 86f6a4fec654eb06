//! Checks the cache marks of a request as strictly as the providers that take them.
//!
//! ```
//! use endstop::testkit::cache_rules::problem;
//! use serde_json::json;
//! let body = json!({"messages": [{"role": "user", "content": [
//!     {"type": "text", "text": "", "cache_control": {"type": "ephemeral"}}]}]});
//! assert_eq!(problem("anthropic-messages", &body).as_deref(), Some("messages/0/content/0: an empty text is marked"));
//! ```
//!
//! The rules are those of "Prompt caching" in Anthropic's documentation and of "Prompt caching for
//! faster model inference" in the Bedrock user guide: at most four marks; on tools, the system
//! prompt, and the content of messages only; never on empty text or thinking; a longer lifetime
//! before a shorter one, in the order tools, system, messages.

use serde_json::Value;

/// The maximum number of marks.
const MOST: usize = 4;

/// Returns the first problem for which a provider of this format would reject the marks of a
/// request, or `None`. The formats are `anthropic-messages` and `bedrock-converse`; a request of
/// another format must have no marks.
pub fn problem(format: &str, body: &Value) -> Option<String> {
    let blocks = match format {
        "anthropic-messages" => blocks(body, "tools"),
        "bedrock-converse" => blocks(body, "toolConfig"),
        _ => Vec::new(),
    };
    let marked = match format {
        "anthropic-messages" => each(&blocks, |_, block| anthropic(block)),
        "bedrock-converse" => each(&blocks, |before, block| converse(before, block)),
        _ => Ok(Vec::new()),
    };
    let lifetimes = match marked {
        Ok(lifetimes) => lifetimes,
        Err(problem) => return Some(problem),
    };
    let all = count(body);
    if all != lifetimes.len() {
        let outside = all - lifetimes.len();
        return Some(format!("{outside} marks are at places that take none"));
    }
    if all > MOST {
        return Some(format!("{all} marks, at most {MOST} are allowed"));
    }
    let rising = lifetimes.windows(2).any(|pair| !pair[0] && pair[1]);
    rising.then(|| "a lifetime of an hour follows a shorter one".to_owned())
}

/// Returns the places that can be marked, in the order in which the provider reads them: the path,
/// the block before it in the same list, and the block.
fn blocks<'a>(body: &'a Value, tools: &str) -> Vec<(String, Option<&'a Value>, &'a Value)> {
    fn list<'a>(
        path: &str,
        list: &'a Value,
        all: &mut Vec<(String, Option<&'a Value>, &'a Value)>,
    ) {
        let items = list.as_array().map_or(&[][..], Vec::as_slice);
        for (at, block) in items.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| &items[before]);
            all.push((format!("{path}/{at}"), before, block));
        }
    }
    let mut all = Vec::new();
    let definitions = if tools == "tools" { &body["tools"] } else { &body[tools]["tools"] };
    list("tools", definitions, &mut all);
    list("system", &body["system"], &mut all);
    for (at, message) in body["messages"].as_array().into_iter().flatten().enumerate() {
        list(&format!("messages/{at}/content"), &message["content"], &mut all);
    }
    all
}

/// Applies a rule to each block and returns the lifetimes of the marks: `true` for an hour.
fn each<'a>(
    blocks: &[(String, Option<&'a Value>, &'a Value)],
    rule: impl Fn(Option<&'a Value>, &'a Value) -> Result<Option<bool>, &'static str>,
) -> Result<Vec<bool>, String> {
    let mut lifetimes = Vec::new();
    for (path, before, block) in blocks {
        let found = rule(*before, block).map_err(|problem| format!("{path}: {problem}"))?;
        lifetimes.extend(found);
    }
    Ok(lifetimes)
}

fn anthropic(block: &Value) -> Result<Option<bool>, &'static str> {
    let Some(mark) = block.get("cache_control") else { return Ok(None) };
    let kind = block["type"].as_str().unwrap_or_default();
    if matches!(kind, "thinking" | "redacted_thinking") {
        return Err("thinking is marked");
    }
    let blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
    if kind == "text" && blank(&block["text"]) {
        return Err("an empty text is marked");
    }
    if kind == "tool_result" && blank(&block["content"]) {
        return Err("an empty result is marked");
    }
    if mark["type"] != "ephemeral" {
        return Err("the type of a mark is not `ephemeral`");
    }
    lifetime(mark).map(Some)
}

fn converse(before: Option<&Value>, block: &Value) -> Result<Option<bool>, &'static str> {
    let Some(mark) = block.get("cachePoint") else { return Ok(None) };
    if block.as_object().is_none_or(|fields| fields.len() > 1) {
        return Err("a cache point has other members");
    }
    let Some(before) = before else { return Err("nothing precedes a cache point") };
    if before.get("cachePoint").is_some() {
        return Err("a cache point follows another");
    }
    if before.get("reasoningContent").is_some() {
        return Err("a cache point follows thinking");
    }
    if mark["type"] != "default" {
        return Err("the type of a cache point is not `default`");
    }
    lifetime(mark).map(Some)
}

fn lifetime(mark: &Value) -> Result<bool, &'static str> {
    match mark.get("ttl").map(|ttl| ttl.as_str().unwrap_or_default()) {
        None | Some("5m") => Ok(false),
        Some("1h") => Ok(true),
        Some(_) => Err("unknown lifetime"),
    }
}

/// Counts the marks anywhere in a value.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| match name.as_str() {
                "cache_control" | "cachePoint" => 1,
                _ => count(value),
            };
            fields.iter().map(of).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::problem;
    use serde_json::{Value, json};

    fn text(mark: impl Into<Value>) -> Value {
        let mark = mark.into();
        json!({"type": "text", "text": "hi", "cache_control": mark})
    }

    #[test]
    fn anthropic_rules_reject_wrong_marks() {
        let five = || json!({"type": "ephemeral"});
        let hour = || json!({"type": "ephemeral", "ttl": "1h"});
        let messages = |blocks: Value| json!([{"role": "user", "content": blocks}]);
        let good = json!({"tools": [{"name": "f", "cache_control": hour()}],
            "system": [text(five())], "messages": messages(json!([text(five())]))});
        assert_eq!(problem("anthropic-messages", &good), None);
        let torn = [
            json!({"messages": messages(json!([text(five()), text(five()), text(five()),
                text(five()), text(five())]))}),
            json!({"system": [text(five())], "messages": messages(json!([text(hour())]))}),
            json!({"messages": messages(json!([text(json!({"type": "forever"}))]))}),
            json!({"messages": messages(json!([text(json!({"type": "ephemeral", "ttl": "2h"}))]))}),
            json!({"messages": messages(json!([{"type": "thinking", "thinking": "hm",
                "signature": "s", "cache_control": five()}]))}),
            json!({"messages": messages(json!([{"type": "text", "text": " ",
                "cache_control": five()}]))}),
            json!({"messages": messages(json!([{"type": "tool_result", "tool_use_id": "a",
                "content": "", "cache_control": five()}]))}),
            json!({"messages": [{"role": "user", "content": "hi", "cache_control": five()}]}),
        ];
        for body in torn {
            assert!(problem("anthropic-messages", &body).is_some(), "{body}");
        }
        assert!(problem("openai-chat", &good).is_some());
    }

    #[test]
    fn converse_rules_reject_wrong_points() {
        let point = || json!({"cachePoint": {"type": "default"}});
        let messages = |blocks: Value| json!([{"role": "user", "content": blocks}]);
        let good = json!({"toolConfig": {"tools": [{"toolSpec": {"name": "f"}}, point()]},
            "system": [{"text": "s"}, point()], "messages": messages(json!([{"text": "t"}, point()]))});
        assert_eq!(problem("bedrock-converse", &good), None);
        let torn = [
            json!({"messages": messages(json!([point()]))}),
            json!({"messages": messages(json!([{"text": "t"}, point(), point()]))}),
            json!({"messages": messages(json!([{"reasoningContent": {}}, point()]))}),
            json!({"messages": messages(json!([{"text": "t"}, {"text": "u",
                "cachePoint": {"type": "default"}}]))}),
            json!({"messages": messages(json!([{"text": "t"}, {"cachePoint": {}}]))}),
            json!({"toolConfig": {"cachePoint": {"type": "default"}}, "messages": []}),
        ];
        for body in torn {
            assert!(problem("bedrock-converse", &body).is_some(), "{body}");
        }
    }
}
