//! Decodes the messages of a model call's span: its input and its output, in each convention.
//!
//! ```text
//! let given = message::given(&span);
//! let answer = message::answered(&span);     // None: the output is not recorded
//! ```

use super::span::Span;
use crate::model::{Call, CallResult};
use crate::read::build::fields::{
    self, Fields, append, arguments, content, list, object, peek, text,
};
use endstop_core::bounded_json;
use serde_json::Value;
use std::collections::BTreeMap;

/// A message, or a part of a turn.
#[derive(Default)]
pub(super) struct Message {
    pub(super) role: String,
    pub(super) text: String,
    pub(super) reasoning: String,
    pub(super) calls: Vec<Call<'static>>,
    pub(super) results: Vec<CallResult<'static>>,
    pub(super) finish_reason: Option<String>,
    /// Parts of any other type.
    pub(super) others: Vec<Value>,
}

/// Returns `true` for attributes whose content becomes steps, so that it is not stored twice.
pub(super) fn is_said(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.definitions",
        "gen_ai.prompt",
        "gen_ai.completion",
        "pydantic_ai.all_messages",
        "all_messages_events",
        "events",
        "ai.prompt",
        "ai.prompt.messages",
        "ai.prompt.tools",
        "ai.response.text",
        "ai.response.toolCalls",
        "ai.response.object",
        "ai.response.reasoning",
        "logfire.json_schema",
        "model_request_parameters",
    ];
    const PREFIXES: &[&str] = &[
        "llm.input_messages.",
        "llm.output_messages.",
        "llm.tools.",
        "gen_ai.prompt.",
        "gen_ai.completion.",
        "llm.request.functions.",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns the messages that the model received.
pub(super) fn given(span: &Span) -> Vec<Message> {
    let mut messages = Vec::new();
    // In the GenAI conventions the system prompt is a separate attribute.
    if let Some(value) = json(span, "gen_ai.system_instructions") {
        let mut others = Vec::new();
        let text = parts_text(value, &mut others);
        messages.push(Message { role: "system".to_owned(), text, others, ..Message::default() });
    }
    // The first source with content wins, because an SDK may write the same messages in several
    // conventions.
    for name in ["gen_ai.input.messages", "ai.prompt.messages", "gen_ai.prompt"] {
        if let Some(Value::Array(list)) = json(span, name) {
            messages.extend(list.into_iter().filter_map(of_json));
            return messages;
        }
    }
    for name in ["llm.input_messages", "gen_ai.prompt"] {
        let nested = nested(&span.attributes, name);
        if !nested.is_empty() {
            messages.extend(nested.into_iter().map(of_nested));
            return messages;
        }
    }
    messages.extend(of_events(span).into_iter().filter(|message| message.role != "choice"));
    messages
}

/// Returns the model's output; `None` if it is not recorded.
pub(super) fn answered(span: &Span) -> Option<Message> {
    let all: Vec<Message> = if let Some(Value::Array(list)) = json(span, "gen_ai.output.messages") {
        list.into_iter().filter_map(of_json).collect()
    } else {
        let mut all = Vec::new();
        for name in ["llm.output_messages", "gen_ai.completion"] {
            if all.is_empty() {
                all = nested(&span.attributes, name).into_iter().map(of_nested).collect();
            }
        }
        if all.is_empty() {
            all.extend(of_ai_sdk(span));
        }
        if all.is_empty() {
            all = of_events(span).into_iter().filter(|message| message.role == "choice").collect();
        }
        all
    };
    // A response may be split over several messages: its text in one, its calls in another.
    all.into_iter().reduce(|mut whole, more| {
        append(&mut whole.text, &more.text);
        append(&mut whole.reasoning, &more.reasoning);
        whole.calls.extend(more.calls);
        whole.results.extend(more.results);
        whole.others.extend(more.others);
        whole.finish_reason = more.finish_reason.or(whole.finish_reason);
        whole
    })
}

/// Returns an attribute that is JSON, encoded as a string or not.
pub(super) fn json(span: &Span, name: &str) -> Option<Value> {
    match span.attributes.get(name)? {
        Value::String(text) => bounded_json::from_str(text).ok(),
        other => Some(other.clone()),
    }
}

fn parts_text(value: Value, others: &mut Vec<Value>) -> String {
    match value {
        Value::Array(parts) => {
            let mut said = String::new();
            for part in parts {
                match peek_text(&part) {
                    Some(text) => append(&mut said, text),
                    None => others.push(part),
                }
            }
            said
        }
        other => content(Some(other), others),
    }
}

fn peek_text(part: &Value) -> Option<&str> {
    match part {
        Value::String(text) => Some(text),
        part if part["type"] == "text" => {
            part["content"].as_str().or_else(|| part["text"].as_str())
        }
        _ => None,
    }
}

/// Decodes a message of the GenAI conventions, or of the AI SDK, whose parts have other names.
fn of_json(value: Value) -> Option<Message> {
    let Value::Object(mut map) = value else { return None };
    let mut message = Message {
        role: text(&mut map, "role").unwrap_or_default(),
        finish_reason: text(&mut map, "finish_reason"),
        ..Message::default()
    };
    for call in list(&mut map, "tool_calls").unwrap_or_default() {
        if let Value::Object(call) = call {
            message.calls.push(call_of(call));
        }
    }
    let tool_call_id = text(&mut map, "tool_call_id");
    match map.shift_remove("parts").or_else(|| map.shift_remove("content")) {
        Some(Value::Array(parts)) => {
            for part in parts {
                of_part(part, &mut message);
            }
        }
        other => message.text = content(other, &mut message.others),
    }
    // A tool message with plain content is the result of a call.
    if message.role == "tool" && message.results.is_empty() {
        message.results.push(CallResult {
            call_id: tool_call_id.map(Into::into),
            content: std::mem::take(&mut message.text).into(),
            ..CallResult::default()
        });
    }
    Some(message)
}

fn of_part(part: Value, message: &mut Message) {
    if let Some(text) = peek_text(&part) {
        return append(&mut message.text, text);
    }
    let Value::Object(mut part) = part else { return message.others.push(part) };
    match peek(&part, "type") {
        Some("tool_call" | "tool-call") => message.calls.push(call_of(part)),
        Some("tool_call_response" | "tool-result") => {
            let id = ["id", "toolCallId"].iter().find_map(|key| text(&mut part, key));
            let told =
                ["response", "result", "output"].iter().find_map(|key| part.shift_remove(*key));
            message.results.push(CallResult {
                call_id: id.map(Into::into),
                content: told.map(as_text).unwrap_or_default().into(),
                ..CallResult::default()
            });
        }
        Some("reasoning" | "thinking") => {
            let thought = ["content", "text"].iter().find_map(|key| peek(&part, key));
            append(&mut message.reasoning, thought.unwrap_or_default());
        }
        _ => message.others.push(Value::Object(part)),
    }
}

/// Decodes a call; its fields have different names in each convention.
fn call_of(mut map: Fields) -> Call<'static> {
    let mut function = object(&mut map, "function").unwrap_or_default();
    let id = ["id", "toolCallId", "tool_call_id"].iter().find_map(|key| text(&mut map, key));
    let name = ["name", "toolName"].iter().find_map(|key| text(&mut map, key));
    let asked = ["arguments", "args", "input"].iter().find_map(|key| map.shift_remove(*key));
    for kind in ["type", "toolCallType"] {
        map.shift_remove(kind);
    }
    Call {
        id: id.map(Into::into),
        name: name.or_else(|| text(&mut function, "name")).unwrap_or_default().into(),
        arguments: arguments(asked.or_else(|| function.shift_remove("arguments"))),
        extra: fields::extra(map),
    }
}

/// Converts a result to the text that the model received.
pub(super) fn as_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        // The AI SDK wraps results as `{"type", "value"}`.
        Value::Object(map) if map.get("value").is_some() && map.len() == 2 => {
            map.get("value").cloned().map(as_text).unwrap_or_default()
        }
        other => other.to_string(),
    }
}

/// Returns the elements of a list that is flattened into attributes: `PREFIX.N.…`.
fn nested(attributes: &Fields, prefix: &str) -> Vec<Fields> {
    // A `BTreeMap`, because attributes are not ordered by index.
    let mut elements: BTreeMap<u64, Fields> = BTreeMap::new();
    for (name, value) in attributes {
        let Some(rest) = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')) else {
            continue;
        };
        let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
        if let Ok(index) = index.parse() {
            elements.entry(index).or_default().insert(rest.to_owned(), value.clone());
        }
    }
    elements.into_values().collect()
}

/// Decodes a message of OpenInference (`message.content`) or of OpenLLMetry (`content`).
fn of_nested(map: Fields) -> Message {
    let map: Fields = map
        .into_iter()
        .map(|(name, value)| (name.strip_prefix("message.").unwrap_or(&name).to_owned(), value))
        .collect();
    let field = |name: &str| peek(&map, name).map(str::to_owned);
    let mut message = Message {
        role: field("role").unwrap_or_default(),
        finish_reason: field("finish_reason"),
        ..Message::default()
    };
    match map.get("content") {
        // A list of parts, encoded as a string.
        Some(Value::String(text)) if text.starts_with("[{") => match bounded_json::from_str(text) {
            Ok(Value::Array(parts)) => {
                for part in parts {
                    of_part(part, &mut message);
                }
            }
            _ => message.text.clone_from(text),
        },
        Some(Value::String(text)) => message.text.clone_from(text),
        _ => {
            for part in nested(&map, "contents") {
                let part = |name: &str| peek(&part, &format!("message_content.{name}"));
                match (part("type"), part("text")) {
                    (Some("reasoning" | "thinking"), Some(text)) => {
                        append(&mut message.reasoning, text);
                    }
                    (_, Some(text)) => append(&mut message.text, text),
                    (kind, None) => message.others.push(Value::from(kind.unwrap_or("part"))),
                }
            }
        }
    }
    for call in nested(&map, "tool_calls") {
        let part = |names: [&str; 2]| {
            let mut values = names
                .into_iter()
                .map(|name| call.get(name).or_else(|| call.get(&format!("tool_call.{name}"))));
            values.find_map(Option::<&Value>::cloned)
        };
        let string = |names| part(names).and_then(|v| v.as_str().map(str::to_owned));
        message.calls.push(Call {
            id: string(["id", "call_id"]).map(Into::into),
            name: string(["function.name", "name"]).unwrap_or_default().into(),
            arguments: arguments(part(["function.arguments", "arguments"])),
            extra: None,
        });
    }
    if message.role == "tool" || map.contains_key("tool_call_id") {
        message.results.push(CallResult {
            call_id: field("tool_call_id").map(Into::into),
            content: std::mem::take(&mut message.text).into(),
            ..CallResult::default()
        });
    }
    message
}

/// Decodes the response as the AI SDK records it.
fn of_ai_sdk(span: &Span) -> Option<Message> {
    let said = span.text(&["ai.response.text", "ai.response.object"]);
    let calls = json(span, "ai.response.toolCalls");
    if said.is_none() && calls.is_none() {
        return None;
    }
    let mut message = Message { text: said.unwrap_or_default().to_owned(), ..Message::default() };
    let thought = span.text(&["ai.response.reasoning"]).unwrap_or_default();
    append(&mut message.reasoning, thought);
    if let Some(Value::Array(calls)) = calls {
        for call in calls {
            if let Value::Object(call) = call {
                message.calls.push(call_of(call));
            }
        }
    }
    Some(message)
}

/// Decodes messages recorded as span events, as in earlier versions of the conventions; the
/// response is a `choice`.
fn of_events(span: &Span) -> Vec<Message> {
    let of = |name: &str, mut body: Fields| {
        let role = match name {
            "gen_ai.system.message" => "system",
            "gen_ai.user.message" => "user",
            "gen_ai.assistant.message" => "assistant",
            "gen_ai.tool.message" => "tool",
            "gen_ai.choice" => "choice",
            _ => return None,
        };
        let finish_reason = text(&mut body, "finish_reason");
        let mut body = object(&mut body, "message").unwrap_or(body);
        // The id of a tool message's event is the id of the call.
        if let Some(id) = text(&mut body, "id") {
            body.insert("tool_call_id".to_owned(), Value::String(id));
        }
        // A list of calls, encoded as a string.
        if let Some(calls) = text(&mut body, "tool_calls") {
            body.insert(
                "tool_calls".to_owned(),
                bounded_json::from_str(&calls).unwrap_or_default(),
            );
        }
        body.insert("role".to_owned(), Value::from(role));
        let mut message = of_json(Value::Object(body))?;
        message.finish_reason = finish_reason;
        Some(message)
    };
    let events = span.events.iter().filter_map(|(name, body)| of(name, body.clone()));
    let mut messages: Vec<Message> = events.collect();
    // Logfire stores the events in an attribute instead.
    if messages.is_empty()
        && let Some(Value::Array(list)) = json(span, "events")
    {
        messages.extend(list.into_iter().filter_map(|event| {
            let Value::Object(mut event) = event else { return None };
            let name = text(&mut event, "event.name")?;
            of(&name, event)
        }));
    }
    messages
}
