//! Streams as text: what a server sends, for decoders and for replies made by hand.
//!
//! ```
//! use endstop::testkit::{Reply, sse};
//! let stream = sse::openai_text(&["Hel", "lo"]);
//! assert!(stream.contains(r#""content":"lo""#) && stream.ends_with("data: [DONE]\n\n"));
//! let without_end = stream.replace("data: [DONE]\n\n", "");
//! let reply = Reply::new(200, "text/event-stream", without_end);
//! # let _ = reply;
//! ```

use super::{Turn, formats};
use serde_json::Value;

/// An event without a name.
pub fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// An event with a name.
pub fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A turn in the format of OpenAI's chat completions, one text for each event.
pub fn openai(turn: &Turn) -> Vec<String> {
    formats::openai_chat::events(turn)
}

/// A turn in the format of OpenAI's Responses, one text for each event.
pub fn openai_responses(turn: &Turn) -> Vec<String> {
    formats::openai_responses::events(turn)
}

/// A turn in the format of Anthropic's messages, one text for each event.
pub fn anthropic(turn: &Turn) -> Vec<String> {
    formats::anthropic::events(turn)
}

/// A turn in the format of Google's `generateContent`, one text for each event.
pub fn gemini(turn: &Turn) -> Vec<String> {
    formats::gemini::events(turn)
}

/// A turn in the format of Cohere's second chat, one text for each event.
pub fn cohere(turn: &Turn) -> Vec<String> {
    formats::cohere_v2::events(turn)
}

/// A whole stream in OpenAI's format that brings these pieces of text.
pub fn openai_text(pieces: &[&str]) -> String {
    openai(&Turn::pieces(pieces)).concat()
}

/// A whole stream in the format of OpenAI's Responses that brings these pieces of text.
pub fn openai_responses_text(pieces: &[&str]) -> String {
    openai_responses(&Turn::pieces(pieces)).concat()
}

/// A whole stream in Anthropic's format that brings these pieces of text.
pub fn anthropic_text(pieces: &[&str]) -> String {
    anthropic(&Turn::pieces(pieces)).concat()
}

/// A whole stream in Google's format that brings these pieces of text.
pub fn gemini_text(pieces: &[&str]) -> String {
    gemini(&Turn::pieces(pieces)).concat()
}

/// A whole stream in Cohere's format that brings these pieces of text.
pub fn cohere_text(pieces: &[&str]) -> String {
    cohere(&Turn::pieces(pieces)).concat()
}
