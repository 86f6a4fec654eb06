//! `endstop guard` around a scripted client: this test program itself, which is started again with
//! [`CLIENT`] and then talks to the provider that its environment names.

#![allow(
    clippy::exit,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the test program is also the client program that guard runs"
)]

mod endings;
mod processes;
mod programs;

use crate::cli::{ANTHROPIC_KEY, Cli, Done, OPENAI_KEY, Started, eventually};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, exit};

/// The variable that makes this program the client. Its value is what the tool of the client does:
/// a text that it returns, or `sleep N`. With [`TITLED`], it first asks for a title without tools.
const CLIENT: &str = "GUARD_TEST_CLIENT";

const TITLED: &str = "with a title";

/// The client that makes requests, but no model call.
const PROBES: &str = "probes";

/// The client whose tool waits for a file.
const WAITS: &str = "waits";

/// The client that shows an image to the model, and ends if it may not.
const SHOWS: &str = "shows";

/// The client that continues without the image.
const SHOWS_ONCE: &str = "shows once";

/// The client that first tries which models there are, each with a call for one token.
const TESTS_MODELS: &str = "tests models";

/// The client that forces one call and takes its arguments for the answer.
const EXTRACTS: &str = "extract";

/// Arguments of the test program that run only [`scripted_client`].
const ONLY_CLIENT: [&str; 5] =
    ["guard::scripted_client", "--exact", "--ignored", "--nocapture", "--quiet"];

/// The client whose tool returns the base URL.
const TELLS: &str = "its address";

/// Status of the client after an answer that it cannot use.
const UNUSABLE: i32 = 7;

#[test]
#[ignore = "the client of the other tests"]
fn scripted_client() {
    let Ok(tool) = std::env::var(CLIENT) else { return };
    let base = std::env::var("OPENAI_BASE_URL").unwrap();
    let mut messages = vec![json!({"role": "user", "content": "do the task"})];
    let url = format!("{base}/chat/completions?key={ANTHROPIC_KEY}");
    if tool == PROBES {
        // Requests that no limit counts.
        let tested = TcpStream::connect(base.split('/').nth(2).unwrap()).and_then(|mut stream| {
            stream.write_all(b"HEAD / HTTP/1.1\r\nhost: guard\r\nconnection: close\r\n\r\n")?;
            stream.read_to_string(&mut String::new())
        });
        tested.unwrap();
        post(&format!("{base}/embeddings"), &json!({"model": "e", "input": "x"}));
        exit(0);
    }
    if tool == TESTS_MODELS {
        let body =
            json!({"model": "gpt-4o", "max_tokens": 1, "stream": true, "messages": messages});
        for _ in 0..5 {
            post(&url, &body);
        }
    }
    if tool == TITLED {
        post(&url, &json!({"model": "gpt-4o", "stream": true, "messages": messages})).unwrap();
    }
    if [SHOWS, SHOWS_ONCE].contains(&&*tool) {
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let mut body = json!({"model": "gpt-4o", "stream": true,
            "messages": [{"role": "user", "content": [image]}],
            "tools": [{"type": "function", "function": {"name": "work", "parameters": {}}}]});
        if post(&url, &body).is_none() && tool == SHOWS {
            exit(UNUSABLE);
        }
        body["messages"] = json!(messages);
        exit(if post(&url, &body).is_some() { 0 } else { UNUSABLE });
    }
    for turn in 0..60 {
        let mut body = json!({"model": "gpt-4o", "stream": true, "messages": messages,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "work", "parameters": {}}}]});
        if tool == EXTRACTS {
            body["tool_choice"] = json!({"type": "function", "function": {"name": "work"}});
        }
        let reply = post(&url, &body);
        let Some((text, calls)) = reply else { exit(UNUSABLE) };
        if calls.is_empty() || tool == EXTRACTS {
            println!("answer: {text}");
            exit(0);
        }
        messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
        for call in calls {
            let id = format!("{}-{turn}", call["id"].as_str().unwrap());
            messages.last_mut().unwrap()["tool_calls"][0]["id"] = json!(id);
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": work(&tool)}));
        }
    }
}

/// Runs the client's tool: `exit` ends the client. A sleep has its own session, as with real agents.
fn work(tool: &str) -> String {
    if let Some(seconds) = tool.strip_prefix("sleep ") {
        Command::new("setsid").args(["-w", "sleep", seconds]).status().unwrap();
    }
    if tool == "exit" {
        exit(0);
    }
    if tool == TELLS {
        return std::env::var("OPENAI_BASE_URL").unwrap();
    }
    if tool == WAITS {
        eventually("the file", || std::path::Path::new("go").exists());
    }
    tool.to_owned()
}

/// Posts a body and reads a stream of chunks. Returns `None` if it is an error or has no end.
fn post(url: &str, body: &Value) -> Option<(String, Vec<Value>)> {
    let rest = url.strip_prefix("http://")?;
    let (address, path) = rest.split_once('/')?;
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let key = std::env::var("CLIENT_KEY").unwrap_or_else(|_| OPENAI_KEY.to_owned());
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    if !reply.starts_with("HTTP/1.1 200") {
        eprintln!("client: {}", reply.lines().last().unwrap_or_default());
        return None;
    }
    let (mut text, mut calls) = (String::new(), Vec::<Value>::new());
    // The sizes of the chunks are lines of their own, which no event is.
    for event in reply.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(event) else { continue };
        let delta = &event["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            if part["id"].is_string() {
                calls.push(part.clone());
            }
        }
    }
    reply.contains("data: [DONE]").then_some((text, calls))
}

/// A call of the tool that is different in each turn.
fn step(request: &endstop::testkit::Request) -> Reply {
    let turn = Turn::call("work", &json!({"step": request.number})).usage(1000, 20);
    Reply::turn(request, &turn)
}

pub(crate) fn guarded(cli: &Cli, server: &Server, limits: &[&str], tool: &str) -> Command {
    let mut args = vec!["--json".to_owned(), "guard".to_owned()];
    args.extend(limits.iter().map(|word| (*word).to_owned()));
    args.extend(["--".to_owned(), std::env::current_exe().unwrap().display().to_string()]);
    args.extend(ONLY_CLIENT.map(str::to_owned));
    let mut command = cli.command(args);
    command.env("OPENAI_BASE_URL", server.base_url()).env(CLIENT, tool);
    command
}

/// Runs the client under these limits to its end.
fn run(server: &Server, limits: &[&str]) -> (Done, Value) {
    let cli = Cli::new();
    let done = Started::new(guarded(&cli, server, limits, "a result"), "").finish();
    let outcome = outcome(&done);
    (done, outcome)
}

/// The last line of the output; the others are those of the client.
pub(crate) fn outcome(done: &Done) -> Value {
    let line = done.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {done:#?}"))
}
