//! The table of wire formats, and what a server does in each: it reads a request, and writes a response.
//!
//! ```
//! use endstop_wire::codec::response::Response;
//! use endstop_wire::codec::write;
//! use endstop_wire::route::Delivery;
//! use endstop_wire::{Eof, Headers, RequestFacts, StreamDecoder, WireFormat};
//! let text = ["Hel", "lo"];
//! let response = Response { id: "1", model: "m", text: &text, ..Response::default() };
//! let chunks = write(WireFormat::OpenAiChat, Delivery::Events, &response).unwrap();
//! let dialect = WireFormat::OpenAiChat.dialect();
//! let mut stream = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
//! stream.push(&chunks.concat(), &mut |_| ())?;
//! assert_eq!(stream.finish(Eof::Clean).turn.unwrap().text(), "Hello");
//! # Ok::<(), endstop_core::ModelError>(())
//! ```

use super::format::Format;
use super::request::fields::Fields;
use super::request::read::RequestReader;
use super::response::tail::{Endless, Tail};
use super::response::write::{Closing, Event, Response, sse};
use super::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v1, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use crate::dialect::WireFormat;
use crate::route::Delivery;
use serde_json::Value;

/// Returns the row of a format.
pub(super) const fn row(format: WireFormat) -> &'static Format {
    match format {
        WireFormat::OpenAiChat => &openai_chat::FORMAT,
        WireFormat::Anthropic => &anthropic::FORMAT,
        WireFormat::Gemini => &gemini::FORMAT,
        WireFormat::OpenAiResponses => &openai_responses::FORMAT,
        WireFormat::CohereV2 => &cohere_v2::FORMAT,
        WireFormat::CohereV1 => &cohere_v1::FORMAT,
        WireFormat::Ollama => &ollama::FORMAT,
        WireFormat::BedrockConverse => &bedrock_converse::FORMAT,
        WireFormat::BedrockInvoke => &bedrock_invoke::FORMAT,
    }
}

/// Returns the reader for a body of a call in this format. Inside Bedrock's InvokeModel the body has the model's
/// own format. Returns `None` if the format is not read.
pub fn request_reader(format: WireFormat, fields: &Fields<'_>) -> Option<&'static RequestReader> {
    (row(format).read)(fields)
}

/// Writes a response in a format, in the form that the client expects, and returns the chunks of its body: one for
/// each event of a stream. Returns `None` if the format can only be read
/// ([`WireFormat::read_only`]).
///
/// Inside Bedrock's InvokeModel the body is that of an Anthropic model.
pub fn write(
    format: WireFormat,
    delivery: Delivery,
    response: &Response<'_>,
) -> Option<Vec<Vec<u8>>> {
    let writer = row(format).write?;
    let framed = |event: &Event| (writer.frame)(event);
    Some(match delivery {
        Delivery::Whole => vec![(writer.body)(response).to_string().into_bytes()],
        Delivery::Array => {
            let events = (writer.events)(response);
            let last = events.len() - 1;
            let element = |(at, event): (usize, &Event)| {
                let open = if at == 0 { "[" } else { "," };
                let close = if at == last { "]" } else { "" };
                format!("{open}{}{close}", event.text()).into_bytes()
            };
            events.iter().enumerate().map(element).collect()
        }
        Delivery::Events | Delivery::Lines | Delivery::Frames => {
            (writer.events)(response).iter().map(framed).collect()
        }
    })
}

/// Returns the body of an error in a format, with this message. `id` is that of the request.
pub fn write_error(format: WireFormat, message: &str, id: &str) -> Value {
    (row(format).error)(message, id)
}

/// Returns the body of the error of a request that continues a response which the server has not seen. It has the form
/// that makes the clients of these APIs send the whole conversation.
pub fn write_unknown_response(format: WireFormat, message: &str) -> Value {
    match row(format).unknown_response {
        Some(write) => write(message),
        None => write_error(format, message, ""),
    }
}

/// Starts to follow a stream in a format, from its beginning, to end it cleanly. Call it only if a policy may cut the
/// stream, because every event is parsed.
///
/// ```
/// use endstop_wire::WireFormat;
/// use endstop_wire::codec::follow;
/// use endstop_wire::codec::response::{Closing, Ending};
/// use endstop_wire::route::Delivery;
/// let mut tail = follow(WireFormat::OpenAiChat, Delivery::Events, Closing::default());
/// tail.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n");
/// let Ending::Now(bytes) = tail.end("") else { panic!("a text can be cut") };
/// assert!(bytes.ends_with(b"data: [DONE]\n\n"));
/// ```
pub fn follow(format: WireFormat, delivery: Delivery, closing: Closing) -> Tail {
    match row(format).write {
        Some(writer) => Tail::of((writer.watch)(closing), writer.frame, delivery),
        None => Tail::of(Box::new(Endless), sse, delivery),
    }
}
