//! A run that is stopped with SIGSTOP and continued with SIGCONT.

use crate::cli::{Cli, Started, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Returns the time for which the process is stopped; `ENDSTOP_STOPPED=120` makes it two minutes.
fn stopped() -> Duration {
    let seconds = std::env::var("ENDSTOP_STOPPED").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(9))
}

/// A server that sends the beginning of an answer, and the rest when the test permits it.
struct TwoParts {
    url: String,
    permit: Sender<()>,
}

impl TwoParts {
    /// Starts the server. `first` is the beginning of the answer.
    fn start(first: Value) -> TwoParts {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (permit, permitted) = channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            // Fails if the run has given up, which its outcome shows.
            let _ = serve(stream, first, &permitted);
        });
        TwoParts { url, permit }
    }
}

fn serve(mut stream: TcpStream, first: Value, permitted: &Receiver<()>) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    // The body of a chat request ends with its last brace, and the client waits for the answer.
    while !request.ends_with(b"}") {
        let read = stream.read(&mut buffer)?;
        request.extend_from_slice(&buffer[..read]);
    }
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"id": "c", "model": "m", "choices": [choice]}))
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let first = chunk(first, Value::Null);
    stream.write_all((head.to_owned() + &first).as_bytes())?;
    let _ = permitted.recv();
    let rest = chunk(json!({"content": "42."}), json!("stop")) + "data: [DONE]\n\n";
    stream.write_all(rest.as_bytes())
}

/// Starts a run, stops it in the middle of the answer, and returns its exit status and events.
fn stop_and_continue(cli: &Cli, limits: &[&str]) -> (i32, Vec<Value>) {
    let server = TwoParts::start(json!({"role": "assistant", "content": "It is "}));
    let model = ["--model", "scripted", "--api", "openai-chat", "--base-url", &server.url];
    let output = ["--journal", "j.db", "--events", "events.jsonl", "--json"];
    let args = [&["run", "Go."], &model[..], &output, limits].concat();
    let mut command = cli.command(args);
    // Of its own: a group without a shell that has a stopped process gets SIGHUP as soon as a process of it ends.
    command.process_group(0);
    let run = Started::new(command, "");
    eventually("the beginning", || run.stdout().contains("It is "));
    let signal = |signal| kill_process(Pid::from_child(&run.child), signal).unwrap();
    signal(Signal::STOP);
    // The time of the suspension itself, which only real time can measure.
    std::thread::sleep(stopped());
    signal(Signal::CONT);
    server.permit.send(()).unwrap();
    let done = run.finish();
    (done.code(), done.lines())
}

#[test]
fn stopped_process_is_no_stall() {
    let cli = Cli::new();
    let limits = ["--stall-timeout", "6s", "--max-retries", "0"];
    let (code, lines) = stop_and_continue(&cli, &limits);
    let outcome = lines.last().unwrap();
    assert_eq!((code, &outcome["termination"]), (0, &json!("stop")), "{outcome}");
    assert_eq!(outcome["last_text"], "It is 42.");
    let suspended = lines.iter().filter(|line| line["type"] == "suspended");
    let time: f64 = suspended.map(|line| line["duration_ms"].as_f64().unwrap()).sum();
    // The wakes before and after it are a second apart.
    let least = stopped() - Duration::from_secs(2);
    assert!(time >= least.as_secs_f64() * 1e3, "{time} {lines:?}");
    assert!((outcome["suspended_ms"].as_f64().unwrap() - time).abs() < 2.0, "{outcome}");
    let text = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(text.contains("the process was suspended for "), "{text}");
    assert!(text.contains("  paused   "), "{text}");
    // The replay of the journal gives the same outcome.
    let again = cli.run(["explain", "last", "--journal", "j.db", "--json"]).exits(0).stdout;
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["outcome"]["suspended_ms"], outcome["suspended_ms"]);
}

#[test]
fn stopped_process_exceeds_run_timeout() {
    let limits = ["--timeout", "5s", "--max-retries", "0"];
    let (code, lines) = stop_and_continue(&Cli::new(), &limits);
    let outcome = lines.last().unwrap();
    assert_eq!((code, &outcome["termination"]), (20, &json!("error_timeout")), "{outcome}");
    assert_eq!(outcome["last_text"], "It is ");
}

/// Nothing of the response could be received meanwhile.
#[test]
fn time_in_which_guard_is_stopped_is_not_reasoning() {
    let cli = Cli::new();
    let server = TwoParts::start(json!({"role": "assistant", "reasoning_content": "It may be "}));
    let program = "printf %s \"$OPENAI_BASE_URL\" > url.new; mv url.new url; \
                   until [ -e done ]; do sleep 0.05; done";
    let options = ["--journal", "off", "--events", "e.jsonl", "--thinking-timeout", "6s"];
    let args = [&["guard"][..], &options, &["--", "sh", "-c", program]].concat();
    let mut command = cli.command(args);
    command.env("OPENAI_BASE_URL", &server.url).process_group(0);
    let guard = Started::new(command, "");
    eventually("the address", || cli.path("url").exists());
    let url = cli.read("url");
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let tools = json!([{"type": "function", "function": {"name": "work"}}]);
    let messages = json!([{"role": "user", "content": "Go."}]);
    let body = json!({"model": "m", "stream": true, "tools": tools, "messages": messages});
    let body = body.to_string();
    write!(
        client,
        "POST /{path}/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    // Guard has read the reasoning before it passes it on.
    while !String::from_utf8_lossy(&answer).contains("It may be ") {
        let read = client.read(&mut buffer).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
    }
    let signal = |signal| kill_process(Pid::from_child(&guard.child), signal).unwrap();
    signal(Signal::STOP);
    std::thread::sleep(stopped());
    signal(Signal::CONT);
    server.permit.send(()).unwrap();
    client.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("[DONE]"));
    cli.write("done", "");
    guard.finish().exits(0);
    let lines = cli.read("e.jsonl");
    let outcome: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(outcome["termination"], "stop", "{outcome}");
    let least = stopped() - Duration::from_secs(2);
    assert!(outcome["suspended_ms"].as_f64().unwrap() >= least.as_secs_f64() * 1e3, "{outcome}");
}
