//! Checks if a wire format takes a schema of the answer.
//!
//! ```
//! use endstop_wire::{WireFormat, params::check_output_schema};
//! use serde_json::json;
//! let tree = json!({
//!     "type": "object",
//!     "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}
//! });
//! assert!(check_output_schema(WireFormat::OpenAiChat, &tree).is_ok());
//! assert!(check_output_schema(WireFormat::Anthropic, &tree).is_err());
//! ```

use super::ParamError;
use crate::dialect::WireFormat;
use serde_json::Value;

/// Returns an error if the format does not take the schema: Anthropic's and Bedrock's structured
/// outputs take no recursive schemas.
///
/// # Errors
/// Names the reference that leads back to itself.
pub fn check_output_schema(format: WireFormat, schema: &Value) -> Result<(), ParamError> {
    let refuses = matches!(
        format,
        WireFormat::Anthropic | WireFormat::BedrockConverse | WireFormat::BedrockInvoke
    );
    match recursive_reference(schema).filter(|_| refuses) {
        None => Ok(()),
        Some(reference) => Err(ParamError::Invalid {
            param: "output_schema".to_owned(),
            problem: format!(
                "`{reference}` refers back to itself, and structured outputs of {format} take no recursive schema; limit the depth of the type, or use another format"
            ),
        }),
    }
}

/// Returns a reference within the schema that leads back to itself.
fn recursive_reference(schema: &Value) -> Option<&str> {
    find_cycle(schema, schema, &mut vec!["#"])
}

/// Follows each reference below `at`. `path` has the references that lead there.
fn find_cycle<'a>(root: &'a Value, at: &'a Value, path: &mut Vec<&'a str>) -> Option<&'a str> {
    match at {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                let reference = reference.as_str();
                if path.contains(&reference) {
                    return Some(reference);
                }
                if let Some(target) = reference.strip_prefix('#').and_then(|at| root.pointer(at)) {
                    path.push(reference);
                    let found = find_cycle(root, target, path);
                    path.pop();
                    if found.is_some() {
                        return found;
                    }
                }
            }
            // A definition counts only where it is used.
            let used =
                fields.iter().filter(|(name, _)| !matches!(name.as_str(), "$defs" | "definitions"));
            used.map(|(_, value)| value).find_map(|value| find_cycle(root, value, path))
        }
        Value::Array(list) => list.iter().find_map(|value| find_cycle(root, value, path)),
        _ => None,
    }
}
