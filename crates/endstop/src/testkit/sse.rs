//! Builds event streams as text, for tests of decoders and for hand-made replies.
//!
//! ```
//! use endstop::testkit::{Reply, sse};
//! let stream = sse::openai_text(&["Hel", "lo"]);
//! assert!(stream.contains(r#""content":"lo""#) && stream.ends_with("data: [DONE]\n\n"));
//! let without_end = stream.replace("data: [DONE]\n\n", "");
//! let reply = Reply::new(200, "text/event-stream", without_end);
//! # let _ = reply;
//! ```

use super::Turn;
use endstop_wire::WireFormat;
use endstop_wire::route::Delivery;
use serde_json::Value;

/// Returns the events of a turn in a format whose streams are server-sent events.
fn events(format: WireFormat, turn: &Turn) -> Vec<String> {
    let events = turn.written(format, Delivery::Events).unwrap_or_default();
    events.into_iter().map(|event| String::from_utf8_lossy(&event).into_owned()).collect()
}

/// Returns an event without a name.
pub fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Returns an event with a name.
pub fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Returns the events of a turn in the format of OpenAI's chat completions.
pub fn openai(turn: &Turn) -> Vec<String> {
    events(WireFormat::OpenAiChat, turn)
}

/// Returns the events of a turn in the format of OpenAI's Responses.
pub fn openai_responses(turn: &Turn) -> Vec<String> {
    events(WireFormat::OpenAiResponses, turn)
}

/// Returns the events of a turn in the format of Anthropic's messages.
pub fn anthropic(turn: &Turn) -> Vec<String> {
    events(WireFormat::Anthropic, turn)
}

/// Returns the events of a turn in the format of Google's `generateContent`.
pub fn gemini(turn: &Turn) -> Vec<String> {
    events(WireFormat::Gemini, turn)
}

/// Returns the events of a turn in the format of Cohere's `/v2/chat`.
pub fn cohere(turn: &Turn) -> Vec<String> {
    events(WireFormat::CohereV2, turn)
}

/// Returns a complete stream in OpenAI's chat format with these chunks of text.
pub fn openai_text(pieces: &[&str]) -> String {
    openai(&Turn::pieces(pieces)).concat()
}

/// Returns a complete stream in the format of OpenAI's Responses with these chunks of text.
pub fn openai_responses_text(pieces: &[&str]) -> String {
    openai_responses(&Turn::pieces(pieces)).concat()
}

/// Returns a complete stream in Anthropic's format with these chunks of text.
pub fn anthropic_text(pieces: &[&str]) -> String {
    anthropic(&Turn::pieces(pieces)).concat()
}

/// Returns a complete stream in Google's format with these chunks of text.
pub fn gemini_text(pieces: &[&str]) -> String {
    gemini(&Turn::pieces(pieces)).concat()
}

/// Returns a complete stream in Cohere's format with these chunks of text.
pub fn cohere_text(pieces: &[&str]) -> String {
    cohere(&Turn::pieces(pieces)).concat()
}
