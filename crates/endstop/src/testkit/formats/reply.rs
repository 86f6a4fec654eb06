//! Selects the format of a reply by the request.
//!
//! ```text
//! let reply = Reply::turn(&request, &Turn::text("hello"));
//! ```

use super::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v2, gemini, ollama, openai_chat,
    openai_responses,
};
use crate::testkit::{Reply, Request, Turn};
use serde_json::Value;

impl Reply {
    /// Creates the reply for a scripted turn, in the format that the request asks for, streamed or
    /// not.
    pub fn turn(request: &Request, turn: &Turn) -> Reply {
        let headed = |reply: Reply| {
            let headers = turn.headers.iter();
            headers.fold(reply, |reply, (name, value)| reply.header(name, value)).after(turn.delay)
        };
        if let Some((status, body)) = &turn.error {
            // Proxies send their error pages as HTML, and clients must not read those as JSON.
            let page = body.trim_start().starts_with('<');
            let kind = if page { "text/html; charset=utf-8" } else { "application/json" };
            return headed(Reply::new(*status, kind, body.clone()));
        }
        headed(reply(request, turn))
    }
}

/// Returns the reply for a turn in the format that the request asks for, streamed or not.
fn reply(request: &Request, turn: &Turn) -> Reply {
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
