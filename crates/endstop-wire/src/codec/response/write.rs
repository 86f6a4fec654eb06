//! Writes a response in a wire format, as a server does: a whole body, or the events of a stream.

use crate::stream::eventstream::frame;
use endstop_core::{ToolCall, Usage};
use serde_json::{Value, json};

/// The signature of written reasoning. A client sends it back unread.
pub(crate) const SIGNATURE: &str = "c2ln";

/// The end marker of streams that have one outside their JSON.
pub(crate) const DONE: Event = Event { name: "", data: Data::Text("[DONE]") };

/// A response to write: reasoning, text and calls, in this order.
#[derive(Clone, Debug, Default)]
pub struct Response<'a> {
    /// A unique id of letters and digits. A format puts its own prefix before it.
    pub id: &'a str,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Name of the model.
    pub model: &'a str,
    /// Reasoning in plain text.
    pub reasoning: &'a str,
    /// The text, in the chunks that a stream has.
    pub text: &'a [&'a str],
    /// The tool calls. Arguments that are not JSON, for example truncated ones, are written as they are in a stream;
    /// a body of a format that has an object there has an empty one.
    pub calls: &'a [ToolCall],
    /// The finish value, in the format's own spelling. `None`: the one that fits the content.
    pub finish: Option<&'a str>,
    /// Token counts.
    pub usage: Usage,
    /// `true` if a stream leaves out its usage, in a format whose clients ask for it.
    pub omits_usage: bool,
}

impl<'a> Response<'a> {
    /// Returns the finish value, or the one of these two that fits the content.
    pub(crate) fn finish_or(&self, text: &'a str, calls: &'a str) -> &'a str {
        self.finish.unwrap_or(if self.calls.is_empty() { text } else { calls })
    }

    /// The tokens of the prompt and of the output.
    pub(crate) fn total_tokens(&self) -> u64 {
        self.usage.input_tokens.unwrap_or(0) + self.usage.output_tokens.unwrap_or(0)
    }
}

/// An event of a stream: its name, if the format names events, and its data.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) data: Data,
}

/// The data of an event.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Json(Value),
    Text(&'static str),
}

impl Event {
    /// Creates an event without a name.
    pub(crate) fn unnamed(data: Value) -> Event {
        Event::named("", data)
    }

    /// Creates an event with a name.
    pub(crate) fn named(name: &'static str, data: Value) -> Event {
        Event { name, data: Data::Json(data) }
    }

    /// Creates an event whose data repeats its name as its `type`, before these members.
    pub(crate) fn typed(kind: &'static str, members: Value) -> Event {
        Event::named(kind, extended(json!({"type": kind}), members))
    }

    pub(crate) fn text(&self) -> String {
        match &self.data {
            Data::Json(value) => value.to_string(),
            Data::Text(text) => (*text).to_owned(),
        }
    }
}

/// Adds the members of the second object to the first.
pub(crate) fn extended(mut object: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (object.as_object_mut(), more) {
        members.extend(more);
    }
    object
}

/// The values of the events that end a stream, unless the stream itself has sent them.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// A unique id of letters and digits.
    pub id: String,
    /// Seconds since 1970.
    pub unix_seconds: u64,
    /// Name of the model.
    pub model: String,
    /// `true` if the stream leaves out its usage, in a format whose clients ask for it.
    pub omits_usage: bool,
}

impl Closing {
    /// Calls `write` with the rest of a response: this text, unless it is empty, and no known usage.
    pub(crate) fn write<T>(&self, text: &str, write: impl FnOnce(&Response<'_>) -> T) -> T {
        let chunks = [text];
        write(&Response {
            id: &self.id,
            unix_seconds: self.unix_seconds,
            model: &self.model,
            text: if text.is_empty() { &[] } else { &chunks },
            usage: NO_USAGE,
            omits_usage: self.omits_usage,
            ..Response::default()
        })
    }
}

/// Counts of zero: a server that answers without a model reports that nothing was used.
pub const NO_USAGE: Usage = Usage {
    input_tokens: Some(0),
    output_tokens: Some(0),
    cached_input_tokens: Some(0),
    cache_write_tokens: Some(0),
    cache_write_1h_tokens: None,
    reasoning_tokens: None,
    cache_apart: false,
    reasoning_apart: false,
    estimated: false,
    billing: endstop_core::Billing::ByTokens,
};

/// Returns a server-sent event.
pub(crate) fn sse(event: &Event) -> Vec<u8> {
    let data = event.text();
    match event.name {
        "" => format!("data: {data}\n\n"),
        name => format!("event: {name}\ndata: {data}\n\n"),
    }
    .into_bytes()
}

/// Returns a binary frame of Amazon's event streams.
pub(crate) fn event_frame(event: &Event) -> Vec<u8> {
    let headers = [
        (":event-type", event.name),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    frame(&headers, event.text().as_bytes())
}

/// Returns the arguments of a call as an object. A body cannot have truncated JSON; only a stream can.
pub(crate) fn arguments(call: &ToolCall) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}))
}

/// Splits a string in two, as a stream has the arguments of a call.
pub(crate) fn halves(text: &str) -> [&str; 2] {
    // A JSON string cannot hold half a character.
    let at = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = text.split_at(at);
    [first, second]
}
