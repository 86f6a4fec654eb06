//! Decodes a span of any exporter: attributes by dotted names, times in nanoseconds, and the kind
//! of operation.
//!
//! ```text
//! let span = Span::from(map)?;
//! match span.kind { Kind::Chat => …, Kind::Tool => …, Kind::Agent => …, Kind::Other(name) => … }
//! ```

use crate::read::build::fields::{self, Fields, object, peek, text};
use crate::read::build::record::count;
use crate::time::unix_nanos;
use serde_json::{Map, Value};

pub(super) struct Span {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) name: String,
    /// Nanoseconds since 1970.
    pub(super) start: Option<u64>,
    pub(super) end: Option<u64>,
    pub(super) failed: bool,
    /// The message of its status.
    pub(super) message: Option<String>,
    pub(super) kind: Kind,
    pub(super) attributes: Fields,
    /// The span's events: `(name, attributes)`.
    pub(super) events: Vec<(String, Fields)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A model call.
    Chat,
    Tool,
    Agent,
    /// Any other kind, with its name.
    Other(String),
}

/// Returns `true` if an object is a span.
pub(super) fn is_one(map: &Fields) -> bool {
    let has_trace = |map: &Fields| map.contains_key("traceId") || map.contains_key("trace_id");
    let of = |key: &str| map.get(key).and_then(Value::as_object).is_some_and(has_trace);
    map.contains_key("attributes") && (has_trace(map) || of("context") || of("spanContext"))
}

/// Removes the prefix `0x` that some exporters add to ids.
pub(super) fn plain_id(id: &str) -> String {
    id.strip_prefix("0x").unwrap_or(id).to_owned()
}

impl Span {
    pub(super) fn from(mut map: Fields) -> Result<Span, String> {
        let mut context = object(&mut map, "context")
            .or_else(|| object(&mut map, "spanContext"))
            .unwrap_or_default();
        // Exporters differ in the case of these names, and in whether the ids are nested.
        let mut id = |keys: [&str; 2]| {
            keys.into_iter()
                .find_map(|key| text(&mut map, key).or_else(|| text(&mut context, key)))
                .map(|id| plain_id(&id))
                .filter(|id| !id.is_empty())
        };
        let Some(own) = id(["spanId", "span_id"]) else {
            return Err("a span without its id".to_owned());
        };
        let parent =
            id(["parentSpanId", "parent_id"]).or_else(|| id(["parent_span_id", "parentId"]));
        let parent = parent.or_else(|| {
            let mut context = object(&mut map, "parentSpanContext")?;
            Some(plain_id(&text(&mut context, "spanId")?))
        });
        let mut attributes = attributes(map.shift_remove("attributes"));
        // Phoenix writes the kind next to the attributes, not among them.
        if let Some(kind) = text(&mut map, "span_kind") {
            attributes.entry("openinference.span.kind").or_insert(Value::String(kind));
        }
        let name = text(&mut map, "name").unwrap_or_default();
        let (failed, message) = status(&mut map);
        let kind = kind(&attributes, &name);
        Ok(Span {
            kind,
            start: ["startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time"]
                .iter()
                .find_map(|key| nanos(map.get(*key)?)),
            end: ["endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time"]
                .iter()
                .find_map(|key| nanos(map.get(*key)?)),
            events: events(map.shift_remove("events")),
            id: own,
            parent,
            name,
            failed,
            message,
            attributes,
        })
    }

    /// Returns a string attribute, under the first of these names that is present.
    pub(super) fn text(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| peek(&self.attributes, name))
    }

    /// Returns a count attribute, under the first of these names that is present.
    pub(super) fn count(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| {
            let value = self.attributes.get(*name)?;
            // Some SDKs write counts as strings.
            count(value).or_else(|| value.as_str()?.parse().ok())
        })
    }

    /// Returns a number attribute, under the first of these names that is present.
    pub(super) fn number(&self, names: &[&str]) -> Option<f64> {
        names.iter().find_map(|name| {
            let value = self.attributes.get(*name)?;
            let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
            // `NaN` and `Infinity` parse as numbers.
            number.is_finite().then_some(number)
        })
    }
}

/// Decodes attributes in either encoding into dotted names.
pub(super) fn attributes(value: Option<Value>) -> Fields {
    let mut attributes = Fields::new();
    match value {
        Some(Value::Array(list)) => otlp_attributes(list, &mut attributes),
        Some(Value::Object(map)) => flatten(map, "", 0, &mut attributes),
        _ => {}
    }
    attributes
}

fn kind(attributes: &Fields, name: &str) -> Kind {
    let other = |name: &str| Kind::Other(name.to_owned());
    // The most specific convention first, because an instrumentation may set attributes of several.
    if let Some(kind) = peek(attributes, "openinference.span.kind") {
        return match kind {
            "LLM" => Kind::Chat,
            "TOOL" => Kind::Tool,
            "AGENT" => Kind::Agent,
            kind => other(kind),
        };
    }
    if let Some(operation) = peek(attributes, "gen_ai.operation.name") {
        return match operation {
            "chat" | "text_completion" | "generate_content" => Kind::Chat,
            "execute_tool" => Kind::Tool,
            "invoke_agent" | "invoke_workflow" => Kind::Agent,
            operation => other(operation),
        };
    }
    if let Some(operation) = peek(attributes, "ai.operationId") {
        return match operation {
            "ai.toolCall" => Kind::Tool,
            "ai.generateText" | "ai.streamText" | "ai.generateObject" | "ai.streamObject" => {
                Kind::Agent
            }
            _ if operation.ends_with(".doGenerate") || operation.ends_with(".doStream") => {
                Kind::Chat
            }
            operation => other(operation),
        };
    }
    match peek(attributes, "traceloop.span.kind") {
        Some("agent" | "workflow") => return Kind::Agent,
        Some("tool") => return Kind::Tool,
        Some(kind) => return other(kind),
        None => {}
    }
    if matches!(peek(attributes, "llm.request.type"), Some("chat" | "completion")) {
        return Kind::Chat;
    }
    // Early SDK versions do not name the operation, so it is inferred from other attributes.
    if ["gen_ai.tool.name", "tool.name"].iter().any(|key| attributes.contains_key(*key)) {
        return Kind::Tool;
    }
    if attributes.contains_key("agent_name") {
        return Kind::Agent;
    }
    other(name)
}

/// Decodes OTLP attributes: a list of names, each with a typed value.
fn otlp_attributes(list: Vec<Value>, to: &mut Fields) {
    for entry in list {
        let Value::Object(mut entry) = entry else { continue };
        if let (Some(key), Some(value)) = (text(&mut entry, "key"), entry.shift_remove("value")) {
            match otlp_value(value) {
                Value::Object(map) if !WHOLE.contains(&key.as_str()) => flatten(map, &key, 0, to),
                value => drop(to.insert(key, value)),
            }
        }
    }
}

fn otlp_value(value: Value) -> Value {
    let Value::Object(mut typed) = value else { return value };
    for key in ["stringValue", "boolValue", "bytesValue"] {
        if let Some(value) = typed.shift_remove(key) {
            return value;
        }
    }
    // The JSON encoding of Protocol Buffers allows numbers in strings.
    if let Some(value) = typed.shift_remove("doubleValue") {
        let number = value.as_str().and_then(|text| text.parse().ok());
        return number.and_then(serde_json::Number::from_f64).map_or(value, Value::Number);
    }
    // OTLP encodes integers as strings, because they may exceed the precision of a JSON number.
    if let Some(value) = typed.shift_remove("intValue") {
        let number = value.as_str().and_then(|text| text.parse::<i64>().ok());
        return number.map_or(value, Value::from);
    }
    if let Some(Value::Object(mut array)) = typed.shift_remove("arrayValue") {
        let values = fields::list(&mut array, "values").unwrap_or_default();
        return Value::Array(values.into_iter().map(otlp_value).collect());
    }
    if let Some(Value::Object(mut list)) = typed.shift_remove("kvlistValue") {
        let mut map = Map::new();
        for entry in fields::list(&mut list, "values").unwrap_or_default() {
            let Value::Object(mut entry) = entry else { continue };
            if let (Some(key), Some(value)) = (text(&mut entry, "key"), entry.shift_remove("value"))
            {
                map.insert(key, otlp_value(value));
            }
        }
        return Value::Object(map);
    }
    Value::Null
}

/// Maximum depth to which nested attributes are flattened; deeper values stay objects.
const DEEPEST: u8 = 16;

/// Attributes with a value that is decoded as a whole. The conventions prefer objects and lists for
/// them, and fall back to JSON in a string.
const WHOLE: &[&str] = &[
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "ai.prompt.messages",
    "ai.prompt.tools",
    "ai.response.toolCalls",
    "ai.toolCall.args",
    "ai.toolCall.result",
    "events",
];

/// Flattens nested attributes into dotted names.
fn flatten(map: Fields, before: &str, depth: u8, to: &mut Fields) {
    for (key, value) in map {
        let name = if before.is_empty() { key } else { format!("{before}.{key}") };
        if WHOLE.contains(&name.as_str()) {
            to.insert(name, value);
            continue;
        }
        match value {
            Value::Object(map) if depth < DEEPEST => flatten(map, &name, depth + 1, to),
            // Only lists of objects are flattened. A list of scalars stays a value, as in OTLP.
            Value::Array(list) if depth < DEEPEST && list.iter().any(Value::is_object) => {
                let list = list.into_iter().enumerate();
                let map = list.map(|(i, value)| (i.to_string(), value)).collect();
                flatten(map, &name, depth + 1, to);
            }
            value => drop(to.insert(name, value)),
        }
    }
}

/// Returns whether the span failed, and the message of its status.
fn status(map: &mut Fields) -> (bool, Option<String>) {
    // 2 is the code for an error in OTLP; exporters write it as a number or as one of these names.
    let is_error = |code: &Value| {
        code.as_u64() == Some(2)
            || code.as_str().is_some_and(|code| matches!(code, "2" | "ERROR" | "STATUS_CODE_ERROR"))
    };
    let mut failed = map.get("status_code").is_some_and(is_error);
    let mut message = text(map, "status_message");
    match map.get_mut("status") {
        Some(Value::Object(status)) => {
            let code = status.get("code").or_else(|| status.get("status_code"));
            failed |= code.is_some_and(is_error);
            message = text(status, "message").or_else(|| text(status, "description")).or(message);
        }
        // Some exporters write the status as a bare code.
        Some(code) => failed |= is_error(code),
        None => {}
    }
    (failed, message.filter(|message| !message.is_empty()))
}

fn events(value: Option<Value>) -> Vec<(String, Fields)> {
    let Some(Value::Array(list)) = value else { return Vec::new() };
    let event = |event: Value| {
        let Value::Object(mut event) = event else { return None };
        let name = text(&mut event, "name")?;
        let mut attributes = Fields::new();
        // Events keep nested objects, because messages are decoded from them.
        match event.shift_remove("attributes") {
            Some(Value::Array(list)) => otlp_attributes(list, &mut attributes),
            Some(Value::Object(map)) => attributes = map,
            _ => {}
        }
        Some((name, attributes))
    };
    list.into_iter().filter_map(event).collect()
}

/// Converts a time to nanoseconds since 1970: a number or its text, seconds and nanoseconds, or ISO
/// 8601.
fn nanos(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::Array(parts) => {
            let part = |i: usize| parts.get(i)?.as_u64();
            part(0)?.checked_mul(1_000_000_000)?.checked_add(part(1)?)
        }
        Value::String(text) => text.parse().ok().or_else(|| unix_nanos(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn time_formats_are_equivalent() {
        let expected = 1_770_131_997_066_000_000;
        for value in [
            json!(1_770_131_997_066_000_000_u64),
            json!("1770131997066000000"),
            json!([1_770_131_997, 66_000_000]),
            json!("2026-02-03T15:19:57.066Z"),
            json!("2026-02-03T15:19:57.066000+00:00"),
            json!("2026-02-03T17:19:57.066+02:00"),
            json!("2026-02-03T10:49:57.066-0430"),
        ] {
            assert_eq!(nanos(&value), Some(expected), "{value}");
        }
        assert_eq!(nanos(&json!("yesterday")), None);
        assert_eq!(nanos(&json!("2026-13-03T15:19:57Z")), None);
    }

    #[test]
    fn nested_attributes_get_dotted_names() {
        let mut flat = Fields::new();
        let nested = json!({"llm": {"messages": [{"role": "user"}], "stop": ["a", "b"]}});
        flatten(nested.as_object().unwrap().clone(), "", 0, &mut flat);
        assert_eq!(
            Value::Object(flat),
            json!({"llm.messages.0.role": "user", "llm.stop": ["a", "b"]})
        );
    }
}
