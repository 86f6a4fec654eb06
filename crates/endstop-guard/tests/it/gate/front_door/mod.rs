//! What is not recognised does not pass a limit: spellings of paths, unknown calls, stored conversations,
//! background responses, and calls that are no turns. The upstream decodes paths as an ASGI server does, and keeps
//! its own bill.
//!
//! `ENDSTOP_CHAOS_RUNS=10000 cargo test -p endstop-guard --test it gate::front_door -- --nocapture`

mod bodies;
mod mix;
mod names;
mod paths;
mod prices;
mod stored;

use crate::gate::support::{Guard, INPUT, OUTPUT, price};
use crate::proxy::support::{Conn, header, upstream};
use endstop_core::Limits;
use endstop_guard::run::Settings;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// The requests that the upstream got, and its bill.
#[derive(Default)]
struct Server {
    asked: Vec<(String, String, Value)>,
    usd: f64,
    /// Polls that a background response still needs, by its id.
    working: HashMap<String, u32>,
    /// The tokens that it generates, by its id.
    working_output: HashMap<String, u64>,
    prompts: HashMap<String, u64>,
    /// `true` if each answer generates as much as its request allows.
    honours_caps: bool,
    /// The most expensive answer.
    largest: f64,
    /// `true` if a path that begins like that of a call is served as that call.
    routes_by_beginning: bool,
}

type Shared = Arc<Mutex<Server>>;

impl Server {
    fn bill(&mut self, input: u64, output: u64) -> Value {
        let usd = (input as f64 * INPUT + output as f64 * OUTPUT) / 1e6;
        self.usd += usd;
        self.largest = self.largest.max(usd);
        json!({"input_tokens": input, "output_tokens": output, "total_tokens": input + output,
            "prompt_tokens": input, "completion_tokens": output})
    }

    /// Answers like a server that decodes its paths, and ignores case and parameters in them.
    fn answer(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        self.asked.push((method.to_owned(), target.to_owned(), body.clone()));
        let number = self.asked.len();
        let caps = ["max_output_tokens", "max_tokens", "max_completion_tokens"];
        let cap = caps.iter().find_map(|name| body[*name].as_u64());
        let output = |usual: u64| if self.honours_caps { cap.unwrap_or(usual) } else { usual };
        let (step, chat, worked) = (output(20), output(20_000), output(5_000));
        let path = target.split('?').next().unwrap_or_default();
        let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy().to_lowercase();
        let mut path = path.replace("//", "/").split(';').next().unwrap_or_default().to_owned();
        if self.routes_by_beginning {
            // Guard removes the version from the paths of some formats.
            let calls = [
                "/v1/messages",
                "/v1/chat/completions",
                "/v1/responses",
                "/responses",
                "/v1/embeddings",
            ];
            let Some(call) = calls.into_iter().find(|call| path.starts_with(call)) else {
                return (404, json!({"error": {"message": "no"}}));
            };
            call.clone_into(&mut path);
        }
        if path.ends_with("/count_tokens") || path.ends_with("/input_tokens") {
            return (200, json!({"input_tokens": 14}));
        }
        let tool = json!({"type": "function_call", "id": "fc", "call_id": format!("call_{number}"),
            "name": "bash", "arguments": "{\"a\":1}", "status": "completed"});
        let id = format!("resp_{number}");
        if method == "GET" && path.contains("/responses/") {
            let id = path.rsplit('/').next().unwrap_or_default().to_owned();
            let Some(left) = self.working.get_mut(&id) else {
                return (404, json!({"error": {"message": "no"}}));
            };
            if *left > 0 {
                *left -= 1;
                return (
                    200,
                    json!({"id": id, "object": "response", "status": "in_progress", "output": []}),
                );
            }
            self.working.remove(&id);
            let worked = self.working_output.remove(&id).unwrap_or(5_000);
            let usage = self.bill(10, worked);
            let text = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}]});
            return (
                200,
                json!({"id": id, "object": "response", "status": "completed", "model": "m",
                "output": [text], "usage": usage}),
            );
        }
        if path.ends_with("/responses") && body["background"] == true {
            self.working.insert(id.clone(), 1);
            self.working_output.insert(id.clone(), worked);
            return (
                200,
                json!({"id": id, "object": "response", "status": "queued", "model": "m", "output": []}),
            );
        }
        if path.ends_with("/responses") {
            let before = body["previous_response_id"]
                .as_str()
                .and_then(|id| self.prompts.get(id))
                .copied()
                .unwrap_or(0);
            let prompt = before + body.to_string().len() as u64 / 4;
            self.prompts.insert(id.clone(), prompt);
            let usage = self.bill(prompt, step);
            return (
                200,
                json!({"id": id, "object": "response", "status": "completed", "model": "m",
                "output": [tool], "usage": usage}),
            );
        }
        if path.ends_with("/messages") {
            let thread = &body["thread"];
            let before = thread["previous_message_id"]
                .as_str()
                .and_then(|id| self.prompts.get(id))
                .copied()
                .unwrap_or(0);
            let prompt = before + body.to_string().len() as u64 / 4;
            let id = format!("msg_{number}");
            self.prompts.insert(id.clone(), prompt);
            let usage = self.bill(prompt, step);
            return (
                200,
                json!({"id": id, "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "tool_use", "id": format!("toolu_{number}"), "name": "bash", "input": {"a": 1}}],
                "stop_reason": "tool_use", "usage": usage}),
            );
        }
        if path.contains("embeddings") {
            let usage = self.bill(body.to_string().len() as u64 / 4, 0);
            return (
                200,
                json!({"object": "list", "data": [{"embedding": [0.1]}],
                "usage": {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["prompt_tokens"]}}),
            );
        }
        if path.contains("images/") {
            let usage = self.bill(20, 4_000);
            return (200, json!({"data": [{"b64_json": "AAAA"}], "usage": usage}));
        }
        let usage = self.bill(10, chat);
        (
            200,
            json!({"id": "c", "object": "chat.completion", "model": "m", "usage": usage,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "paid"}, "finish_reason": "stop"}]}),
        )
    }
}

/// Starts the server.
async fn server() -> (SocketAddr, Shared) {
    let shared = Shared::default();
    let server = Arc::clone(&shared);
    let address = upstream(move |mut conn: Conn| {
        let server = Arc::clone(&server);
        async move {
            while let Ok(head) = conn.until(b"\r\n\r\n").await {
                let head = String::from_utf8(head).expect("text");
                let body = match header(&head, "content-length") {
                    Some(length) => conn.exact(length.parse().expect("a length")).await.expect("a body"),
                    None if header(&head, "transfer-encoding").is_some() => {
                        conn.chunked().await.expect("a body").0
                    }
                    None => Vec::new(),
                };
                let mut words = head.split(' ');
                let (method, target) = (words.next().expect("a method"), words.next().expect("a target"));
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (status, answer) = server.lock().expect("a lock").answer(method, target, &body);
                let answer = answer.to_string();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    answer.len()
                );
                conn.send(format!("{head}{answer}")).await;
            }
        }
    })
    .await;
    (address, shared)
}

async fn guarded(settings: Settings) -> (Guard, Shared) {
    let (address, shared) = server().await;
    (Guard::start(settings, address).await, shared)
}

fn limited(limits: Limits) -> Settings {
    Settings { limits, price: Some(price()), ..Settings::default() }
}

fn usd(ceiling: f64) -> Limits {
    Limits { max_budget_usd: Some(ceiling), ..Limits::none() }
}

fn asked(server: &Shared) -> usize {
    server.lock().expect("a lock").asked.len()
}

fn request(method: &str, target: &str, kind: Option<&str>, body: &[u8]) -> Vec<u8> {
    let kind = kind.map(|kind| format!("content-type: {kind}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\n{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn json_to(target: &str, body: &Value) -> Vec<u8> {
    request("POST", target, Some("application/json"), body.to_string().as_bytes())
}

/// A call of a chat that costs $0.80.
fn chat() -> Value {
    json!({"model": "m", "tools": [{"type": "function", "function": {"name": "bash"}}],
        "messages": [{"role": "user", "content": "hello"}]})
}

/// Spellings of model calls that a server may accept.
const SPELLINGS: [&str; 14] = [
    "/v1/chat/%63ompletions",
    "/v1/chat%2Fcompletions",
    "/v1/chat/%2563ompletions",
    "/v1/Chat/Completions",
    "/v1/chat//completions",
    "/v1/chat/completions;v=1",
    "/v1/chat/completions%20",
    "/v1/chat/completions%00",
    "/v1/chat%5Ccompletions",
    "/v1/%6dessages",
    "/v1/Responses",
    "/v1/completion%73",
    "/v1beta/models/m:%67enerateContent",
    "/model/m/%63onverse",
];
