//! The core of `endstop detect`: a provider's raw response in, the turn's signal out.
//!
//! ```
//! use serde_json::json;
//! let row = json!({"id": "1", "api": "openai-chat", "status": 200,
//!     "body": r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#});
//! let out = endstop_wire::detect::detect(&row)?;
//! assert_eq!(out["signal"]["reason"], "natural_completion");
//! # Ok::<(), endstop_wire::detect::DetectError>(())
//! ```

use crate::api::{UnknownApi, dialect};
use crate::bounded::depth;
use crate::decode::{Decoded, RequestFacts, decode_body};
use crate::headers::Headers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_core::{Part, Usage};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt;

/// The deepest arguments that are printed as an object.
const ARGUMENTS_DEPTH: usize = 100;

/// A row that cannot be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectError {
    /// The api is not one that is understood.
    Api(UnknownApi),
    /// A field is missing or not what it should be.
    Field(&'static str),
}

impl fmt::Display for DetectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DetectError::Api(e) => e.fmt(f),
            DetectError::Field(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for DetectError {}

/// Reads one row `{"id", "api", "status", "headers", "body", "body_encoding", "request"}` and
/// makes the object that `endstop detect` prints.
pub fn detect(row: &Value) -> Result<Value, DetectError> {
    let api = row["api"].as_str().ok_or(DetectError::Field(
        "`api` must be a text, such as openai-chat or anthropic-messages",
    ))?;
    let dialect = dialect(api).map_err(DetectError::Api)?;
    let status = match &row["status"] {
        Value::Null => 200,
        v => v
            .as_u64()
            .and_then(|n| u16::try_from(n).ok())
            .ok_or(DetectError::Field("`status` must be an HTTP status, such as 200"))?,
    };
    let mut headers = Headers::new();
    for (name, value) in
        object(row, "headers", "`headers` must be an object")?.into_iter().flatten()
    {
        match value {
            Value::String(s) => headers.push(name, s),
            Value::Array(list) => {
                for s in list.iter().filter_map(Value::as_str) {
                    headers.push(name, s);
                }
            }
            other => headers.push(name, other.to_string()),
        }
    }
    let base64 = match &row["body_encoding"] {
        Value::Null => false,
        Value::String(encoding) if encoding == "utf-8" => false,
        Value::String(encoding) if encoding == "base64" => true,
        _ => return Err(DetectError::Field("`body_encoding` must be \"utf-8\" or \"base64\"")),
    };
    let body = row.get("body").ok_or(DetectError::Field("`body` is missing"))?;
    let body: Cow<'_, [u8]> = match body {
        Value::Null => Cow::Borrowed(b""),
        Value::String(s) if base64 => Cow::Owned(
            STANDARD.decode(s.trim()).map_err(|_| DetectError::Field("`body` is not base64"))?,
        ),
        Value::String(s) => Cow::Borrowed(s.as_bytes()),
        other => Cow::Owned(other.to_string().into_bytes()),
    };
    object(row, "request", "`request` must be an object")?;
    let facts = request_facts(&row["request"]);
    let decoded = decode_body(dialect, status, &headers, &body, &facts);
    let mut out = printed(&decoded);
    if let Some(id) = row.get("id") {
        let mut with_id = Map::new();
        with_id.insert("id".to_owned(), id.clone());
        with_id.extend(std::mem::take(&mut out));
        out = with_id;
    }
    Ok(Value::Object(out))
}

/// An object of a row; null is as good as absent.
fn object<'a>(
    row: &'a Value,
    key: &str,
    wrong: &'static str,
) -> Result<Option<&'a Map<String, Value>>, DetectError> {
    match &row[key] {
        Value::Null => Ok(None),
        Value::Object(map) => Ok(Some(map)),
        _ => Err(DetectError::Field(wrong)),
    }
}

/// What a request's JSON says that decoding its response needs to know.
pub fn request_facts(request: &Value) -> RequestFacts {
    let given = |v: &Value| match v {
        Value::String(s) => !s.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    // Gemini's, Bedrock's and Ollama's have a place of their own.
    let config = match &request["generationConfig"] {
        Value::Null => &request["inferenceConfig"],
        config => config,
    };
    let options = &request["options"];
    RequestFacts {
        stop_strings: given(&request["stop"])
            || given(&request["stop_sequences"])
            || given(&config["stopSequences"])
            || given(&options["stop"]),
        output_cap: ["max_completion_tokens", "max_tokens", "max_output_tokens"]
            .iter()
            .find_map(|k| request[*k].as_u64())
            .or_else(|| ["maxOutputTokens", "maxTokens"].iter().find_map(|k| config[*k].as_u64()))
            .or_else(|| options["num_predict"].as_u64()),
    }
}

/// The object for a response that was decoded.
pub fn printed(decoded: &Decoded) -> Map<String, Value> {
    let signal = &decoded.signal;
    let value = if decoded.value_missing && signal.provider_specific.original_value.is_empty() {
        Value::Null
    } else {
        Value::from(signal.provider_specific.original_value.clone())
    };
    let parts: &[Part] = decoded.turn.as_ref().map_or(&[], |t| &t.parts);
    let mut text = String::new();
    let mut refusal = String::new();
    let mut reasoning = 0;
    let mut calls = Vec::new();
    for part in parts {
        match part {
            Part::Text { text: t } => text.push_str(t),
            Part::Refusal { text: t } => refusal.push_str(t),
            Part::Reasoning { text: t } => reasoning += t.chars().count(),
            Part::ToolCall(call) => {
                // Deeper ones are a text, since a reader of the line would refuse them.
                let arguments = (depth(&call.arguments) <= ARGUMENTS_DEPTH)
                    .then(|| call.parsed_arguments().ok())
                    .flatten()
                    .map_or_else(|| Value::from(call.arguments.clone()), Value::Object);
                calls.push(json!({"id": call.id, "name": call.name, "arguments": arguments}));
            }
            _ => {}
        }
    }
    let none = Usage::default();
    let usage = decoded.turn.as_ref().map_or(&none, |t| &t.usage);
    let object = json!({
        "signal": {
            "should_terminate": signal.should_terminate,
            "reason": signal.reason.as_str(),
            "confidence": signal.confidence,
            "provider_specific": {
                "original_field": signal.provider_specific.original_field,
                "original_value": value,
                "metadata": signal.provider_specific.metadata,
            },
            "message": signal.message,
        },
        "turn": {
            "text": text,
            "reasoning_chars": reasoning,
            "tool_calls": calls,
            "refusal": if refusal.is_empty() { Value::Null } else { Value::from(refusal) },
        },
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_input_tokens": usage.cached_input_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        },
        "model": decoded.turn.as_ref().and_then(|t| t.model.clone()),
        "error": decoded.error.as_ref().map(|e| json!({
            "class": e.class.as_str(),
            "status": e.status,
            "message": e.message,
            "retry_after_ms": e.retry_after_ms,
            "category": e.class.category(),
        })),
    });
    match object {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
