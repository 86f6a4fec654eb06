//! Reads a request in a wire format, as a server receives it: the fields at its top, and its messages.
//!
//! A body is read in two steps. [`RequestReader::head`] finds the fields and the beginning and end of each
//! message, without parsing the messages. A message is parsed only if it is needed, because a
//! history is sent again with each call.
//!
//! ```
//! use endstop_wire::WireFormat;
//! use endstop_wire::codec::request::Fields;
//! use endstop_wire::codec::request_reader;
//! let body = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hello"}]}"#;
//! let fields = Fields::of(body)?;
//! let reader = request_reader(WireFormat::Anthropic, &fields).unwrap();
//! let head = reader.head(&fields);
//! assert_eq!((head.model.as_deref(), head.output_cap), (Some("m"), Some(9)));
//! assert_eq!(reader.message(head.messages[0]).plain_text(), "Hello");
//! # Ok::<(), serde_json::Error>(())
//! ```

use super::cap::CapPlace;
use super::fields::{Fields, any};
use super::members::Members;
use crate::dialect::WireFormat;
use crate::route::Delivery;
use endstop_core::Message;
use serde_json::Value;
use std::fmt;

/// The reader of the requests in one format. `Format` has one for each.
pub struct RequestReader {
    /// The format.
    pub format: WireFormat,
    /// The place of the output cap.
    pub cap: CapPlace,
    /// The members that a request may have.
    pub members: Members,
    /// `true` if the response to a request that does not ask for either is a stream.
    pub(crate) streams_by_default: bool,
    /// The form of a stream that the body asks for.
    pub(crate) streamed: Delivery,
    /// The type of a part of text in a request; `None`: parts have no type.
    pub(crate) text_type: Option<&'static str>,
    /// `true` if calls have no ids, so that a result belongs to the call of its name.
    pub matches_results_by_name: bool,
    pub(crate) head: for<'a> fn(&Fields<'a>) -> RequestHead<'a>,
    pub(crate) message: fn(&mut Value) -> Message,
}

impl fmt::Debug for RequestReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestReader").field("format", &self.format).finish_non_exhaustive()
    }
}

impl RequestReader {
    /// Reads the fields of a body.
    pub fn head<'a>(&self, fields: &Fields<'a>) -> RequestHead<'a> {
        RequestHead { output_cap: self.cap.read(fields), ..(self.head)(fields) }
    }

    /// Returns the form in which the client expects the answer, unless the path decides it.
    pub fn delivery(&self, head: &RequestHead<'_>) -> Delivery {
        let is_streamed = head.stream.unwrap_or(self.streams_by_default);
        if is_streamed { self.streamed } else { Delivery::Whole }
    }

    /// Reads a message of [`RequestHead::messages`]. Images and documents become a word in brackets. A message of an
    /// unknown shape has no parts.
    pub fn message(&self, text: &str) -> Message {
        (self.message)(&mut any(text))
    }
}

/// The fields of a request in any format, apart from its messages.
#[derive(Debug, Default)]
pub struct RequestHead<'a> {
    /// The model, if the body names it.
    pub model: Option<String>,
    /// The stream that the body asks for, or asks not to have.
    pub stream: Option<bool>,
    /// The output cap, in tokens; of several the largest, because a server may take any of them.
    pub output_cap: Option<u64>,
    /// Names of the tools that the client itself runs.
    pub tools: Vec<String>,
    /// `true` if the answer is asked for as JSON, with or without a schema.
    pub schema: bool,
    /// `true` if the model must call a tool.
    pub tool_choice: bool,
    /// The tool that the model must call, as programs that extract data ask.
    pub named_tool: Option<String>,
    /// The budget for reasoning, in tokens.
    pub thinking: Option<u64>,
    /// The number of answers that the client asks for.
    pub choices: Option<u64>,
    /// `true` if a stream of the answer leaves out its usage.
    pub usage_omitted: bool,
    /// The response that the request continues. Empty if it continues one that cannot be read plainly.
    pub previous_response: Option<String>,
    /// Id of the conversation that the provider stores.
    pub conversation: Option<String>,
    /// `true` if the provider answers at once and works on.
    pub background: bool,
    /// The client's name for the user.
    pub user_id: Option<String>,
    /// Values that the client sends for itself.
    pub client_metadata: Fields<'a>,
    /// The texts of the messages. In the Responses format each item is one.
    pub messages: Vec<&'a str>,
}

impl<'a> RequestHead<'a> {
    /// Reads the fields that most formats spell alike.
    pub(crate) fn of(fields: &Fields<'a>) -> RequestHead<'a> {
        RequestHead {
            model: fields.string("model"),
            stream: fields.flag("stream"),
            ..RequestHead::default()
        }
    }
}

/// `true` if a choice of tools, in the spelling of most formats, makes the model call one.
pub(crate) fn forces_tool(choice: &Value) -> bool {
    let forcing = |word: &str| matches!(word, "required" | "any" | "tool" | "function" | "custom");
    match choice {
        Value::String(word) => forcing(word),
        Value::Object(members) => match members.get("type").and_then(Value::as_str) {
            Some("allowed_tools") => {
                members.get("mode").and_then(Value::as_str).is_some_and(forcing)
            }
            // Any other type names one tool that must be called, for example `mcp`.
            Some(kind) => forcing(kind) || !matches!(kind, "auto" | "none"),
            // Some servers take only the function's name.
            None => !members.is_empty(),
        },
        _ => false,
    }
}

/// Returns the name in a choice of one tool.
pub(crate) fn named_tool(choice: &Value) -> Option<String> {
    if !matches!(choice.get("type")?.as_str()?, "function" | "tool" | "custom") {
        return None;
    }
    // Chat Completions has it in an object of its own.
    let name = choice.get("name").or_else(|| choice.get("function")?.get("name"));
    name.and_then(Value::as_str).map(str::to_owned)
}

/// `true` if a format's field asks for JSON.
pub(crate) fn asks_for_json(format: &Value) -> bool {
    // `text` is the default that some clients send.
    let kind = format.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind != "text")
}
