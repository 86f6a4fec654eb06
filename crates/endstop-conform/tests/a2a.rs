//! The agent of the folder `agent` behind A2A ends a run whose client leaves (sentence 41). The suite itself judges what a client
//! that stays can see.
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
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time for an ending that is expected.
const SOON: Duration = Duration::from_secs(20);

/// Time in which a run that continues after its ending calls again: the scripted answer pauses eight seconds.
const AFTER: Duration = Duration::from_secs(10);

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
    fn start(case: &str) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let script = Script::new(case::find(case).unwrap()).in_folder(folder.path());
        let provider = Provider::start(script).unwrap();
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("agent").join("a2a.py");
        let mut command = Command::new("python3");
        command.arg(file).env("OPENAI_BASE_URL", provider.base()).env_remove("OPENAI_API_KEY");
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

#[test]
fn run_ends_with_its_client() {
    // A client that resets the connection, because it has not read the first event.
    let server = Server::start("interrupt-stream");
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Do it."}]});
    let stream =
        Server::request(&server.address(), "SendStreamingMessage", &json!({"message": message}));
    server.waits_for_call();
    drop(stream);
    std::thread::sleep(AFTER);
    assert_eq!(server.provider.count(), 1);
}
