//! The answers of the provider in each wire format, as the decoder of that format reads them: a finish value is the one that the
//! case asks for, and a response without one has none.
#![allow(clippy::unwrap_used, clippy::pedantic, missing_docs, reason = "tests")]

use endstop_conform::case::Case;
use endstop_conform::provider::{Provider, Script};
use endstop_wire::dialect::dialect;
use endstop_wire::{Eof, Headers, RequestFacts, StreamDecoder};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The dialect, the path of a stream, the path of a whole response, and the request.
fn formats() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let messages = json!([{"role": "user", "content": "Go."}]);
    let parts = json!([{"role": "user", "content": [{"text": "Go."}]}]);
    let contents = json!([{"role": "user", "parts": [{"text": "Go."}]}]);
    let chat = json!({"messages": messages});
    vec![
        ("openai-chat", "/v1/chat/completions", "/v1/chat/completions", chat.clone()),
        ("openai-responses", "/v1/responses", "/v1/responses", json!({"input": "Go."})),
        (
            "anthropic-messages",
            "/v1/messages",
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 9}),
        ),
        (
            "gemini",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            "/v1beta/models/m:generateContent",
            json!({"contents": contents}),
        ),
        ("cohere-v2", "/v2/chat", "/v2/chat", chat.clone()),
        ("ollama", "/api/chat", "/api/chat", chat),
        (
            "bedrock-converse",
            "/model/m/converse-stream",
            "/model/m/converse",
            json!({"messages": parts}),
        ),
    ]
}

/// Posts a request to a provider with this case, and returns the reason of the end, as the decoder names it, and the body. `None`
/// if the format has no such response.
fn end(case: &str, format: &str, path: &str, mut body: Value, streams: bool) -> Option<String> {
    let provider = Provider::start(Script::new(Case::read("case.toml", case).unwrap())).unwrap();
    body["model"] = json!("m");
    body["stream"] = json!(streams);
    let (body, base) = (body.to_string(), provider.base());
    let address = base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    if provider.calls()[0].unspoken.is_some() {
        return None;
    }
    let at = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let whole = unchunked(&reply[at..]);
    let text = String::from_utf8_lossy(&whole);
    assert!(!text.contains("\"candidates\":null"), "{text}");
    if case.contains("missing") && !streams {
        // A decoder may take a body without a value for a whole one.
        let values = ["\"stop\"", "end_turn", "STOP", "COMPLETE", "\"completed\"", "\"done\":true"];
        assert!(!values.iter().any(|value| text.contains(value)), "{path}: {text}");
    }
    let facts = RequestFacts::default();
    let mut decoder = StreamDecoder::new(dialect(format).unwrap(), 200, Headers::new(), facts);
    decoder.push(&whole, &mut |_| ()).unwrap();
    let decoded = decoder.finish(Eof::Clean);
    Some(decoded.signal.reason.as_str().to_owned())
}

/// Returns the bytes of the chunks.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&rest[at + 2..at + 2 + size]);
        rest = &rest[at + 2 + size + 2..];
    }
    whole
}

#[test]
fn finish_values_are_those_of_the_case_in_each_format() {
    // Each format has the first two and the last two.
    let everywhere = ["fitting", "length", "missing", "unknown"];
    for finish in ["fitting", "length", "filter", "refusal", "missing", "unknown"] {
        let case = format!(
            "title = 't'\nchecks = []\n[[answers]]\ntext = 'Half of it'\nfinish = '{finish}'"
        );
        for (format, stream, whole, body) in formats() {
            for (path, streams) in [(stream, true), (whole, false)] {
                let end = end(&case, format, path, body.clone(), streams);
                let about = format!("{finish}, {format}, stream: {streams}: {end:?}");
                let Some(end) = end else {
                    assert!(!everywhere.contains(&finish), "{about}");
                    continue;
                };
                let is_expected = match finish {
                    "fitting" => end == "natural_completion",
                    "length" => end == "token_limit_reached",
                    "filter" | "refusal" => end == "content_filtered",
                    "missing" => !streams || end == "error_termination",
                    _ => end != "natural_completion",
                };
                assert!(is_expected, "{about}");
            }
        }
    }
}

/// An error inside a response of status 200 is an error for the decoder of each format.
#[test]
fn error_in_place_of_answer_is_error() {
    let case = "title = 't'\nchecks = []\n[[answers]]\ntext = 'Half of it'\nfault = 'error_event'";
    for (format, stream, whole, body) in formats() {
        for (path, streams) in [(stream, true), (whole, false)] {
            let end = end(case, format, path, body.clone(), streams);
            assert_ne!(end.as_deref(), Some("natural_completion"), "{format}, stream: {streams}");
        }
    }
}

/// A whole response of Messages has a call that the output limit cut, as an object.
#[test]
fn cut_call_is_in_whole_message() {
    let case = r#"
        title = 't'
        checks = []
        [[answers]]
        calls = [{ tool = "shell", input = "", raw = '{"{key}": "echo cut-cal' }]
        finish = "length"
    "#;
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    let body = |finish: &str| {
        let case = case.replace("\"length\"", &format!("\"{finish}\""));
        let tools = json!([{"name": "shell", "input_schema": schema}]);
        let body = json!({"messages": [{"role": "user", "content": "Go."}], "max_tokens": 9, "tools": tools});
        end(&case, "anthropic-messages", "/v1/messages", body, false)
    };
    assert_eq!(body("length").as_deref(), Some("token_limit_reached"));
    // Under the finish value of a whole call there is nothing like it.
    assert_eq!(body("calls"), None);
}
