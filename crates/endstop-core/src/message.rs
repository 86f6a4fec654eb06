//! Messages: what a conversation is made of, the same for every provider.
//!
//! A message is a list of typed parts. What a provider wants back unread (thinking signatures,
//! encrypted reasoning, cache marks) travels as [`Part::Opaque`]. The history is append-only
//! within an epoch, so that what was encoded once stays encoded.
//!
//! ```
//! use endstop_core::{Message, MessageId, Role};
//! let m = Message::text(MessageId(1), Role::User, "Fix the failing test.");
//! assert_eq!(m.plain_text(), "Fix the failing test.");
//! ```

use crate::signal::TerminationSignal;
use crate::usage::{NanoUsd, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A message's place in its conversation; stable, never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MessageId(pub u64);

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The user, or the loop on the user's behalf (nudges, repairs).
    User,
    /// The model.
    Assistant,
    /// Results of the tools that the assistant message before asked for.
    Tool,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Its place in the conversation.
    pub id: MessageId,
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// Whether a compaction must keep it as it is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Visible text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning that the provider showed in clear; never sent back as text.
    Reasoning {
        /// The reasoning.
        text: String,
    },
    /// A tool that the model asks the client to run.
    ToolCall(ToolCall),
    /// The answer to a tool call.
    ToolResult(ToolResult),
    /// The model's refusal, where the provider keeps it apart from the text.
    Refusal {
        /// The refusal.
        text: String,
    },
    /// An image.
    Image(Image),
    /// What a provider wants back unread.
    Opaque {
        /// The wire format it belongs to (`anthropic-messages`); other formats leave it out.
        api: String,
        /// The JSON text, exactly as it came.
        json: String,
    },
}

/// An image, inline or by address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// Bytes in base64.
    Base64 {
        /// `image/png` …
        media_type: String,
        /// The bytes.
        data: String,
    },
    /// An address that the provider fetches.
    Url(String),
}

/// A tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id; results name it.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, the JSON text as the model wrote it (it may not parse).
    pub arguments: String,
}

impl ToolCall {
    /// The arguments as a JSON object; blank text is an empty object.
    ///
    /// # Errors
    /// What is wrong with the text, for the model to read.
    pub fn parsed_arguments(&self) -> Result<Map<String, Value>, String> {
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => Err(format!(
                "the arguments of `{}` must be a JSON object, not {}",
                self.name,
                kind_of(&other)
            )),
            Err(e) => Err(format!("the arguments of `{}` are not valid JSON: {e}", self.name)),
        }
    }
}

fn kind_of(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// How a tool call ended; each call moves once from pending to one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It ran and succeeded.
    Ok,
    /// It ran and failed, or was unknown, or its arguments were bad.
    Error,
    /// Permissions or a person refused it.
    Denied,
    /// It ran out of time and was stopped.
    Timeout,
    /// It was stopped with its run; whether it may have run is said by `started`.
    Aborted,
    /// The run ended, or the turn was cut, before it was its turn.
    Skipped,
}

impl ToolStatus {
    /// `true` for all but [`ToolStatus::Ok`].
    pub const fn is_error(self) -> bool {
        !matches!(self, ToolStatus::Ok)
    }

    /// The string form: `timeout`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ToolStatus::Ok => "ok",
            ToolStatus::Error => "error",
            ToolStatus::Denied => "denied",
            ToolStatus::Timeout => "timeout",
            ToolStatus::Aborted => "aborted",
            ToolStatus::Skipped => "skipped",
        }
    }
}

/// What a tool call was answered with.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call it answers.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// How the call ended.
    pub status: ToolStatus,
    /// What the model is told.
    pub content: String,
    /// Whether the tool had started: an aborted one that had may have done part of its work.
    pub started: bool,
    /// Whether a compaction must keep it as it is, with its call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Message {
    /// A message of these parts.
    pub fn new(id: MessageId, role: Role, parts: Vec<Part>) -> Message {
        Message { id, role, parts, pinned: false }
    }

    /// A message of one text part.
    pub fn text(id: MessageId, role: Role, text: impl Into<String>) -> Message {
        Message::new(id, role, vec![Part::Text { text: text.into() }])
    }

    /// The same, pinned: no compaction drops or changes it.
    #[must_use]
    pub fn pin(mut self) -> Message {
        self.pinned = true;
        self
    }

    /// The visible text of all its text parts, joined.
    pub fn plain_text(&self) -> String {
        joined_text(&self.parts)
    }

    /// The tool calls it asks for.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        calls(&self.parts)
    }

    /// The results it gives.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|p| if let Part::ToolResult(r) = p { Some(r) } else { None })
    }

    /// An upper bound on its size in tokens: its bytes (no tokenizer makes more than one token of
    /// a byte) and a few for the frame.
    pub fn byte_len(&self) -> u64 {
        self.parts.iter().map(Part::byte_len).sum::<u64>() + 16
    }
}

impl Part {
    /// Returns whether this part is reasoning alone, in clear or as the provider's opaque block:
    /// no provider accepts an assistant message that consists of nothing else.
    pub fn is_reasoning(&self) -> bool {
        match self {
            Part::Reasoning { .. } => true,
            Part::Opaque { json, .. } => is_reasoning_block(json),
            _ => false,
        }
    }

    /// Its text in bytes, ids and names included.
    pub fn byte_len(&self) -> u64 {
        let n = match self {
            Part::Text { text } | Part::Reasoning { text } | Part::Refusal { text } => text.len(),
            Part::ToolCall(c) => c.id.len() + c.name.len() + c.arguments.len(),
            Part::ToolResult(r) => r.call_id.len() + r.name.len() + r.content.len(),
            // An image is billed by its area, not its bytes; this bounds the usual ceilings.
            Part::Image(_) => 4096,
            Part::Opaque { json, .. } => json.len(),
        };
        n as u64
    }
}

/// Returns whether an opaque block is reasoning: by its `type`, or, in formats without one, because
/// all of its fields are (`reasoning_details`, Bedrock's `reasoningContent`, Cohere's `tool_plan`).
fn is_reasoning_block(json: &str) -> bool {
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(json) else {
        return false;
    };
    match fields.get("type") {
        Some(kind) => {
            matches!(kind.get(), r#""thinking""# | r#""redacted_thinking""# | r#""reasoning""#)
        }
        None => {
            !fields.is_empty()
                && fields.keys().all(|key| key.starts_with("reasoning") || key == "tool_plan")
        }
    }
}

fn joined_text(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        if let Part::Text { text } = part {
            out.push_str(text);
        }
    }
    out
}

fn calls(parts: &[Part]) -> impl Iterator<Item = &ToolCall> {
    parts.iter().filter_map(|p| if let Part::ToolCall(c) = p { Some(c) } else { None })
}

/// One model response, decoded: what was said, why it stopped, what it used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelTurn {
    /// What was said, in order.
    pub parts: Vec<Part>,
    /// Why the model stopped.
    pub signal: TerminationSignal,
    /// What it used.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's id of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// What the provider says that it billed; `None`: priced from the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// The output cap that was in force, where the response tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cap: Option<u64>,
    /// The mean token probability (0 to 1), where log-probabilities were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Why its tool calls could not be parsed, where they could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unparseable: Option<String>,
    /// The provider reported no finish value, although its format has one and its dialect is not
    /// known to omit it: the answer may be cut.
    #[serde(default, skip_serializing_if = "is_false")]
    pub finish_missing: bool,
    /// The finish value announces a tool call, and the response has none: the server probably could
    /// not parse it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub call_missing: bool,
}

impl ModelTurn {
    /// A turn of these parts with nothing else known.
    pub fn new(parts: Vec<Part>, signal: TerminationSignal) -> ModelTurn {
        ModelTurn {
            parts,
            signal,
            usage: Usage::default(),
            model: None,
            response_id: None,
            cost: None,
            output_cap: None,
            confidence: None,
            unparseable: None,
            finish_missing: false,
            call_missing: false,
        }
    }

    /// The visible text, joined.
    pub fn text(&self) -> String {
        joined_text(&self.parts)
    }

    /// The tool calls it asks the client to run.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        calls(&self.parts)
    }
}
