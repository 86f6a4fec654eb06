//! The form of a derived schema that the structured outputs of all providers take.
//!
//! ```text
//! {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}
//! {"type": "integer", "description": "(minimum: 0, maximum: 255)"}
//! ```
//!
//! Anthropic's API refuses bounds, and requires that objects forbid other fields. The model reads
//! the bounds in the description, and the answer is validated with the original schema.

use serde_json::{Map, Value};

/// Keywords that some providers refuse.
const BOUNDS: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "pattern",
];

/// The formats that providers take. Those of integers, such as `uint8`, only repeat the bounds.
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// Keywords whose value is a schema, a list of schemas, or a map of schemas.
const ONE: &[&str] = &["items", "additionalProperties", "not", "contains"];
const LISTS: &[&str] = &["anyOf", "oneOf", "allOf", "prefixItems"];
const MAPS: &[&str] = &["properties", "$defs", "definitions"];

/// Returns the schema in the form that all providers take.
pub(super) fn portable(mut schema: Value) -> Value {
    change(&mut schema);
    if let Value::Object(fields) = &mut schema {
        fields.shift_remove("title");
    }
    schema
}

fn change(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    // Only the keywords below contain schemas; a `default` or an `enum` may look like one.
    for (name, value) in fields.iter_mut() {
        let name = name.as_str();
        match value {
            Value::Array(list) if LISTS.contains(&name) => list.iter_mut().for_each(change),
            Value::Object(map) if MAPS.contains(&name) => map.values_mut().for_each(change),
            value if ONE.contains(&name) => change(value),
            _ => {}
        }
    }
    describe_bounds(fields);
    if fields.get("format").and_then(Value::as_str).is_some_and(|f| !FORMATS.contains(&f)) {
        fields.shift_remove("format");
    }
    if fields.contains_key("properties") {
        fields.entry("additionalProperties").or_insert(Value::Bool(false));
    }
}

/// Moves the bounds into the description.
fn describe_bounds(fields: &mut Map<String, Value>) {
    let mut bounds = Vec::new();
    for bound in BOUNDS {
        if let Some(value) = fields.shift_remove(*bound) {
            bounds.push(format!("{bound}: {value}"));
        }
    }
    if bounds.is_empty() {
        return;
    }
    let bounds = format!("({})", bounds.join(", "));
    let text = match fields.get("description").and_then(Value::as_str) {
        Some(text) => format!("{text} {bounds}"),
        None => bounds,
    };
    fields.insert("description".to_owned(), text.into());
}
