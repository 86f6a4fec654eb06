//! Tests of MCP servers over HTTP. The server is a socket that speaks just enough HTTP.

use crate::support::call;
use endstop::mcp::{McpErrorKind, McpServer};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::ToolOutput;
use endstop::{Agent, Limits};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub fn all() -> Vec<(&'static str, fn())> {
    crate::checks![
        tools_are_called_over_http,
        cancel_is_sent_over_http,
        closed_connection_is_tool_error,
        huge_http_answer_is_refused,
        address_without_mcp_is_error,
        refusal_names_what_is_required,
        redirect_is_not_followed,
        packed_answer_is_unpacked,
        huge_event_is_not_asked_for_again,
    ]
}

/// A server, and the headers and messages that it received.
struct Site {
    url: String,
    heard: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Site {
    fn new(mode: impl Into<String>) -> Site {
        let mode = mode.into();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, mode) = (Arc::clone(&log), mode.clone());
                std::thread::spawn(move || serve(stream, &mode, &log));
            }
        });
        Site { url, heard }
    }

    fn server(&self) -> McpServer {
        McpServer::http("played", &self.url)
            .header("Authorization", "Bearer hidden-value-123")
            .ready_within(Duration::from_secs(60))
    }

    fn messages(&self, method: &str) -> Vec<Value> {
        let heard = self.heard.lock().unwrap();
        let messages = heard.iter().map(|(_, message)| message);
        messages.filter(|message| message["method"] == method).cloned().collect()
    }
}

/// Reads the headers and the body of a request; `None` at the end of the connection.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn serve(stream: TcpStream, mode: &str, log: &Mutex<Vec<(String, Value)>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    while let Some((head, body)) = request(&mut reader) {
        let mut send = |status: &str, kind: &str, body: &str| {
            let length = body.len();
            write!(
                out,
                "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nmcp-session-id: s1\r\ncontent-length: {length}\r\n\r\n{body}"
            )
        };
        if mode == "teapot" {
            let _ = send("418 I'm a teapot", "text/plain", "short and stout");
            continue;
        }
        if mode == "locked" {
            let _ = write!(
                out,
                "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"played\"\r\ncontent-length: 0\r\n\r\n"
            );
            continue;
        }
        if let Some(to) = mode.strip_prefix("moved to ") {
            let _ = write!(
                out,
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"
            );
            continue;
        }
        if head.contains("last-event-id: 7\r\n") {
            log.lock().unwrap().push((head, json!({"method": "resumed"})));
            let _ = send("200 OK", "text/event-stream", &huge_event());
            continue;
        }
        if !head.starts_with("POST") {
            let _ = send("405 Method Not Allowed", "text/plain", "");
            continue;
        }
        let message: Value = serde_json::from_slice(&body).unwrap();
        log.lock().unwrap().push((head, message.clone()));
        let id = &message["id"];
        let answer =
            |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        let kind = "application/json";
        let done = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let version = &message["params"]["protocolVersion"];
                send(
                    "200 OK",
                    kind,
                    &answer(json!({"protocolVersion": version, "capabilities": {"tools": {}},
                    "serverInfo": {"name": "site", "version": "1"}})),
                )
            }
            "tools/list" => {
                let names =
                    ["echo", "hang", "huge", "leave", "events", "broken", "packed", "bulky"];
                let tools =
                    names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
                send("200 OK", kind, &answer(json!({"tools": tools})))
            }
            "tools/call" => {
                let text = answer(json!({"content": [{"type": "text",
                    "text": message["params"]["arguments"]["text"]}]}));
                match message["params"]["name"].as_str().unwrap() {
                    "echo" => send("200 OK", kind, &text),
                    "hang" => {
                        // Wait until the client closes the connection.
                        let _ = reader.read(&mut [0; 1]);
                        return;
                    }
                    "leave" => return,
                    "huge" => {
                        let size = 100 << 20;
                        let _ = write!(
                            out,
                            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
                        );
                        let piece = "x".repeat(1 << 20);
                        for _ in 0..size >> 20 {
                            if write!(out, "{:x}\r\n{piece}\r\n", piece.len()).is_err() {
                                return;
                            }
                        }
                        return;
                    }
                    "events" => {
                        let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
                            "params": {"level": "info", "data": "x"}});
                        let mut events = format!("event: message\ndata: {note}\n\n").repeat(10_000);
                        events.push_str(&format!("event: message\ndata: {text}\n\n"));
                        send("200 OK", "text/event-stream", &events)
                    }
                    "packed" => {
                        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
                        packed.write_all(text.as_bytes()).unwrap();
                        let packed = packed.finish().unwrap();
                        let length = packed.len();
                        let _ = write!(
                            out,
                            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\r\n"
                        );
                        out.write_all(&packed)
                    }
                    "bulky" => send("200 OK", "text/event-stream", &huge_event()),
                    // The event stream begins and then breaks off.
                    _ => send("200 OK", "text/event-stream", ": nothing\n\n"),
                }
            }
            "server/discover" => {
                let error =
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}});
                send("200 OK", kind, &error.to_string())
            }
            _ => send("202 Accepted", "text/plain", ""),
        };
        if done.is_err() {
            return;
        }
    }
}

/// An event of 5 MiB, after one with an id, from which a stream can be resumed.
fn huge_event() -> String {
    format!("id: 7\ndata: \n\ndata: {}\n\n", "x".repeat(5 << 20))
}

async fn tools_are_called_over_http() {
    let site = Site::new("good");
    let tools = site.server().connect().await.unwrap();
    assert_eq!(tools.protocol_version(), "2025-11-25");
    assert!(!tools.tools().next().unwrap().touches_machine());
    assert_eq!(call(&tools, "echo", "hello").await, ToolOutput::ok("hello"));
    assert_eq!(call(&tools, "events", "after a flood").await, ToolOutput::ok("after a flood"));
    let heard = site.heard.lock().unwrap().clone();
    assert!(heard.iter().all(|(head, _)| head.contains("Bearer hidden-value-123")));
    assert!(site.server().known_keys().out_of_text("a hidden-value-123 b").contains("[redacted]"));
    tools.close().await;
}

async fn cancel_is_sent_over_http() {
    let site = Site::new("good");
    let tools = site.server().connect().await.unwrap();
    let turns = [Turn::call("played__hang", &json!({})), Turn::text("done")];
    let agent = Agent::builder(ScriptedModel::new(turns));
    let limits = Limits { cancel_grace: Duration::from_secs(1000), ..Limits::default() };
    let agent = tools.tools().fold(agent, |agent, tool| agent.shared_tool(tool));
    let agent = agent.limits(limits).build().unwrap();
    let run = agent.run("go").unwrap();
    crate::processes::soon("it is called", || !site.messages("tools/call").is_empty());
    let began = Instant::now();
    agent.cancel();
    let outcome = run.outcome().await;
    assert_eq!(outcome.termination, endstop::Termination::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let id = site.messages("tools/call")[0]["id"].clone();
    crate::processes::soon("the server is notified", || {
        let told = site.messages("notifications/cancelled");
        told.iter().any(|told| told["params"]["requestId"] == id)
    });
    tools.close().await;
}

async fn closed_connection_is_tool_error() {
    let site = Site::new("good");
    let tools = site.server().connect().await.unwrap();
    for name in ["leave", "broken"] {
        let began = Instant::now();
        let output = call(&tools, name, "").await;
        assert!(output.is_error(), "{name}: {output:?}");
        assert!(!output.content.contains("hidden"), "{name}: {output:?}");
        // The retries alone take four seconds.
        assert!(began.elapsed() < Duration::from_secs(60), "{name}: {:?}", began.elapsed());
    }
    // The next call is a new request.
    assert_eq!(call(&tools, "echo", "still").await, ToolOutput::ok("still"));
}

async fn huge_http_answer_is_refused() {
    let site = Site::new("good");
    let tools = site.server().connect().await.unwrap();
    let output = call(&tools, "huge", "").await;
    assert!(output.is_error() && output.content.contains("16777216"), "{output:?}");
    assert_eq!(call(&tools, "echo", "still").await, ToolOutput::ok("still"));
}

async fn address_without_mcp_is_error() {
    let site = Site::new("teapot");
    let error = site.server().connect().await.unwrap_err();
    assert_eq!(error.kind, McpErrorKind::Start, "{error}");
    assert!(error.to_string().contains("418"), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
}

async fn refusal_names_what_is_required() {
    let error = Site::new("locked").server().connect().await.unwrap_err();
    assert_eq!(error.kind, McpErrorKind::Start, "{error}");
    assert!(error.to_string().contains("authorization required: Bearer realm"), "{error}");
    assert!(!error.to_string().contains("hidden"), "{error}");
}

async fn redirect_is_not_followed() {
    // The headers are for the first server.
    let other = Site::new("good");
    let error = Site::new(format!("moved to {}", other.url)).server().connect().await.unwrap_err();
    assert!(error.to_string().contains("307"), "{error}");
    assert!(other.heard.lock().unwrap().is_empty());
}

async fn packed_answer_is_unpacked() {
    let site = Site::new("good");
    let tools = site.server().connect().await.unwrap();
    assert_eq!(call(&tools, "packed", "hello").await, ToolOutput::ok("hello"));
    let heard = site.heard.lock().unwrap().clone();
    assert!(heard.iter().all(|(head, _)| head.contains("accept-encoding: gzip\r\n")), "{heard:?}");
}

async fn huge_event_is_not_asked_for_again() {
    let site = Site::new("good");
    let tools = site.server().connect().await.unwrap();
    let output = call(&tools, "bulky", "").await;
    assert!(output.is_error(), "{output:?}");
    assert!(site.messages("resumed").is_empty());
    assert_eq!(call(&tools, "echo", "still").await, ToolOutput::ok("still"));
}
