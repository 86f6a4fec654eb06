//! Splits a stream into events, and ends it between two of them.

use super::watch::{Ending, Own, Watch};
use super::{anthropic, chat, cohere, converse, gemini, ollama, responses};
use crate::exchange::answer::reply::{Reply, Stamp};
use crate::exchange::route::Delivery;
use endstop_wire::WireFormat;
use endstop_wire::stream::eventstream::EventStreamDecoder;
use endstop_wire::stream::sse::{Item, SseDecoder};
use serde_json::Value;

/// The longest line of a stream of lines, in bytes.
const LONGEST_LINE: usize = 16 << 20;

/// Follows a stream that goes to a client, to end it cleanly. Create one only if a policy may cut
/// the stream, because it parses every event.
///
/// ```
/// use endstop_guard::exchange::answer::{Ending, Reply, Stamp, Tail};
/// use endstop_guard::exchange::{ClientFacts, Request, route};
/// let body = br#"{"messages":[],"stream":true}"#;
/// let request = Request::read(&route("POST", "/v1/chat/completions")?, body)?;
/// let reply = Reply::to(&request, &ClientFacts::default());
/// let mut tail = Tail::new(&reply, Stamp { id: "1", unix_seconds: 0 });
/// tail.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n");
/// let Ending::Now(bytes) = tail.end("") else { panic!("a text can be cut") };
/// assert!(bytes.ends_with(b"data: [DONE]\n\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tail {
    framing: Framing,
    watch: Box<dyn Watch>,
}

enum Framing {
    Events {
        decoder: SseDecoder,
        last: [u8; 4],
    },
    Lines(Vec<u8>),
    Frames(EventStreamDecoder),
    /// The stream cannot be followed.
    Unknown,
}

/// A format that cannot be ended.
struct Endless;

impl Watch for Endless {
    fn event(&mut self, _name: &str, _data: &Value) {}
    fn end(&self, _note: &str) -> Ending {
        Ending::Never
    }
}

impl Tail {
    /// Starts at the beginning of the response to this request.
    pub fn new(reply: &Reply, stamp: Stamp<'_>) -> Tail {
        let own =
            Own { id: stamp.id.to_owned(), at: stamp.unix_seconds, model: reply.model.clone() };
        let usage = reply.usage_requested;
        let watch: Box<dyn Watch> = match reply.format {
            WireFormat::Anthropic => Box::new(anthropic::State::default()),
            WireFormat::OpenAiChat => Box::new(chat::State::new(own, usage)),
            WireFormat::OpenAiResponses => Box::new(responses::State::new(own)),
            WireFormat::Gemini => Box::new(gemini::State::new(own)),
            WireFormat::BedrockConverse => Box::new(converse::State::default()),
            WireFormat::CohereV2 => Box::new(cohere::State::default()),
            WireFormat::Ollama => Box::new(ollama::State::new(own)),
            _ => Box::new(Endless),
        };
        let framing = match reply.delivery {
            Delivery::Events => Framing::Events { decoder: SseDecoder::new(), last: [0; 4] },
            Delivery::Lines => Framing::Lines(Vec::new()),
            Delivery::Frames => Framing::Frames(EventStreamDecoder::new()),
            Delivery::Whole | Delivery::Array => Framing::Unknown,
        };
        Tail { framing, watch }
    }

    /// Takes the next bytes that the client receives, in plain text.
    pub fn push(&mut self, chunk: &[u8]) {
        let watch = &mut self.watch;
        let read = match &mut self.framing {
            Framing::Unknown => true,
            Framing::Events { decoder, last } => {
                // The longest separator of events has four bytes.
                for byte in &chunk[chunk.len().saturating_sub(4)..] {
                    last.rotate_left(1);
                    last[3] = *byte;
                }
                let mut take = |item: Item<'_>| {
                    if let Item::Event { name, data, .. } = item {
                        give(watch.as_mut(), name, data);
                    }
                };
                decoder.push(chunk, &mut take).is_ok()
            }
            Framing::Lines(held) => {
                let mut rest = chunk;
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    held.extend_from_slice(&rest[..end]);
                    give(watch.as_mut(), "", String::from_utf8_lossy(held).trim());
                    held.clear();
                    rest = &rest[end + 1..];
                }
                held.extend_from_slice(rest);
                held.len() <= LONGEST_LINE
            }
            Framing::Frames(decoder) => {
                let read = decoder.push(chunk, &mut |message| {
                    let name = message.text(":event-type").unwrap_or_default();
                    give(watch.as_mut(), name, &String::from_utf8_lossy(message.payload));
                });
                read.is_ok()
            }
        };
        // A stream that cannot be read has no known state, so it is never ended.
        if !read {
            self.framing = Framing::Unknown;
        }
    }

    /// Returns the bytes that end the stream, with a note after the model's text. An empty note adds
    /// nothing.
    pub fn end(&self, note: &str) -> Ending {
        let between = match &self.framing {
            Framing::Unknown => return Ending::Never,
            Framing::Events { last, .. } => {
                *last == [0; 4]
                    || last.ends_with(b"\n\n")
                    || last.ends_with(b"\r\r")
                    || last == b"\r\n\r\n"
            }
            Framing::Lines(held) => held.is_empty(),
            Framing::Frames(decoder) => decoder.is_between(),
        };
        match self.watch.end(note) {
            // Closing events inside another event would be garbage.
            Ending::Now(_) if !between => Ending::Later,
            ending => ending,
        }
    }
}

fn give(watch: &mut dyn Watch, name: &str, data: &str) {
    match serde_json::from_str(data) {
        Ok(value) => watch.event(name, &value),
        Err(_) => watch.other(data),
    }
}
