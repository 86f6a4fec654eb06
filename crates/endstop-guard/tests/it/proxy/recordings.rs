//! Recorded exchanges of all formats pass byte for byte in both directions.

use super::support::{Conn, Gate, header, run_within, upstream};
use crate::gate::support::Guard;
use base64::Engine;
use endstop_guard::proxy::End;
use endstop_guard::run::Settings;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

struct Recording {
    id: String,
    request: Vec<u8>,
    request_body: Vec<u8>,
    response: Vec<u8>,
    head: String,
    body: Vec<u8>,
    framed: bool,
}

/// Returns the recordings of the repository, or those of the folder that `ENDSTOP_RECORDINGS` names.
fn recordings() -> Vec<Recording> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings");
    let folder = std::env::var_os("ENDSTOP_RECORDINGS").map_or(own, Into::into);
    let mut all = Vec::new();
    for file in std::fs::read_dir(folder).expect("the recordings") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        let mut text = String::new();
        let file = std::fs::File::open(path).expect("a file");
        GzDecoder::new(file).read_to_string(&mut text).expect("text");
        all.extend(
            text.lines()
                .enumerate()
                .map(|(index, line)| recording(&serde_json::from_str(line).expect("JSON"), index)),
        );
    }
    all
}

/// Those of another folder can be many.
fn time_for(all: &[Recording]) -> Duration {
    Duration::from_secs(60)
        .max(Duration::from_millis(200) * u32::try_from(all.len()).unwrap_or(u32::MAX))
}

fn recording(line: &Value, index: usize) -> Recording {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let body = match text("body_encoding") {
        "base64" => base64::engine::general_purpose::STANDARD.decode(text("body")).expect("base64"),
        _ => text("body").as_bytes().to_vec(),
    };
    let request_body = match &line["request"] {
        Value::Null => Vec::new(),
        request => request.to_string().into_bytes(),
    };
    let path = Some(text("url_path")).filter(|path| path.starts_with('/')).unwrap_or("/v1/x");
    // Masked parts of a path.
    let path = path.replace(['<', '>'], "");
    let line_of_request = format!("POST {path} HTTP/1.1\r\n");
    let rest = format!(
        "Content-Type: application/json\r\nX-Case: {index}\r\nContent-Length: {}\r\n\r\n",
        request_body.len()
    );
    let request =
        [format!("{line_of_request}Host: x\r\n{rest}").as_bytes(), &request_body].concat();
    let framed = line["streaming"].as_bool().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} X\r\n", line["status"]);
    for (name, value) in line["headers"].as_object().into_iter().flatten() {
        // The recordings are decompressed, and this test frames them anew.
        let hop = ["content-length", "content-encoding", "transfer-encoding", "connection"];
        if let (false, Some(value)) = (hop.contains(&&*name.to_lowercase()), value.as_str()) {
            head += &format!("{name}: {value}\r\n");
        }
    }
    let mut response = head.clone().into_bytes();
    if framed {
        response.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        // Chunks that split lines and characters.
        for part in body.chunks(index % 97 + 3) {
            response.extend(format!("{:x}\r\n", part.len()).bytes());
            response.extend(part);
            response.extend(b"\r\n");
        }
        response.extend(b"0\r\n\r\n");
    } else {
        response.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
        response.extend(&body);
    }
    let request_head = [line_of_request.as_bytes(), rest.as_bytes()].concat();
    let id = text("id").to_owned();
    assert!(!request_head.is_empty());
    Recording { id, request, request_body, response, head, body, framed }
}

/// With the gate between, which reads every model call and decodes every response.
#[test]
fn recordings_pass_through_the_gate() {
    let all = recordings();
    run_within(time_for(&all), async {
        let queue: VecDeque<Vec<u8>> = all.iter().map(|one| one.response.clone()).collect();
        let queue = Arc::new(Mutex::new(queue));
        let (sent, mut requests) = mpsc::unbounded_channel();
        let address = upstream(move |mut conn: Conn| {
            let (queue, sent) = (Arc::clone(&queue), sent.clone());
            async move {
                while let Ok(head) = conn.until(b"\r\n\r\n").await {
                    let head = String::from_utf8(head).expect("text");
                    let length = header(&head, "content-length").expect("a length");
                    let body = conn.exact(length.parse().expect("a length")).await;
                    sent.send(body.expect("a body")).expect("a test");
                    let response = queue.lock().expect("a lock").pop_front();
                    conn.send(response.expect("a response")).await;
                }
            }
        })
        .await;
        let guard = Guard::start(Settings::default(), address).await;
        let mut client = Conn::to(guard.address).await;
        for one in &all {
            client.send(&one.request).await;
            let (head, body) = client.message().await;
            assert!(body.as_ref() == Ok(&one.body), "{}: the response's body", one.id);
            assert!(head.starts_with(&one.head), "{}: {head}", one.id);
            let body = requests.recv().await.expect("a request");
            assert!(body == one.request_body, "{}: the request's body", one.id);
        }
        let calls: u64 = guard.gate.runs().iter().map(|run| run.counts().calls).sum();
        println!("{} recordings, {calls} of them read as model calls", all.len());
        assert!(calls > 0 && requests.try_recv().is_err());
    });
}

#[test]
fn recordings_pass_byte_for_byte() {
    let all = recordings();
    run_within(time_for(&all), async {
        assert!(all.len() > 900, "{} recordings", all.len());
        for read in [false, true] {
            let queue: VecDeque<Vec<u8>> = all.iter().map(|one| one.response.clone()).collect();
            let queue = Arc::new(Mutex::new(queue));
            let (sent, mut requests) = mpsc::unbounded_channel();
            let address = upstream(move |mut conn: Conn| {
                let (queue, sent) = (Arc::clone(&queue), sent.clone());
                async move {
                    while let Ok(head) = conn.until(b"\r\n\r\n").await {
                        let head = String::from_utf8(head).expect("text");
                        let length = header(&head, "content-length").expect("a length");
                        let body = conn.exact(length.parse().expect("a length")).await;
                        sent.send((head, body.expect("a body"))).expect("a test");
                        let response = queue.lock().expect("a lock").pop_front();
                        conn.send(response.expect("a response")).await;
                    }
                }
            })
            .await;
            let (gate, mut seen) = Gate::new(address);
            let proxy = if read { gate.reading() } else { gate }.start().await;
            let mut client = proxy.client().await;
            for one in &all {
                client.send(&one.request).await;
                let (head, body) = client.message().await;
                assert!(body.as_ref() == Ok(&one.body), "{}: the response's body", one.id);
                // The proxy frames the body anew, in the same way.
                let framing = if one.framed {
                    "Transfer-Encoding: chunked\r\n\r\n".to_owned()
                } else {
                    format!("Content-Length: {}\r\n\r\n", one.body.len())
                };
                assert_eq!(head, format!("{}{framing}", one.head), "{}", one.id);
                let (head, body) = requests.recv().await.expect("a request");
                assert!(body == one.request_body, "{}: the request's body", one.id);
                let sent = String::from_utf8_lossy(&one.request);
                let sent = sent.replacen("Host: x", &format!("Host: {address}"), 1);
                assert!(sent.starts_with(&head), "{}: {head}", one.id);
                assert_eq!(seen.end().await, End::Complete, "{}", one.id);
                assert!(seen.copy() == one.body, "{}: the copy", one.id);
            }
        }
    });
}
