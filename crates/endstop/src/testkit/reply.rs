//! A reply of the scripted server: bytes in pieces, with waits, and what goes wrong between them.

use super::{Request, Turn};
use serde_json::{Value, json};
use std::time::Duration;

/// A step of sending a reply's body.
#[derive(Clone, Debug)]
pub(crate) enum Send {
    Bytes(Vec<u8>),
    Wait(Duration),
    /// Nothing more comes, and the connection stays open.
    Stall,
    /// The connection is reset.
    Reset,
    /// The connection is closed in good order, the body is not whole.
    Close,
    /// The body ends as if it were whole.
    End,
}

/// A reply of the scripted server.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<Send>,
    /// The head of the response never ends.
    pub(crate) endless_head: bool,
    /// The length that the head claims; without it the body goes in chunks.
    pub(crate) claimed: Option<u64>,
}

impl Reply {
    /// A reply of this status and body.
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: vec![Send::Bytes(body.into())],
            endless_head: false,
            claimed: None,
        }
    }

    /// A scripted turn, in the format and the way (stream or not) that the request asks for.
    pub fn turn(request: &Request, turn: &Turn) -> Reply {
        let headed = |reply: Reply| {
            let headers = turn.headers.iter();
            headers.fold(reply, |reply, (name, value)| reply.header(name, value)).after(turn.delay)
        };
        if let Some((status, body)) = &turn.error {
            let page = body.trim_start().starts_with('<');
            let kind = if page { "text/html; charset=utf-8" } else { "application/json" };
            return headed(Reply::new(*status, kind, body.clone()));
        }
        let streamed = request.body["stream"] == Value::Bool(true);
        let anthropic = request.path.ends_with("/messages");
        let reply = match (anthropic, streamed) {
            // The address says all of it.
            _ if request.path.contains(":streamGenerateContent") => {
                Reply::events(&gemini_events(turn), turn.pace)
            }
            _ if request.path.contains(":generateContent") => Reply::json(&gemini_body(turn)),
            (false, false) => Reply::json(&openai_body(turn)),
            (false, true) => Reply::events(&openai_events(turn), turn.pace),
            (true, false) => Reply::json(&anthropic_body(turn)),
            (true, true) => Reply::events(&anthropic_events(turn), turn.pace),
        };
        headed(reply)
    }

    /// A JSON body.
    pub fn json(body: &Value) -> Reply {
        Reply::new(200, "application/json", body.to_string())
    }

    fn events(events: &[String], pace: Duration) -> Reply {
        let mut reply = Reply::new(200, "text/event-stream", Vec::new());
        reply.body.clear();
        for event in events {
            reply.body.push(Send::Bytes(event.clone().into_bytes()));
            if !pace.is_zero() {
                reply.body.push(Send::Wait(pace));
            }
        }
        reply
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends the head after this long.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Reply {
        if !delay.is_zero() {
            self.body.insert(0, Send::Wait(delay));
        }
        self
    }

    /// Cuts the body into pieces of `n` bytes.
    #[must_use]
    pub fn split(mut self, n: usize) -> Reply {
        let mut body = Vec::new();
        for send in std::mem::take(&mut self.body) {
            match send {
                Send::Bytes(bytes) => {
                    body.extend(bytes.chunks(n.max(1)).map(|part| Send::Bytes(part.to_vec())));
                }
                other => body.push(other),
            }
        }
        self.body = body;
        self
    }

    /// Sends a byte at a time, with this long between two.
    #[must_use]
    pub fn drip(self, between: Duration) -> Reply {
        let mut reply = self.split(1);
        reply.body = reply.body.into_iter().flat_map(|send| [send, Send::Wait(between)]).collect();
        reply
    }

    /// After `bytes` of the body nothing more comes.
    #[must_use]
    pub fn stall_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Stall)
    }

    /// After `bytes` of the body the connection is reset.
    #[must_use]
    pub fn reset_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Reset)
    }

    /// After `bytes` of the body it ends, as if it were whole.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::End)
    }

    /// After `bytes` of the body the connection is closed in good order; that the body is not
    /// whole shows only in that it was not ended.
    #[must_use]
    pub fn close_after(self, bytes: usize) -> Reply {
        self.end_after(bytes, Send::Close)
    }

    /// The head claims that the body has `more` bytes than it has (or fewer), instead of sending
    /// it in chunks; after the body nothing more comes.
    #[must_use]
    pub fn claim_length(mut self, more: i64) -> Reply {
        let bytes =
            |send: &Send| if let Send::Bytes(bytes) = send { bytes.len() as u64 } else { 0 };
        let length: u64 = self.body.iter().map(bytes).sum();
        self.claimed = Some(length.saturating_add_signed(more));
        self
    }

    /// A proxy's error page in place of an answer.
    pub fn html(status: u16) -> Reply {
        let page = format!("<html><head><title>{status}</title></head><body>Oops</body></html>");
        Reply::new(status, "text/html; charset=utf-8", page)
    }

    /// The head of the response never ends: a header follows the other.
    #[must_use]
    pub fn endless_head(mut self) -> Reply {
        self.endless_head = true;
        self
    }

    fn end_after(mut self, bytes: usize, end: Send) -> Reply {
        let mut left = bytes;
        let mut body = Vec::new();
        for send in std::mem::take(&mut self.body) {
            match send {
                Send::Bytes(mut part) => {
                    part.truncate(left);
                    left -= part.len();
                    body.push(Send::Bytes(part));
                    if left == 0 {
                        break;
                    }
                }
                other => body.push(other),
            }
        }
        body.push(end);
        self.body = body;
        self
    }
}

fn openai_finish(turn: &Turn) -> &str {
    turn.finish.as_deref().unwrap_or(if turn.calls.is_empty() { "stop" } else { "tool_calls" })
}

fn openai_usage(turn: &Turn) -> Value {
    let used = turn.used();
    let (input, output) = (used.input_tokens, used.output_tokens);
    json!({"prompt_tokens": input, "completion_tokens": output,
           "total_tokens": input.unwrap_or(0) + output.unwrap_or(0)})
}

fn openai_calls(turn: &Turn) -> Vec<Value> {
    turn.calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect()
}

/// A text in two pieces, as a stream brings it.
fn halves(text: &str) -> [&str; 2] {
    let at = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = text.split_at(at);
    [first, second]
}

/// The arguments of the call of this id, as the script has them.
fn raw_arguments<'a>(turn: &'a Turn, id: &Value) -> [&'a str; 2] {
    let call = turn.calls.iter().find(|(known, ..)| id == known);
    halves(call.map_or("", |(_, _, arguments)| arguments))
}

fn openai_body(turn: &Turn) -> Value {
    let mut message = json!({"role": "assistant", "content": turn.text, "refusal": null});
    if !turn.calls.is_empty() {
        message["tool_calls"] = Value::Array(openai_calls(turn));
    }
    if !turn.reasoning.is_empty() {
        message["reasoning_content"] = Value::String(turn.reasoning.clone());
    }
    json!({"id": "chatcmpl-script", "object": "chat.completion", "created": 0, "model": "script",
           "choices": [{"index": 0, "message": message, "finish_reason": openai_finish(turn)}],
           "usage": openai_usage(turn)})
}

pub(super) fn openai_events(turn: &Turn) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let event = json!({"id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0,
            "model": "script", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {event}\n\n")
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    if !turn.reasoning.is_empty() {
        events.push(chunk(json!({"reasoning_content": turn.reasoning}), Value::Null));
    }
    for word in turn.words() {
        events.push(chunk(json!({"content": word}), Value::Null));
    }
    for (index, (id, name, arguments)) in turn.calls.iter().enumerate() {
        events.push(chunk(
            json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                   "function": {"name": name, "arguments": ""}}]}),
            Value::Null,
        ));
        for part in halves(arguments) {
            events.push(chunk(
                json!({"tool_calls": [{"index": index, "function": {"arguments": part}}]}),
                Value::Null,
            ));
        }
    }
    events.push(chunk(json!({}), openai_finish(turn).into()));
    let usage = json!({"id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 0,
                       "model": "script", "choices": [], "usage": openai_usage(turn)});
    events.push(format!("data: {usage}\n\n"));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn anthropic_finish(turn: &Turn) -> &str {
    turn.finish.as_deref().unwrap_or(if turn.calls.is_empty() { "end_turn" } else { "tool_use" })
}

fn anthropic_blocks(turn: &Turn) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !turn.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": turn.reasoning, "signature": "c2ln"}));
    }
    if !turn.text.is_empty() {
        blocks.push(json!({"type": "text", "text": turn.text}));
    }
    for (id, name, arguments) in &turn.calls {
        // Without a stream there is no way to say half an object.
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    blocks
}

fn anthropic_body(turn: &Turn) -> Value {
    let used = turn.used();
    json!({"id": "msg_script", "type": "message", "role": "assistant", "model": "script",
           "content": anthropic_blocks(turn), "stop_reason": anthropic_finish(turn),
           "stop_sequence": null,
           "usage": {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}})
}

pub(super) fn anthropic_events(turn: &Turn) -> Vec<String> {
    let event = |data: Value| {
        format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
    };
    let used = turn.used();
    let mut events = vec![event(json!({"type": "message_start", "message": {
        "id": "msg_script", "type": "message", "role": "assistant", "model": "script",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": used.input_tokens, "output_tokens": 1}}}))];
    events.push(event(json!({"type": "ping"})));
    for (index, block) in anthropic_blocks(turn).into_iter().enumerate() {
        let kind = block["type"].as_str().unwrap_or_default().to_owned();
        let (start, deltas) = match kind.as_str() {
            "thinking" => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ],
            ),
            "text" => (
                json!({"type": "text", "text": ""}),
                turn.words().iter().map(|w| json!({"type": "text_delta", "text": w})).collect(),
            ),
            _ => (
                json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}),
                raw_arguments(turn, &block["id"])
                    .iter()
                    .map(|part| json!({"type": "input_json_delta", "partial_json": part}))
                    .collect(),
            ),
        };
        events.push(event(
            json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        for delta in deltas {
            events.push(event(
                json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
        }
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(json!({"type": "message_delta",
        "delta": {"stop_reason": anthropic_finish(turn), "stop_sequence": null},
        "usage": {"output_tokens": used.output_tokens}})));
    events.push(event(json!({"type": "message_stop"})));
    events
}

fn gemini_parts(turn: &Turn, words: &[&str]) -> Vec<Value> {
    let mut parts = Vec::new();
    if !turn.reasoning.is_empty() {
        parts.push(json!({"text": turn.reasoning, "thought": true}));
    }
    parts.extend(words.iter().filter(|word| !word.is_empty()).map(|word| json!({"text": word})));
    for (_, name, arguments) in &turn.calls {
        // There is no way to say half an object.
        let args: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        parts.push(json!({"functionCall": {"name": name, "args": args}}));
    }
    parts
}

fn gemini_chunk(turn: &Turn, parts: &[Value], last: bool) -> Value {
    let used = turn.used();
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if last {
        candidate["finishReason"] = turn.finish.as_deref().unwrap_or("STOP").into();
    }
    json!({"candidates": [candidate], "modelVersion": "script", "responseId": "script",
           "usageMetadata": {"promptTokenCount": used.input_tokens,
                             "candidatesTokenCount": used.output_tokens}})
}

fn gemini_body(turn: &Turn) -> Value {
    gemini_chunk(turn, &gemini_parts(turn, &[&turn.text]), true)
}

pub(super) fn gemini_events(turn: &Turn) -> Vec<String> {
    let event = |parts: &[Value], last| format!("data: {}\n\n", gemini_chunk(turn, parts, last));
    let parts = gemini_parts(turn, &turn.words());
    let mut events: Vec<String> = parts.chunks(1).map(|part| event(part, false)).collect();
    events.push(event(&[json!({"text": ""})], true));
    events
}
