//! Detection of why a turn ended, from one raw provider response. This is the core of `endstop
//! detect`.
//!
//! ```
//! use serde_json::json;
//! let row = json!({"id": "1", "api": "openai-chat", "status": 200,
//!     "body": r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#});
//! let out = endstop_wire::detect::detect(&row)?;
//! assert_eq!(out["signal"]["reason"], "natural_completion");
//! # Ok::<(), endstop_wire::detect::DetectError>(())
//! ```

pub mod detector;

use crate::bounded::depth;
use crate::codec::{Decoded, RequestFacts, asks_for_several, decode_body};
use crate::dialect::{UnknownApi, WireFormat, dialect};
use crate::headers::Headers;
use crate::stream::sniff::{formats, part};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_core::{Part, Usage};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::fmt;

/// Maximum depth of tool arguments that are printed as an object.
const ARGUMENTS_DEPTH: usize = 100;

/// Error for a row that cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DetectError {
    /// The `api` is not a known dialect.
    Api(UnknownApi),
    /// A field is missing or invalid. The value is the complete message.
    Field(&'static str),
    /// The row has no `api`, and the body matches several formats (listed here) or none (empty
    /// list).
    Format(Vec<WireFormat>),
    /// The row has no `api`, and the body is not a whole response. The value names what it is.
    Part(&'static str),
    /// The body is empty, and neither an `api` nor a status tells what it was meant to be.
    Empty,
}

impl DetectError {
    /// Returns the error for a body that matches these formats, of which there is not exactly one.
    pub fn unrecognised(body: &[u8], formats: Vec<WireFormat>) -> DetectError {
        match formats.is_empty().then(|| part(body)).flatten() {
            Some(part) => DetectError::Part(part),
            None => DetectError::Format(formats),
        }
    }
}

impl fmt::Display for DetectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DetectError::Api(e) => e.fmt(f),
            DetectError::Field(what) => f.write_str(what),
            DetectError::Part(part) => write!(
                f,
                "this is {part}, and not a whole response; give the response as the provider's API or \
                 SDK returned it"
            ),
            DetectError::Empty => f.write_str(
                "the body is empty; give the body of the response, and its status if a server sent an \
                 empty one",
            ),
            // List every format, because the user has no other hint at which names exist.
            DetectError::Format(families) if families.is_empty() => {
                let known: Vec<&str> =
                    WireFormat::ALL.iter().map(|family| family.as_str()).collect();
                let known = known.join(", ");
                write!(
                    f,
                    "`api` is not given, and the body's format is not recognised; give one of {known}"
                )
            }
            DetectError::Format(families) => {
                let names: Vec<&str> = families.iter().map(|family| family.as_str()).collect();
                let names = names.join(" or ");
                write!(f, "`api` is not given, and the body may be {names}; give one of them")
            }
        }
    }
}

impl std::error::Error for DetectError {}

/// Evaluates one row `{"id", "api", "status", "headers", "body", "body_encoding", "request"}` and
/// returns the object that `endstop detect` prints.
///
/// Without an `api` the format is recognised by the body, and the object reports it as `api`.
///
/// # Errors
/// Fails if a field is missing or invalid, if the `api` is unknown, or if there is no `api` and the
/// body's format is ambiguous.
pub fn detect(row: &Value) -> Result<Value, DetectError> {
    look(row).map(|seen| seen.object)
}

/// Result of evaluating a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The object that `endstop detect` prints.
    pub object: Value,
    /// Format that the body clearly has, if decoding it as the given `api` found nothing.
    pub looks_like: Option<WireFormat>,
}

/// Like [`detect`], but also reports if the body clearly has another format than the given `api`.
///
/// # Errors
/// Same as [`detect`].
pub fn look(row: &Value) -> Result<Seen, DetectError> {
    let wrong = "`api` must be a string, such as openai-chat or anthropic-messages";
    let api = match (&row["api"], row) {
        (Value::String(api), _) => Some(api.as_str()),
        (Value::Null, Value::Object(_)) => None,
        _ => return Err(DetectError::Field(wrong)),
    };
    let given = api.map(dialect).transpose().map_err(DetectError::Api)?;
    let status = match &row["status"] {
        // A row without a status is taken for a successful response.
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
            // JSON exports of HTTP clients list repeated headers as an array.
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
        // A body that was parsed before is accepted as well; its JSON text is the same.
        other => Cow::Owned(other.to_string().into_bytes()),
    };
    object(row, "request", "`request` must be an object")?;
    let facts = request_facts(&row["request"]);
    let found = match given {
        Some(dialect) => dialect,
        None => match formats(&body)[..] {
            [family] => dialect(family.as_str()).map_err(DetectError::Api)?,
            ref other => return Err(DetectError::unrecognised(&body, other.to_vec())),
        },
    };
    let decoded = decode_body(found, status, &headers, &body, &facts);
    let mut out = Map::new();
    if let Some(id) = row.get("id") {
        out.insert("id".to_owned(), id.clone());
    }
    if given.is_none() {
        out.insert("api".to_owned(), found.name.into());
    }
    let mut object = Value::Object(out.into_iter().chain(printed(&decoded)).collect());
    let looks_like = given.and_then(|given| looks_like(&decoded, given.family, &body));
    if let Some(family) = looks_like {
        advise(&mut object, family);
    }
    Ok(Seen { object, looks_like })
}

/// Returns the other format that a body clearly has, if decoding it in the given format found
/// nothing.
fn looks_like(decoded: &Decoded, given: WireFormat, body: &[u8]) -> Option<WireFormat> {
    // Only parts count, because several formats share the names of the model and usage fields.
    let read = decoded.turn.as_ref().is_some_and(|turn| !turn.parts.is_empty());
    // Bedrock InvokeModel wraps other formats, so resembling one is not a mistake.
    if read || given == WireFormat::BedrockInvoke {
        return None;
    }
    match formats(body)[..] {
        [family] if family != given => Some(family),
        _ => None,
    }
}

/// Appends a hint to the messages that another format was probably meant.
fn advise(out: &mut Value, family: WireFormat) {
    let advice = format!("this looks like {family}; give that as the api");
    let joined = |message: &Value| match message.as_str() {
        Some(message) => format!("{message}; {advice}"),
        None => advice.clone(),
    };
    out["signal"]["message"] = joined(&out["signal"]["message"]).into();
    if out["error"].is_object() {
        out["error"]["message"] = joined(&out["error"]["message"]).into();
    }
}

/// Returns an object field of a row. A null field counts as absent.
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

/// Returns the facts that decoding needs from a request's JSON.
pub fn request_facts(request: &Value) -> RequestFacts {
    let given = |v: &Value| match v {
        Value::String(s) => !s.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    // Gemini, Bedrock and Ollama keep these settings in a nested object.
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
        // `max_completion_tokens` comes first because it supersedes OpenAI's `max_tokens`.
        output_cap: ["max_completion_tokens", "max_tokens", "max_output_tokens"]
            .iter()
            .find_map(|k| request[*k].as_u64())
            .or_else(|| ["maxOutputTokens", "maxTokens"].iter().find_map(|k| config[*k].as_u64()))
            .or_else(|| options["num_predict"].as_u64()),
        cached_for_hour: false,
        has_alternatives: asks_for_several(&request["n"]),
    }
}

/// Returns the printed object for a decoded response.
pub fn printed(decoded: &Decoded) -> Map<String, Value> {
    let signal = &decoded.signal;
    // Distinguish a missing value (`null`) from one that is an empty string.
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
                // Print deeper arguments as a string, because JSON parsers refuse deeply nested
                // lines.
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
