//! Encodes a scripted turn in each wire format: one file per format, each with a complete `body`
//! and the `events` of a stream.

pub(super) mod anthropic;
mod bedrock_converse;
mod bedrock_invoke;
pub(super) mod cohere_v2;
pub(super) mod gemini;
pub(super) mod ollama;
pub(super) mod openai_chat;
pub(super) mod openai_responses;

use super::{Reply, Request, Turn};
use endstop_wire::stream::eventstream::frame;
use serde_json::Value;

/// Returns the reply for a turn in the format that the request asks for, streamed or not.
pub(super) fn reply(request: &Request, turn: &Turn) -> Reply {
    // The path selects the format, because the bodies of two formats can be alike.
    let path = request.path.as_str();
    let streamed = request.body["stream"] == Value::Bool(true);
    if path.contains(":streamGenerateContent") {
        Reply::events(&gemini::events(turn), turn.pace)
    } else if path.contains(":generateContent") {
        Reply::json(&gemini::body(turn))
    } else if path.ends_with(":streamRawPredict") && streamed {
        Reply::events(&anthropic::events(turn), turn.pace)
    } else if path.ends_with(":rawPredict") {
        Reply::json(&anthropic::body(turn))
    } else if path.ends_with("/converse") {
        Reply::json(&bedrock_converse::body(turn))
    } else if path.ends_with("/converse-stream") {
        Reply::frames(bedrock_converse::events(turn), turn.pace)
    } else if path.ends_with("/invoke") {
        Reply::json(&anthropic::body(turn))
    } else if path.ends_with("/invoke-with-response-stream") {
        Reply::frames(bedrock_invoke::events(turn), turn.pace)
    } else if path.ends_with("/messages") {
        if streamed {
            Reply::events(&anthropic::events(turn), turn.pace)
        } else {
            Reply::json(&anthropic::body(turn))
        }
    } else if path.ends_with("/v2/chat") {
        if streamed {
            Reply::events(&cohere_v2::events(turn), turn.pace)
        } else {
            Reply::json(&cohere_v2::body(turn))
        }
    } else if path.ends_with("/api/chat") {
        // Ollama streams by default, unlike the other formats.
        if request.body["stream"] == Value::Bool(false) {
            Reply::json(&ollama::body(turn))
        } else {
            Reply::lines(&ollama::lines(turn), turn.pace)
        }
    } else if path.ends_with("/responses") {
        if streamed {
            Reply::events(&openai_responses::events(turn), turn.pace)
        } else {
            Reply::json(&openai_responses::body(turn))
        }
    // Any other path is OpenAI's chat format, because most providers serve it under their own path.
    } else if streamed {
        Reply::events(&openai_chat::events(turn), turn.pace)
    } else {
        Reply::json(&openai_chat::body(turn))
    }
}

/// Returns a binary frame of Amazon's event streams.
fn message(event: &str, data: &Value) -> Vec<u8> {
    let headers =
        [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, data.to_string().as_bytes())
}

/// Splits a string in two, so that a decoder has to join it.
fn halves(text: &str) -> [&str; 2] {
    // Moves to a character boundary, because JSON strings cannot hold half a character.
    let at = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = text.split_at(at);
    [first, second]
}

/// Returns the arguments of the call with this id as the script has them, in two chunks.
fn raw_arguments<'a>(turn: &'a Turn, id: &Value) -> [&'a str; 2] {
    // The id ends in the number of the call, from 1. The block itself has parsed arguments, which
    // would hide truncated JSON.
    let number = id.as_str().and_then(|id| id.rsplit('_').next()?.parse::<usize>().ok());
    let call = number.and_then(|number| turn.calls.get(number.checked_sub(1)?));
    halves(call.map_or("", |(_, _, arguments)| arguments))
}
