//! The agent of the folder `agent` behind A2A says the same as alone (P-01), and a cancellation ends its run once (P-02). The
//! mutants do not. The suite itself judges ACP.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::pedantic,
    missing_docs,
    reason = "tests"
)]

use endstop_conform::case;
use endstop_conform::provider::{Provider, Script};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time for an ending that is expected.
const SOON: Duration = Duration::from_secs(20);

/// Time in which a run that continues after its ending calls again: the scripted answer pauses eight seconds.
const AFTER: Duration = Duration::from_secs(10);

const INTERRUPTED: &str = "interrupt-stream";

/// An agent behind a protocol, with its provider.
struct Server {
    child: Child,
    provider: Provider,
    lines: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts the server of a file, or the mutant with a name.
    fn start(program: &str, case: &str, flags: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let script = Script::new(case::find(case).unwrap()).in_folder(folder.path());
        let provider = Provider::start(script).unwrap();
        let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("agent");
        let mut command = Command::new("python3");
        if program.ends_with(".py") {
            command.arg(files.join(program));
        } else {
            command.arg(files.join("mutants.py")).arg(program);
        }
        command.args(flags).env("OPENAI_BASE_URL", provider.base()).env_remove("OPENAI_API_KEY");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Server { child, provider, lines, _folder: folder }
    }

    fn waits_for_call(&self) {
        let until = Instant::now() + SOON;
        while self.provider.count() == 0 {
            assert!(Instant::now() < until, "the agent made no call");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Calls a method of A2A at the address that the server has printed.
    fn call(address: &str, method: &str, params: &Value) -> Value {
        let mut stream = Self::request(address, method, params);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1;
        let answer: Value = serde_json::from_str(body).unwrap();
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    fn request(address: &str, method: &str, params: &Value) -> TcpStream {
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(stream, "POST / HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        stream
    }

    fn address(&self) -> String {
        let url = self.lines.recv_timeout(SOON).unwrap();
        url.trim_start_matches("http://").trim_end_matches('/').to_owned()
    }
}

fn message(returns_at_once: bool) -> Value {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Do it."}]});
    json!({"message": message, "configuration": {"returnImmediately": returns_at_once}})
}

/// Returns the last state of a task.
fn verdict(program: &str, case: &str, flags: &[&str]) -> String {
    let server = Server::start(program, case, flags);
    let task = Server::call(&server.address(), "SendMessage", &message(false));
    task["task"]["status"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn states_say_the_same() {
    let cap: &[&str] = &["--max-turns", "4"];
    for (case, flags, state) in [
        ("plain", &[][..], "COMPLETED"),
        ("turn-cap", cap, "FAILED"),
        ("cut-text", &[], "FAILED"),
        ("refusal", &[], "FAILED"),
        ("filtered", &[], "FAILED"),
        ("unauthorised", &[], "FAILED"),
    ] {
        assert_eq!(verdict("a2a.py", case, flags), format!("TASK_STATE_{state}"), "{case}");
    }
    assert_eq!(verdict("P-01-a2a", "turn-cap", cap), "TASK_STATE_COMPLETED");
}

/// Cancels a task in mid-stream. Returns its state at once and later, and the number of calls after the first one.
fn cancelled_task(program: &str) -> (Value, Value, usize) {
    let server = Server::start(program, INTERRUPTED, &[]);
    let address = server.address();
    let task = Server::call(&address, "SendMessage", &message(true))["task"]["id"].clone();
    server.waits_for_call();
    let first =
        Server::call(&address, "CancelTask", &json!({"id": task}))["status"]["state"].clone();
    let calls = server.provider.count();
    std::thread::sleep(AFTER);
    let later = Server::call(&address, "GetTask", &json!({"id": task}))["status"]["state"].clone();
    (first, later, server.provider.count() - calls)
}

#[test]
fn cancelled_task_ends_once() {
    let state = Value::from("TASK_STATE_CANCELED");
    assert_eq!(cancelled_task("a2a.py"), (state.clone(), state.clone(), 0));
    assert_ne!(cancelled_task("P-02-a2a"), (state.clone(), state, 0));
}

#[test]
fn run_ends_with_its_client() {
    // A client that resets the connection, because it has not read the first event.
    let server = Server::start("a2a.py", INTERRUPTED, &[]);
    let stream = Server::request(&server.address(), "SendStreamingMessage", &message(false));
    server.waits_for_call();
    drop(stream);
    std::thread::sleep(AFTER);
    assert_eq!(server.provider.count(), 1);
}
