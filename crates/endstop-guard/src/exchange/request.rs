//! A model call as its body describes it, in one model for all formats.

use super::route::{Call, Delivery, Route};
use super::signs::{CLIENTS, Sign, Signs};
use super::strict;
use endstop_core::{Message, bounded_json};
use endstop_wire::WireFormat;
use endstop_wire::codec::request::{Fields, RequestHead, RequestReader};
use endstop_wire::codec::request_reader;
use endstop_wire::dialect::CapField;
use serde_json::Value;
use std::cell::OnceCell;
use std::fmt;
use std::ops::Range;

/// The largest body that is read, in bytes. Claude Code's bodies have up to 32 MB.
const LARGEST: usize = 64 << 20;
/// The most memory that the values of a body may need, in bytes.
const HEAVIEST: u64 = 256 << 20;

/// The reason why a body cannot be read. The call still passes through, but guard cannot place it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The route is not a model call.
    #[error("the request is not a model call")]
    NotAModelCall,
    /// The body is larger than guard reads.
    #[error("the body has {bytes} bytes; guard reads at most {LARGEST}")]
    Large {
        /// The size of the body in bytes.
        bytes: usize,
    },
    /// The body would need too much memory.
    #[error("the body has too many values")]
    Heavy,
    /// The body is not a JSON object in UTF-8.
    #[error("the body is not a JSON object: {0}")]
    Json(String),
    /// The body of an InvokeModel call has a format that guard does not read.
    #[error("guard does not read the formats of older models and of Cohere's first version")]
    Shape,
}

/// A model call. It borrows the body, and parses messages on demand.
pub struct Request<'a> {
    /// The format of the call.
    pub format: WireFormat,
    /// The format of the body: that of `format`, or the model's own inside InvokeModel.
    pub shape: WireFormat,
    /// The form in which the client expects the answer.
    pub delivery: Delivery,
    /// The model, if the body or the path names it.
    pub model: Option<String>,
    /// Another model that the call names: its path and its body can differ.
    pub other_model: Option<String>,
    /// The output cap that the client asks for, in tokens.
    pub output_cap: Option<u64>,
    /// The number of answers that the client asks for; each may use the whole output cap.
    pub choices: u64,
    /// The budget for reasoning, in tokens. An output cap must be larger.
    pub thinking: Option<u64>,
    /// Names of the tools that the client runs.
    pub tools: Vec<String>,
    /// The sign that a final text would break the client.
    pub structured: Option<Structured>,
    /// `true` if the answer will report its usage.
    pub usage_requested: bool,
    /// Length of the body in bytes: an upper bound of the tokens in its prompt.
    pub body_bytes: u64,
    /// The response that this request continues.
    pub previous_response: Option<String>,
    /// `true` if the provider answers at once and works on; its result is then asked for by its id.
    pub background: bool,
    /// Ids in the body.
    pub signs: Signs,
    stored: bool,
    reader: &'static RequestReader,
    body: &'a str,
    messages: Vec<&'a str>,
    /// The messages that were asked for, in the order of `messages`.
    parsed: Vec<OnceCell<Box<Message>>>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The messages may have secrets, and are long.
        f.debug_struct("Request")
            .field("format", &self.format)
            .field("delivery", &self.delivery)
            .field("model", &self.model)
            .field("body_bytes", &self.body_bytes)
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// Reads a body, which must be decoded (from gzip or zstd) already.
    ///
    /// # Errors
    /// The route is not a model call, or the body is too large or not in the route's format.
    pub fn read(route: &Route, body: &'a [u8]) -> Result<Request<'a>, Unreadable> {
        let Call::Model { format, delivery } = route.call else {
            return Err(Unreadable::NotAModelCall);
        };
        if body.len() > LARGEST {
            return Err(Unreadable::Large { bytes: body.len() });
        }
        // This estimate needs no memory, unlike the parser.
        bounded_json::check(body, HEAVIEST).map_err(|_| Unreadable::Heavy)?;
        let text = std::str::from_utf8(body).map_err(|e| Unreadable::Json(e.to_string()))?;
        let fields = Fields::of(text).map_err(|e| Unreadable::Json(place(&e)))?;
        let reader = request_reader(format, &fields).ok_or(Unreadable::Shape)?;
        let top = reader.head(&fields);
        let delivery = delivery.unwrap_or_else(|| reader.delivery(&top));
        let (structured, signs) = (Structured::of(&top), signs(&top));
        let (model, other_model) = route.models(top.model);
        Ok(Request {
            format,
            shape: reader.format,
            delivery,
            structured,
            model,
            other_model,
            output_cap: top.output_cap,
            choices: top.choices.unwrap_or(1).max(1),
            thinking: top.thinking,
            tools: top.tools,
            usage_requested: delivery == Delivery::Whole || !top.usage_omitted,
            body_bytes: body.len() as u64,
            previous_response: top.previous_response,
            background: top.background,
            signs,
            stored: top.conversation.is_some(),
            reader,
            body: text,
            parsed: top.messages.iter().map(|_| OnceCell::new()).collect(),
            messages: top.messages,
        })
    }

    /// Number of messages in the body. In the Responses format each item is one.
    pub fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// `true` if a part of the prompt may be stored in a cache for an hour, which has a price of its own.
    pub fn caches_for_an_hour(&self) -> bool {
        // The letters may be escaped; a text with such escapes is then reserved too high.
        self.body.contains("\\u00") || (self.body.contains("\"ttl\"") && self.body.contains("1h"))
    }

    /// `true` if servers may read another model in the body than guard does.
    pub fn has_ambiguous_model(&self) -> bool {
        Fields::of(self.body).map_or(true, |fields| fields.is_ambiguous("model"))
    }

    /// The reason why the cost of the call has no known bound: what the provider adds to it, or what a server may
    /// read otherwise than guard does. `None` if it has one. The size of
    /// [continued conversations](Request::continues) is not looked at.
    pub fn unbounded(&self) -> Option<String> {
        match Fields::of(self.body) {
            Ok(fields) => strict::unbounded(self.reader, &fields),
            Err(_) => Some("the request cannot be read".to_owned()),
        }
    }

    /// `true` if the body has only what is new, because the provider stores the messages before it.
    pub fn continues(&self) -> bool {
        self.stored || self.previous_response.is_some()
    }

    /// Returns a message by its position, from 0. It is parsed the first time only. Images and
    /// documents become a word in brackets. A message of an unknown shape has no parts.
    pub fn message(&self, at: usize) -> Option<&Message> {
        let (text, parsed) = (self.messages.get(at)?, self.parsed.get(at)?);
        Some(parsed.get_or_init(|| Box::new(self.reader.message(text))))
    }

    /// Returns the last message.
    pub fn last_message(&self) -> Option<&Message> {
        self.message(self.messages.len().checked_sub(1)?)
    }

    /// `true` if calls have no ids, so that a result belongs to the call of its name.
    pub(crate) fn matches_results_by_name(&self) -> bool {
        self.reader.matches_results_by_name
    }

    /// Adds a line to the last message of the user or result of a tool, and returns the new body. `None` if it has no
    /// place for text.
    pub fn append_line(&self, line: &str) -> Option<Vec<u8>> {
        self.reader.append_line(self.body, &self.messages, line)
    }

    /// The body as it was read.
    pub(crate) fn body(&self) -> &'a str {
        self.body
    }

    /// The places of the messages in the body, in their order.
    pub(crate) fn message_spans(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.messages.iter().map(|message| {
            // Each text was borrowed from the body, so the difference of the addresses is its offset.
            let start = message.as_ptr() as usize - self.body.as_ptr() as usize;
            start..start + message.len()
        })
    }
}

/// Describes an error by its place alone, because serde's text may quote the body.
fn place(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

/// Reads the ids in a body. Those of codex are also in its headers, but a proxy before guard may have dropped them.
fn signs(head: &RequestHead<'_>) -> Signs {
    let mut signs = Signs::default();
    if let Some(user) = &head.user_id {
        // Claude Code puts a JSON object into the string, or in older versions `user_…_account__session_ID`.
        let id = match serde_json::from_str::<Value>(user) {
            Ok(object) => object["session_id"].as_str().unwrap_or_default().to_owned(),
            Err(_) => user.rsplit_once("_session_").map_or("", |(_, id)| id).to_owned(),
        };
        signs.take(Sign::Session, &id);
    }
    let plain = [("session_id", Sign::Session), ("thread_id", Sign::Thread)];
    let headers = CLIENTS.iter().flat_map(|client| client.headers.iter().copied());
    for (name, sign) in headers.chain(plain) {
        if let Some(value) = head.client_metadata.string(name) {
            signs.take(sign, &value);
        }
    }
    // A conversation that the provider stores is a thread.
    signs.take(Sign::Thread, head.conversation.as_deref().unwrap_or_default());
    signs
}

/// Tools that a client declares to receive its answer, because prose would break its parser: of
/// Claude Code's `--json-schema`, of Gemini CLI's sub-agents, of pydantic-ai and smolagents.
const ANSWER_TOOLS: &[&str] =
    &["StructuredOutput", "complete_task", "final_result", "final_answer"];

/// The sign that a client expects more than prose, so that a final text would break it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Structured {
    /// The request has a schema, or asks for JSON.
    Schema,
    /// The model must call a tool.
    ToolChoice,
    /// A tool exists for the answer, or is the only one that the model may call.
    Tool(String),
    /// The request was not read.
    Unknown,
    /// The client is a run of Endstop, which would take the text for the answer of the model.
    Endstop,
}

impl Structured {
    fn of(head: &RequestHead<'_>) -> Option<Structured> {
        let answer = |name: &&String| ANSWER_TOOLS.contains(&name.as_str());
        if head.schema {
            Some(Structured::Schema)
        } else if let Some(name) = &head.named_tool {
            Some(Structured::Tool(name.clone()))
        } else if head.tool_choice {
            Some(Structured::ToolChoice)
        } else {
            head.tools.iter().find(answer).map(|name| Structured::Tool(name.clone()))
        }
    }

    /// `true` if a call of this tool is the answer itself. Its client need not send a result.
    pub(crate) fn is_answer(&self, tool: &str) -> bool {
        let named = matches!(self, Structured::Tool(name) if name == tool);
        named || ANSWER_TOOLS.contains(&tool)
    }
}

/// The reason why a body cannot have this cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapError {
    /// The budget for reasoning must be below the cap.
    #[error("the output cap {cap} is not above the request's reasoning budget {budget}")]
    Thinking {
        /// The budget, in tokens.
        budget: u64,
        /// The cap, in tokens.
        cap: u64,
    },
    /// A field has another type than the format requires.
    #[error("the body has no object for the output cap")]
    Shape,
}

/// Lowers the output cap of a request, or inserts one, and returns the new body. Returns `None` if
/// the body's own cap is not above `cap`. `body` must be the one that the request was read from.
/// `field` is the name for an inserted cap in Chat Completions, which servers spell in two ways.
///
/// ```
/// use endstop_guard::exchange::{Request, cap_output, route};
/// use endstop_wire::dialect::CapField;
/// let body = br#"{ "max_tokens" : 128000, "messages": [] }"#;
/// let request = Request::read(&route("POST", "/v1/messages")?, body)?;
/// let capped = cap_output(&request, body, 1000, CapField::MaxTokens)?.unwrap();
/// assert_eq!(capped, br#"{ "max_tokens" : 1000, "messages": [] }"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The reasoning budget is not below the cap, or the body does not have the format's shape.
pub fn cap_output(
    request: &Request<'_>,
    body: &[u8],
    cap: u64,
    field: CapField,
) -> Result<Option<Vec<u8>>, CapError> {
    if let Some(budget) = request.thinking.filter(|budget| *budget >= cap) {
        return Err(CapError::Thinking { budget, cap });
    }
    let text = std::str::from_utf8(body).map_err(|_| CapError::Shape)?;
    let is_inside = request.format != request.shape;
    let capped = request.reader.cap.lower(is_inside, text, cap, field);
    capped.map_err(|_| CapError::Shape)
}
