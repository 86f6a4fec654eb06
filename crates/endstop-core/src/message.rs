//! Messages: the conversation in a form that is the same for every provider.
//!
//! A message is a list of typed parts. Content that a provider wants returned unchanged (thinking
//! signatures, encrypted reasoning, cache marks) is stored as [`Part::Opaque`]. The conversation is
//! append-only within an epoch, so that an encoder can cache what it has encoded.
//!
//! ```
//! use endstop_core::{Message, MessageId, Role};
//! let m = Message::text(MessageId(1), Role::User, "Fix the failing test.");
//! assert_eq!(m.plain_text(), "Fix the failing test.");
//! ```

use crate::media::{Attachment, Document, Image, ImageTokens};
use crate::signal::TerminationSignal;
use crate::usage::{NanoUsd, Usage};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Identifies a message within its conversation; stable, never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MessageId(
    /// The number of the message, from 1 in a new conversation.
    pub u64,
);

impl MessageId {
    /// The id of a message that has no number yet. A session numbers such messages when it receives
    /// them.
    pub const NEW: MessageId = MessageId(0);
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The system: instructions.
    System,
    /// The user, or the loop on the user's behalf (nudges, repairs).
    User,
    /// The model.
    Assistant,
    /// Results of the tools that the previous assistant message called.
    Tool,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Id of the message.
    pub id: MessageId,
    /// Author of the message.
    pub role: Role,
    /// Content, in order.
    pub parts: Vec<Part>,
    /// `true` if a compaction must keep the message unchanged.
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
    /// Reasoning in clear text; never sent back as text.
    Reasoning {
        /// The reasoning.
        text: String,
    },
    /// A tool call that the model requests.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// The model's refusal, if the provider separates it from the text.
    Refusal {
        /// The refusal.
        text: String,
    },
    /// An image.
    Image(Image),
    /// A document, for example a PDF.
    Document(Document),
    /// Provider data that must be returned unchanged.
    Opaque {
        /// The wire format it belongs to (`anthropic-messages`); other formats omit it.
        api: String,
        /// The JSON text, exactly as received.
        json: String,
    },
}

/// A tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id of the call; the result repeats it.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments: the JSON text as the model wrote it, which may not parse.
    pub arguments: String,
}

impl ToolCall {
    /// Parses the arguments as a JSON object; blank text is an empty object.
    ///
    /// # Errors
    /// The arguments are not JSON, or not an object. The message is for the model.
    pub fn parsed_arguments(&self) -> Result<Map<String, Value>, ArgumentsError> {
        // Several servers send an empty string for a call without arguments.
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => {
                Err(ArgumentsError::NotAnObject { tool: self.name.clone(), found: kind_of(&other) })
            }
            Err(error) => Err(ArgumentsError::NotJson { tool: self.name.clone(), error }),
        }
    }
}

/// The reason why the arguments of a call cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArgumentsError {
    /// The arguments are JSON, but not an object.
    NotAnObject {
        /// Name of the tool.
        tool: String,
        /// The kind of value, for example `a list`.
        found: &'static str,
    },
    /// The arguments are not JSON.
    NotJson {
        /// Name of the tool.
        tool: String,
        /// The error of the parser.
        error: serde_json::Error,
    },
}

impl fmt::Display for ArgumentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentsError::NotAnObject { tool, found } => {
                write!(f, "the arguments of `{tool}` must be a JSON object, not {found}")
            }
            ArgumentsError::NotJson { tool, error } => {
                write!(f, "the arguments of `{tool}` are not valid JSON: {error}")
            }
        }
    }
}

impl std::error::Error for ArgumentsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ArgumentsError::NotAnObject { .. } => None,
            ArgumentsError::NotJson { error, .. } => Some(error),
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

/// The final status of a tool call. Each call moves from pending to one of these, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolStatus {
    /// The tool ran and succeeded.
    Ok,
    /// The tool ran and failed, or is unknown, or its arguments were invalid.
    Error,
    /// A permission or a person denied the call.
    Denied,
    /// The call exceeded its time limit and was stopped.
    Timeout,
    /// The call was stopped with its run; `started` tells if it may have had effects.
    Aborted,
    /// The run ended, or the turn was truncated, before the call could start.
    Skipped,
}

impl fmt::Display for ToolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ToolStatus {
    /// `true` for every status but [`ToolStatus::Ok`].
    pub const fn is_error(self) -> bool {
        !matches!(self, ToolStatus::Ok)
    }

    /// The string form, for example `timeout`.
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

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolResult {
    /// Id of the call.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// Status of the call.
    pub status: ToolStatus,
    /// The text that the model reads.
    pub content: String,
    /// Images and documents, after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// `true` if the tool had started. An aborted call that had started may have done part of its
    /// work.
    pub started: bool,
    /// `true` if a compaction must keep the result unchanged, with its call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Message {
    /// Creates a message of these parts.
    pub fn new(id: MessageId, role: Role, parts: Vec<Part>) -> Message {
        Message { id, role, parts, pinned: false }
    }

    /// Creates a message of the user, for a session to number.
    pub fn user(text: impl Into<String>) -> Message {
        Message::text(MessageId::NEW, Role::User, text)
    }

    /// Creates a message of the model, for a session to number.
    pub fn assistant(text: impl Into<String>) -> Message {
        Message::text(MessageId::NEW, Role::Assistant, text)
    }

    /// Creates a message with one text part.
    pub fn text(id: MessageId, role: Role, text: impl Into<String>) -> Message {
        Message::new(id, role, vec![Part::Text { text: text.into() }])
    }

    /// Pins the message, so that no compaction drops or changes it.
    #[must_use]
    pub fn pin(mut self) -> Message {
        self.pinned = true;
        self
    }

    /// Returns the visible text of all text parts, joined.
    pub fn plain_text(&self) -> String {
        joined_text(&self.parts)
    }

    /// Iterates over the tool calls in the message.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        calls(&self.parts)
    }

    /// Iterates over the tool results in the message.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(|p| if let Part::ToolResult(r) = p { Some(r) } else { None })
    }

    /// Bytes of the message's text, and 16 for the framing. An image counts as 4096, a document as
    /// its data. [`token_bound`](Self::token_bound) is the bound on its tokens.
    pub fn byte_len(&self) -> u64 {
        self.parts.iter().map(Part::byte_len).sum::<u64>() + 16
    }
}

impl Part {
    /// `true` if the part is reasoning, in clear text or as the provider's opaque block. No
    /// provider accepts an assistant message that has nothing else.
    pub fn is_reasoning(&self) -> bool {
        match self {
            Part::Reasoning { .. } => true,
            // Signed or encrypted reasoning arrives as an opaque block.
            Part::Opaque { json, .. } => is_reasoning_block(json),
            _ => false,
        }
    }

    /// Bytes of the part's text, including ids and names.
    pub fn byte_len(&self) -> u64 {
        let n = match self {
            Part::Text { text } | Part::Reasoning { text } | Part::Refusal { text } => text.len(),
            Part::ToolCall(c) => c.id.len() + c.name.len() + c.arguments.len(),
            Part::ToolResult(r) => {
                let attachments: usize = r.attachments.iter().map(attachment_len).sum();
                r.call_id.len() + r.name.len() + r.content.len() + attachments
            }
            Part::Image(_) => IMAGE_LEN,
            Part::Document(document) => document.data.len(),
            Part::Opaque { json, .. } => json.len(),
        };
        n as u64
    }
}

/// The length that an image counts for.
const IMAGE_LEN: usize = 4096;

fn attachment_len(attachment: &Attachment) -> usize {
    match attachment {
        Attachment::Image(_) => IMAGE_LEN,
        Attachment::Document(document) => document.data.len(),
    }
}

/// `true` if an opaque block is reasoning: by its `type` or, in formats without one, if all of its
/// fields are reasoning (`reasoning_details`, Bedrock's `reasoningContent`, Cohere's `tool_plan`).
fn is_reasoning_block(json: &str) -> bool {
    // Only the field names and `type` matter, so the values stay unparsed: blocks can be large.
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

impl Attachment {
    /// Returns the part of a message with this content.
    pub fn into_part(self) -> Part {
        match self {
            Attachment::Image(image) => Part::Image(image),
            Attachment::Document(document) => Part::Document(document),
        }
    }
}

impl Part {
    /// Returns the image or the document in the part.
    pub fn attachment(&self) -> Option<Attachment> {
        match self {
            Part::Image(image) => Some(Attachment::Image(image.clone())),
            Part::Document(document) => Some(Attachment::Document(document.clone())),
            _ => None,
        }
    }
}

impl Message {
    /// `true` if the message has images or documents, also in the results of tools.
    pub fn has_attachments(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Image(_) | Part::Document(_) => true,
            Part::ToolResult(ToolResult { attachments, .. }) => !attachments.is_empty(),
            _ => false,
        })
    }
}

impl Message {
    /// Upper bound on the message's tokens: a token for each byte of text, because no tokenizer
    /// makes more, 16 for the framing, and the images by this rule.
    pub fn token_bound(&self, images: ImageTokens) -> u64 {
        self.parts.iter().map(|part| part.token_bound(images)).sum::<u64>() + 16
    }
}

impl Part {
    fn token_bound(&self, images: ImageTokens) -> u64 {
        match self {
            Part::Image(image) => images.of_image(image),
            Part::Document(document) => images.of_document(document),
            Part::ToolResult(result) => {
                let text = result.call_id.len() + result.name.len() + result.content.len();
                let more = result.attachments.iter().map(|one| images.of_attachment(one));
                text as u64 + more.sum::<u64>()
            }
            part => part.byte_len(),
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

/// A decoded model response: content, stop reason and usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelTurn {
    /// Content, in order.
    pub parts: Vec<Part>,
    /// The reason why the model stopped.
    pub signal: TerminationSignal,
    /// Usage of the response.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider's id of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Cost that the provider reports, or that the driver computed from the price of the service tier
    /// that the response reports; `None`: computed from the usage at the run's price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// The output cap that was in force, if the response reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cap: Option<u64>,
    /// The mean token probability (0 to 1), if log-probabilities were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Parse error of the tool calls, if they could not be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unparseable: Option<String>,
    /// `true` if the provider sent no finish value, although its format has one and its dialect is
    /// not known to omit it. The answer may be truncated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub finish_missing: bool,
    /// `true` if the finish value announces a tool call but the response has none, probably because
    /// the server could not parse it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub call_missing: bool,
}

impl ModelTurn {
    /// Creates a turn of these parts with no further information.
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

    /// Returns the visible text, joined.
    pub fn text(&self) -> String {
        joined_text(&self.parts)
    }

    /// Iterates over the tool calls in the turn.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        calls(&self.parts)
    }
}
