//! A small MCP server over standard streams. Each tool does what its name says, for example `die`.
//! The server logs every line that it receives.

use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, Write, stderr, stdin, stdout};
use std::process::ExitCode;
use std::time::Duration;

struct Server {
    log: File,
    mode: String,
    dies: bool,
}

/// Runs the server in this mode until its input ends.
pub fn play(mode: &str, log: &str) -> ExitCode {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let mut server = Server { log, mode: mode.to_owned(), dies: false };
    writeln!(server.log, "pid {}", std::process::id()).unwrap();
    match mode {
        "exits" => {
            eprintln!("no licence for the key sk-abcdefghij0123456789");
            return ExitCode::from(3);
        }
        "deaf" => std::thread::sleep(Duration::from_secs(1000)),
        _ => {}
    }
    while let Some(message) = server.hear() {
        server.answer(&message);
        if server.dies {
            return ExitCode::from(7);
        }
    }
    if mode == "stays" {
        std::thread::sleep(Duration::from_secs(1000));
    }
    writeln!(server.log, "the end of the input").unwrap();
    ExitCode::SUCCESS
}

fn say(message: &Value) {
    let mut out = stdout().lock();
    writeln!(out, "{message}").unwrap();
    out.flush().unwrap();
}

fn result(id: &Value, result: Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn text(id: &Value, text: impl Into<String>) {
    result(id, json!({"content": [{"type": "text", "text": text.into()}]}));
}

fn tool(name: &str, hints: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    json!({"name": name, "description": format!("Does {name}."), "inputSchema": schema, "annotations": hints})
}

/// Returns a tool whose schema has about this many bytes.
fn large(name: &str, bytes: usize) -> Value {
    let property = json!({"type": "string", "description": "x".repeat(bytes)});
    json!({"name": name, "inputSchema": {"type": "object", "properties": {"text": property}}})
}

impl Server {
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        if stdin().lock().read_line(&mut line).unwrap() == 0 {
            return None;
        }
        self.log.write_all(line.as_bytes()).unwrap();
        Some(serde_json::from_str(&line).unwrap())
    }

    fn answer(&mut self, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let version = match self.mode.as_str() {
                    "old" => json!("1999-01-01"),
                    _ => message["params"]["protocolVersion"].clone(),
                };
                let info = json!({"name": "played", "version": "1"});
                result(
                    id,
                    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}),
                );
            }
            "tools/list" => self.list(id, message),
            "tools/call" => self.call(id, message),
            method if method.starts_with("notifications/") => {}
            "" => {}
            method => say(&json!({"jsonrpc": "2.0", "id": id,
                "error": {"code": -32601, "message": format!("no {method} here")}})),
        }
    }

    fn list(&self, id: &Value, message: &Value) {
        match self.mode.as_str() {
            "clash" => {
                result(id, json!({"tools": [tool("a.b", json!({})), tool("a/b", json!({}))]}))
            }
            "none" => result(id, json!({"tools": []})),
            "large" => {
                let tools = [large("large", 70_000), tool("echo", json!({}))];
                result(id, json!({ "tools": tools }));
            }
            "large-name" => {
                result(id, json!({"tools": [tool(&"x".repeat(100_000), json!({}))]}));
            }
            // The schema of each page is allowed, but all of them together are too large.
            "heavy" => {
                let page = message["params"]["cursor"].as_str().map_or(1, |n| n.parse().unwrap());
                let more = (page < 30).then(|| (page + 1).to_string());
                let tools = [large(&format!("heavy{page}"), 60_000)];
                result(id, json!({"tools": tools, "nextCursor": more}));
            }
            "endless" => {
                result(id, json!({"tools": [tool("more", json!({}))], "nextCursor": "on"}))
            }
            "pages" if message["params"]["cursor"].is_null() => {
                result(id, json!({"tools": [tool("echo", json!({}))], "nextCursor": "two"}));
            }
            "pages" => {
                let mut bare = json!({"name": "bare", "inputSchema": {}});
                bare["title"] = "Has a title".into();
                result(id, json!({"tools": [bare]}));
            }
            "slow-list" => std::thread::sleep(Duration::from_secs(1000)),
            _ => {
                let plain = [
                    "hang",
                    "huge",
                    "environment",
                    "die",
                    "flood",
                    "beg",
                    "ask",
                    "lie",
                    "junk",
                    "fail",
                    "refuse",
                    "mute",
                    "spout",
                ];
                let mut tools = vec![
                    tool("echo", json!({"readOnlyHint": true})),
                    tool("set", json!({"idempotentHint": true, "destructiveHint": true})),
                ];
                tools.extend(plain.map(|name| tool(name, json!({}))));
                result(id, json!({"tools": tools}));
            }
        }
    }

    fn call(&mut self, id: &Value, message: &Value) {
        let said = message["params"]["arguments"]["text"].as_str().unwrap_or_default().to_owned();
        match message["params"]["name"].as_str().unwrap() {
            "echo" | "set" => text(id, said),
            "hang" => {}
            // From now on it does not read its input either.
            "mute" => std::thread::sleep(Duration::from_secs(1000)),
            "huge" => {
                let mut out = stdout().lock();
                write!(out, r#"{{"result":{{"content":[{{"type":"text","text":""#).unwrap();
                let piece = vec![b'x'; 1 << 20];
                (0..100).for_each(|_| out.write_all(&piece).unwrap());
                writeln!(out, r#""}}]}},"jsonrpc":"2.0","id":{id}}}"#).unwrap();
                out.flush().unwrap();
            }
            "environment" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                text(id, names.join(" "));
            }
            "die" => {
                eprintln!("out of luck");
                self.dies = true;
            }
            "flood" => {
                let mut out = stdout().lock();
                let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
                    "params": {"level": "info", "data": "x".repeat(100)}});
                let step = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": 0, "progress": 1}});
                for _ in 0..50_000 {
                    writeln!(out, "{note}\n{step}").unwrap();
                }
                drop(out);
                stderr().write_all(&vec![b'e'; 20 << 20]).unwrap();
                text(id, "flooded");
            }
            "spout" => loop {
                let note = json!({"jsonrpc": "2.0", "method": "notifications/message",
                    "params": {"level": "info", "data": "x"}});
                say(&note);
            },
            "beg" => {
                // No answer is read before all requests were sent.
                let mut out = stdout().lock();
                for n in 0..50_000 {
                    writeln!(out, r#"{{"jsonrpc":"2.0","id":{n},"method":"ping"}}"#).unwrap();
                }
                drop(out);
                text(id, "begged");
            }
            "ask" => {
                let asked = [
                    (
                        "sampling/createMessage",
                        json!({"maxTokens": 5, "messages":
                        [{"role": "user", "content": {"type": "text", "text": "pay for this"}}]}),
                    ),
                    (
                        "elicitation/create",
                        json!({"message": "your password?",
                        "requestedSchema": {"type": "object", "properties": {}}}),
                    ),
                    ("roots/list", json!({})),
                ];
                let mut answers = Vec::new();
                for (at, (method, params)) in asked.iter().enumerate() {
                    say(&json!({"jsonrpc": "2.0", "id": at, "method": method, "params": params}));
                    let answer = self.hear().unwrap();
                    let error = answer["error"]["code"].to_string();
                    let action = answer["result"]["action"].to_string();
                    answers.push(format!("{method}: {error} {action}"));
                }
                text(id, answers.join("\n"));
            }
            "lie" => {
                for other in [json!(99_999), json!("x"), json!(-1), Value::Null] {
                    text(&other, "not yours");
                }
                say(&json!({"jsonrpc": "2.0", "error": {"code": 1, "message": "whose?"}}));
                text(id, "the first");
                text(id, "the second");
            }
            "junk" => {
                println!("debug: about to answer");
                println!("\u{1}\u{2}{{{{");
                println!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":"a text where an object belongs"}}"#
                );
            }
            "fail" => {
                result(id, json!({"content": [{"type": "text", "text": said}], "isError": true}))
            }
            _ => say(&json!({"jsonrpc": "2.0", "id": id,
                "error": {"code": -32602, "message": "not so: sk-abcdefghij0123456789"}})),
        }
    }
}
