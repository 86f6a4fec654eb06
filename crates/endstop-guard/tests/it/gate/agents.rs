//! Agents of a test: conversations that grow, retry, close early and run at once.

use super::support::Dice;
use crate::proxy::support::{Conn, post};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The formats that the agents speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Chat,
    Anthropic,
    Gemini,
    Responses,
    Cohere,
}

pub(crate) const ALL: [Speaks; 5] =
    [Speaks::Chat, Speaks::Anthropic, Speaks::Gemini, Speaks::Responses, Speaks::Cohere];

/// A conversation.
pub(crate) struct Talk {
    pub(crate) run: String,
    pub(crate) name: String,
    pub(crate) speaks: Speaks,
    pub(crate) streamed: bool,
    pub(crate) cap: Option<u64>,
    pub(crate) choices: u64,
    pub(crate) steps: Vec<Value>,
}

impl Talk {
    pub(crate) fn new(run: &str, name: &str, speaks: Speaks) -> Talk {
        Talk {
            run: run.to_owned(),
            name: name.to_owned(),
            speaks,
            streamed: false,
            cap: None,
            choices: 1,
            steps: Vec::new(),
        }
    }

    /// The next request, with its path.
    pub(crate) fn request(&self) -> Vec<u8> {
        let task = format!("run {}; task of {}", self.run, self.name);
        let run = format!("/run/{}", self.run);
        let (path, mut body) = match self.speaks {
            Speaks::Chat | Speaks::Cohere => {
                let mut messages = vec![json!({"role": "user", "content": task})];
                messages.extend(self.steps.iter().cloned());
                let tool =
                    json!({"type": "function", "function": {"name": "bash", "parameters": {}}});
                let is_cohere = self.speaks == Speaks::Cohere;
                let path = if is_cohere { "/v2/chat" } else { "/v1/chat/completions" };
                (path.to_owned(), json!({"messages": messages, "tools": [tool]}))
            }
            Speaks::Anthropic => {
                let mut messages = vec![json!({"role": "user", "content": task})];
                messages.extend(self.steps.iter().cloned());
                let tool = json!({"name": "bash", "input_schema": {"type": "object"}});
                ("/v1/messages".to_owned(), json!({"messages": messages, "tools": [tool]}))
            }
            Speaks::Gemini => {
                let mut contents = vec![json!({"role": "user", "parts": [{"text": task}]})];
                contents.extend(self.steps.iter().cloned());
                let verb =
                    if self.streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
                let tools = json!([{"functionDeclarations": [{"name": "bash"}]}]);
                let mut body = json!({"contents": contents, "tools": tools});
                if let Some(cap) = self.cap {
                    body["generationConfig"] = json!({"maxOutputTokens": cap});
                }
                let path = format!("{run}/v1beta/models/m:{verb}");
                return post(&path, body.to_string().as_bytes());
            }
            Speaks::Responses => {
                let mut input = vec![json!({"role": "user", "content": task})];
                input.extend(self.steps.iter().cloned());
                let tool = json!({"type": "function", "name": "bash", "parameters": {}});
                ("/v1/responses".to_owned(), json!({"input": input, "tools": [tool]}))
            }
        };
        body["model"] = json!("m");
        if self.streamed {
            body["stream"] = json!(true);
            if self.speaks == Speaks::Chat {
                body["stream_options"] = json!({"include_usage": true});
            }
        }
        if let Some(cap) = self.cap {
            let name =
                if self.speaks == Speaks::Responses { "max_output_tokens" } else { "max_tokens" };
            body[name] = json!(cap);
        }
        if self.choices > 1 && self.speaks == Speaks::Chat {
            body["n"] = json!(self.choices);
        }
        post(&format!("{run}{path}"), body.to_string().as_bytes())
    }

    /// Continues after an answer: with the result of a call if it has one, else with a question.
    pub(crate) fn answered(&mut self, answer: &str) {
        let at = self.steps.len();
        let id = answer.find("call_").map(|from| {
            let rest = &answer[from..];
            rest.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().unwrap_or_default()
        });
        let id = id.filter(|id| id.ends_with('x'));
        match (self.speaks, id) {
            (Speaks::Chat | Speaks::Cohere, Some(id)) => {
                let call = json!({"id": id, "type": "function",
                    "function": {"name": "bash", "arguments": "{}"}});
                self.steps
                    .push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
                self.steps.push(
                    json!({"role": "tool", "tool_call_id": id, "content": format!("out {at}")}),
                );
            }
            (Speaks::Anthropic, Some(id)) => {
                let call = json!({"type": "tool_use", "id": id, "name": "bash", "input": {}});
                self.steps.push(json!({"role": "assistant", "content": [call]}));
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": format!("out {at}")});
                self.steps.push(json!({"role": "user", "content": [result]}));
            }
            (Speaks::Responses, Some(id)) => {
                self.steps.push(json!({"type": "function_call", "call_id": id, "name": "bash", "arguments": "{}"}));
                self.steps.push(json!({"type": "function_call_output", "call_id": id, "output": format!("out {at}")}));
            }
            (Speaks::Gemini, _) => {
                self.steps.push(json!({"role": "model", "parts": [{"text": "so"}]}));
                self.steps.push(json!({"role": "user", "parts": [{"text": format!("more {at}")}]}));
            }
            _ => {
                self.steps.push(json!({"role": "assistant", "content": "so"}));
                self.steps.push(json!({"role": "user", "content": format!("more {at}")}));
            }
        }
    }
}

/// Sends a request on a connection of its own, and returns the status and the body; the error is a
/// body that was cut.
pub(crate) async fn call(address: SocketAddr, request: &[u8]) -> (u16, Result<String, String>) {
    let (head, body) = exchange(address, request).await;
    (head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0), body)
}

/// The same with the whole head.
pub(crate) async fn exchange(
    address: SocketAddr,
    request: &[u8],
) -> (String, Result<String, String>) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let mut conn = Conn::to(address).await;
    conn.send(request).await;
    let Ok(head) = conn.until(b"\r\n\r\n").await else {
        return (String::new(), Err(String::new()));
    };
    let head = text(head);
    let body = match crate::proxy::support::header(&head, "content-length") {
        Some(length) => conn.exact(length.parse().expect("a length")).await,
        None => conn.chunked().await.map(|(body, _)| body),
    };
    (head, body.map(text).map_err(text))
}

/// The answers that an agent has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) calls: u64,
    pub(crate) retries: u64,
    pub(crate) left_early: u64,
    pub(crate) refused: u64,
}

/// Talks until it is refused twice, or for a number of steps.
pub(crate) async fn talk(address: SocketAddr, mut talk: Talk, steps: u64, mut dice: Dice) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..steps {
        let request = talk.request();
        seen.calls += 1;
        if dice.roll(12) == 0 {
            // Leaves in the middle of the call, and asks again.
            let mut conn = Conn::to(address).await;
            conn.send(&request).await;
            if dice.roll(2) == 0 {
                let _ = conn.until(b"\r\n\r\n").await;
            }
            seen.left_early += 1;
            continue;
        }
        let (status, body) = call(address, &request).await;
        match (status, body) {
            (200, Ok(body)) => talk.answered(&body),
            (400, Ok(body)) if body.contains("endstop") || body.contains("stopped") => {
                seen.refused += 1;
                if seen.refused > 1 {
                    break;
                }
            }
            _ => seen.retries += 1,
        }
    }
    seen
}
