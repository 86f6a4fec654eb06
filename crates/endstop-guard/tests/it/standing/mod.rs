//! A standing proxy between raw clients and a raw upstream.

mod ceilings;
mod file;
mod runs;
mod scrape;
mod tokens;

use crate::proxy::support::{Conn, background, upstream};
use endstop_guard::proxy::{Proxy, ProxyOptions};
use endstop_guard::standing::{Hour, Keeper, OpenBudget, Standing, StandingFile};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

pub(crate) const TOKEN: &str = "guard-token-0123456789";
pub(crate) const OTHER: &str = "other-token-0123456789";

/// A standing proxy, and the heads of the requests that its upstream has got.
pub(crate) struct Lab {
    pub(crate) address: SocketAddr,
    pub(crate) standing: Standing,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    pub(crate) keeper: Keeper,
}

impl Lab {
    /// Starts a proxy with this file. `UPSTREAM` in it is the address of an upstream that answers
    /// every call with a tool call, which keeps the agent's loop open.
    pub(crate) async fn start(file: &str) -> Lab {
        Lab::on(file, Box::new(|_| Ok(None))).await
    }

    /// Starts a proxy with other options.
    pub(crate) async fn with(file: &str, change: impl FnOnce(&mut ProxyOptions)) -> Lab {
        let mut options = ProxyOptions::default();
        change(&mut options);
        Lab::start_with(file, Box::new(|_| Ok(None)), options).await
    }

    pub(crate) async fn on(file: &str, open: OpenBudget) -> Lab {
        Lab::start_with(file, open, ProxyOptions::default()).await
    }

    async fn start_with(file: &str, open: OpenBudget, options: ProxyOptions) -> Lab {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let upstream = upstream(move |conn| serve(conn, Arc::clone(&seen))).await;
        let file = file.replace("UPSTREAM", &format!("http://{upstream}"));
        let variable = |name: &str| match name {
            "TOKEN" => Some(TOKEN.to_owned()),
            "OTHER" => Some(OTHER.to_owned()),
            _ => None,
        };
        let file = StandingFile::parse(&file, variable).unwrap();
        let watcher = Arc::new(|_| {});
        let standing = Standing::new(file.tokens, file.profiles, &file.upstreams, [7; 16], watcher);
        // Any run that is quiet is idle, so that no test waits.
        let idle_after = Duration::from_nanos(1);
        let keeper = Keeper::new(standing.clone(), idle_after, open, Hour(0)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Proxy::new(standing.clone(), options);
        background(proxy.run(listener, std::future::pending()));
        Lab { address, standing, heads, keeper }
    }

    /// Sends a request and returns the status and the body.
    pub(crate) async fn send(&self, target: &str, headers: &str, body: &str) -> (u16, String) {
        let mut conn = Conn::to(self.address).await;
        let length = body.len();
        let method = if body.is_empty() { "GET" } else { "POST" };
        conn.send(format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\ncontent-length: {length}\r\n{headers}\r\n{body}",
            self.address
        ))
        .await;
        let (head, body) = conn.message().await;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, String::from_utf8(body.unwrap()).unwrap())
    }

    /// Makes a turn of a run. Each turn has the history of the earlier ones, as an agent's has.
    pub(crate) async fn turn(&self, run: &str, turn: usize, headers: &str) -> (u16, String) {
        self.send(&format!("/run/{run}/v1/chat/completions"), headers, &chat(turn)).await
    }

    pub(crate) fn calls(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

/// The request of a turn, from 1.
pub(crate) fn chat(turn: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "Fix the test."})];
    for past in 1..turn {
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call(past)]}));
        messages.push(json!({"role": "tool", "tool_call_id": format!("c{past}"), "content": format!("result {past}")}));
    }
    let tool = json!({"type": "function", "function": {"name": "bash", "parameters": {}}});
    json!({"model": "gpt-4o", "messages": messages, "tools": [tool]}).to_string()
}

fn call(turn: usize) -> Value {
    let arguments = json!({"command": format!("step {turn}")}).to_string();
    json!({"id": format!("c{turn}"), "type": "function", "function": {"name": "bash", "arguments": arguments}})
}

async fn serve(mut conn: Conn, heads: Arc<Mutex<Vec<String>>>) {
    loop {
        let Ok(head) = conn.until(b"\r\n\r\n").await else { return };
        let head = String::from_utf8(head).unwrap();
        let length = crate::proxy::support::header(&head, "content-length");
        let body = conn.exact(length.map_or(0, |length| length.parse().unwrap())).await.unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let past = request["messages"].as_array().map_or(0, |all| all.len() / 2);
        heads.lock().unwrap().push(head);
        let answer = json!({
            "id": "r", "object": "chat.completion", "created": 0, "model": "gpt-4o",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
                {"role": "assistant", "content": null, "tool_calls": [call(past + 1)]}}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
        })
        .to_string();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        ))
        .await;
    }
}
