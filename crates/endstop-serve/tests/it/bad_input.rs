//! Bad input: oversized, deep, slow and malformed requests. After each, the server works.

use crate::support::{Lab, Scripted, Setup, in_time};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn works(lab: &Lab) {
    let id = lab.start("echo", "Still here.").await;
    assert_eq!(lab.ended(&id).await["outcome"]["last_text"], "Still here.");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_bodies_are_refused_unread() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let address = lab.address;
    let head = |more: &str| {
        format!(
            "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{more}\r\n"
        )
    };
    // A gigabyte is announced, and none of it is sent: the answer does not wait for it.
    let announced = lab.raw(head("content-length: 1073741824\r\n")).await;
    assert_eq!((announced.status, announced.code().as_str()), (413, "too_large"));
    // Without an announced length the server counts what it reads.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head("transfer-encoding: chunked\r\n").as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat();
    let mut sent = 0usize;
    let sending = async {
        // The server closes the connection long before a gigabyte.
        while stream.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
            assert!(sent < 256 << 20, "the server reads without end");
        }
    };
    in_time(sending).await;
    works(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bodies_are_refused() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let deep = format!(
        "{{\"agent\":\"echo\",\"task\":\"x\",\"limits\":{{\"max_turns\":{}",
        "[".repeat(100_000)
    );
    let wide = format!(
        "{{\"agent\":\"echo\",\"task\":\"x\",\"limits\":{{\"a\":[{}0]}}}}",
        "0,".repeat(500_000)
    );
    for body in [
        "",
        "{",
        "null",
        "[]",
        "{}",
        "{\"agent\":\"echo\"}",
        "{\"agent\":\"echo\",\"task\":1}",
        "{\"agent\":\"echo\",\"task\":\"x\",\"system\":\"y\"}",
        "{\"agent\":\"echo\",\"task\":\"x\",\"model\":\"y\"}",
        "{\"agent\":\"echo\",\"task\":\"x\",\"tools\":[]}",
        "{\"agent\":\"echo\",\"task\":\"x\",\"limits\":[]}",
        "{\"agent\":\"echo\",\"task\":\"x\"} {}",
        &deep,
        &wide,
    ] {
        let answer = lab.ask("POST /v1/runs", "content-type: application/json\r\n", body).await;
        let start: String = body.chars().take(60).collect();
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{start}");
    }
    let blank = lab.post("/v1/runs", &json!({"agent": "echo", "task": " \n"})).await;
    assert_eq!((blank.status, blank.code().as_str()), (422, "invalid_run"));
    for key in ["", "x".repeat(256).as_str()] {
        let headers = format!("idempotency-key: {key}\r\n");
        let body = json!({"agent": "echo", "task": "x"});
        assert_eq!(lab.post_with("/v1/runs", &headers, &body).await.status, 400, "{key}");
    }
    works(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_paths_find_nothing() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    for path in [
        "/../../etc/passwd",
        "/v1/runs/../../../etc/passwd",
        "/v1/runs/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/v1/runs/%00",
        "/page.js/../page/mod.rs",
        "//etc/passwd",
        "/v1/runs/' OR 1=1 --".replace(' ', "%20").as_str(),
        "/v1/runs/last",
        "/v1/nonsense",
    ] {
        let answer = lab.get(path).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        assert!(!answer.body.contains("root:"), "{answer:?}");
    }
    for method in ["PUT", "DELETE", "PATCH", "TRACE"] {
        let answer = lab.ask(&format!("{method} /v1/runs"), "", "").await;
        assert_eq!((answer.status, answer.code().as_str()), (405, "wrong_method"), "{method}");
    }
    works(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn smuggled_requests_are_not_served() {
    let mut setup = Setup::of(vec![("echo", Scripted::echo())]);
    // A connection that waits for the rest of a request is closed soon.
    setup.options.request_time = Duration::from_secs(1);
    let lab = setup.start().await;
    let address = lab.address;
    let hidden = "POST /v1/runs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                  content-length: 31\r\n\r\n{\"agent\":\"echo\",\"task\":\"hidden\"}";
    for framing in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: +4\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "content-length : 4\r\n",
        "x: y\r\n content-length: 4\r\n",
    ] {
        let answer = lab
            .raw(format!(
                "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
                 {framing}\r\n0\r\n\r\n{hidden}"
            ))
            .await;
        assert!(answer.status == 400 || answer.status == 0, "{framing}: {answer:?}");
    }
    for line in ["GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "nonsense\r\n\r\n"] {
        let answer = lab.raw(line).await;
        assert!(answer.status == 400 || answer.status == 0, "{line}: {answer:?}");
    }
    let listed = lab.get("/v1/runs").await.json();
    assert_eq!(listed["runs"], json!([]), "a hidden request was served");
    works(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_heads_are_refused() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let many = "x: y\r\n".repeat(5000);
    assert!([400, 431, 0].contains(&lab.ask("GET /v1/runs", &many, "").await.status));
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    assert!([400, 431, 0].contains(&lab.ask("GET /v1/runs", &long, "").await.status));
    works(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_are_closed() {
    let mut setup = Setup::of(vec![("echo", Scripted::echo())]);
    setup.options.request_time = Duration::from_millis(200);
    let lab = setup.start().await;
    let address = lab.address;
    let whole = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\n\r\n{{\"agent\""
    );
    // Nothing, a part of the head, and a part of the body; then silence.
    for part in ["", &whole[..20], &whole] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(part.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = in_time(stream.read_to_string(&mut answer)).await;
        assert!(!answer.contains("HTTP/1.1 2"), "{answer}");
    }
    works(&lab).await;
}
