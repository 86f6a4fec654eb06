//! Decisions of gatekeepers and observers, and aborts from outside.

use super::framing::{OK, answering};
use super::support::{Conn, Event, GET, Gate, Seen, bytes, post, run, upstream};
use endstop_guard::proxy::{Answer, Disposition, End, Flow, ReadOn, Stop};
use http::{HeaderValue, StatusCode};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Starts an upstream that sends these bytes and then stalls. The receiver reports the request, and
/// that the proxy closed the connection.
async fn stalling(sent: &'static str) -> (std::net::SocketAddr, mpsc::UnboundedReceiver<()>) {
    let (closed, is_closed) = mpsc::unbounded_channel();
    let address = upstream(move |mut conn: Conn| {
        let closed = closed.clone();
        async move {
            conn.head().await;
            let _ = closed.send(());
            conn.send(sent).await;
            let _ = conn.rest().await;
            let _ = closed.send(());
        }
    })
    .await;
    (address, is_closed)
}

#[test]
fn abort_without_head_sends_the_answer() {
    run(async {
        let (address, mut closed) = stalling("").await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        let abort = seen.aborts.recv().await.expect("a token");
        closed.recv().await.expect("a request");
        let answer = Answer::error(StatusCode::BAD_REQUEST, "invalid_request_error", "stopped");
        assert!(abort.abort(Stop::Answer(answer)));
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("x-should-retry: false"));
        assert!(String::from_utf8_lossy(&body.expect("a body")).contains("\"stopped\""));
        assert_eq!(seen.end().await, End::Aborted);
        closed.recv().await.expect("a closed connection");
    });
}

#[test]
fn abort_without_head_can_close() {
    run(async {
        let (address, mut closed) = stalling("").await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        closed.recv().await.expect("a request");
        seen.aborts.recv().await.expect("a token").abort(Stop::Close);
        assert_eq!(client.rest().await.0, b"");
        assert_eq!(seen.end().await, End::Aborted);
        closed.recv().await.expect("a closed connection");
    });
}

#[test]
fn abort_in_a_stream_leaves_no_clean_end() {
    run(async {
        let (address, mut closed) =
            stalling("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        closed.recv().await.expect("a request");
        client.head().await;
        assert_eq!(client.chunk().await.expect("a chunk"), b"hello");
        let answer = Answer::whole(StatusCode::OK, "text/plain", "too late");
        seen.aborts.recv().await.expect("a token").abort(Stop::Answer(answer));
        assert_eq!(client.rest().await.0, b"", "neither the last chunk nor the answer");
        assert_eq!(seen.end().await, End::Aborted);
        closed.recv().await.expect("a closed connection");
    });
}

#[test]
fn abort_resets_a_client_without_framing() {
    run(async {
        let (address, _closed) = stalling("HTTP/1.1 200 OK\r\n\r\nhello").await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send("GET /v1 HTTP/1.0\r\n\r\n").await;
        client.head().await;
        assert_eq!(client.exact(5).await.expect("the start"), b"hello");
        seen.aborts.recv().await.expect("a token").abort(Stop::Close);
        // The end of the connection would be the end of the body.
        client.rest().await.1.expect_err("a reset");
        assert_eq!(seen.end().await, End::Aborted);
    });
}

#[test]
fn abort_reaches_a_client_that_does_not_read() {
    run(async {
        let (closed, mut seen_closed) = mpsc::unbounded_channel();
        let address = upstream(move |mut conn: Conn| {
            let closed = closed.clone();
            async move {
                conn.head().await;
                conn.send(HEAD).await;
                let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                while conn.stream.write_all(chunk.as_bytes()).await.is_ok() {}
                let _ = closed.send(());
            }
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        let abort = seen.aborts.recv().await.expect("a token");
        // All buffers fill up. The test holds also if they have not, but then it shows less.
        while tokio::time::timeout(Duration::from_millis(500), seen.copies.recv()).await.is_ok() {}
        abort.abort(Stop::Close);
        seen_closed.recv().await.expect("a closed connection");
        assert_eq!(seen.end().await, End::Aborted);
    });
}

#[test]
fn abort_after_the_end_changes_nothing() {
    run(async {
        let (address, _requests) = answering(OK).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        for _ in 0..3 {
            client.send(GET).await;
            assert_eq!(client.message().await.1.expect("a body"), b"ok");
            assert_eq!(seen.end().await, End::Complete);
            let abort = seen.aborts.recv().await.expect("a token");
            assert!(!abort.abort(Stop::Close));
        }
    });
}

#[test]
fn gatekeeper_answers_without_the_upstream() {
    run(async {
        let (address, mut requests) = answering(OK).await;
        let (gate, _seen) = Gate::new(address);
        let gate = gate.reading().deciding(|head, _| match head.path() {
            "/close" => Disposition::Close,
            "/whole" => Disposition::Answer(Answer::whole(StatusCode::OK, "text/plain", "whole")),
            _ => Disposition::Answer(Answer::stream(
                "text/event-stream",
                vec![bytes("data: 1\n\n"), bytes(""), bytes("data: 2\n\n")],
            )),
        });
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(post("/whole", b"{}")).await;
        let (head, body) = client.message().await;
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\n"
        );
        assert_eq!(body.expect("a body"), b"whole");
        client.send(post("/stream", b"{}")).await;
        client.head().await;
        assert_eq!(client.chunk().await.expect("a chunk"), b"data: 1\n\n");
        assert_eq!(client.chunk().await.expect("a chunk"), b"data: 2\n\n");
        assert_eq!(client.chunked().await.expect("an end").0, b"");
        client.send(post("/close", b"{}")).await;
        assert_eq!(client.rest().await.0, b"");
        assert!(requests.try_recv().is_err());
    });
}

#[test]
fn gatekeeper_changes_body_and_headers() {
    run(async {
        let (address, mut requests) = answering(OK).await;
        let (gate, _seen) = Gate::new(address);
        let gate = gate.reading().deciding(|_, mut forward| {
            forward.body = Some(bytes("{\"changed\":1}"));
            forward.headers = vec![
                ("x-api-key".parse().expect("a name"), None),
                ("x-new".parse().expect("a name"), Some(HeaderValue::from_static("1"))),
            ];
            Disposition::Forward(forward)
        });
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client
            .send("POST /v1 HTTP/1.1\r\nhost: x\r\nx-api-key: k\r\ncontent-length: 2\r\n\r\n{}")
            .await;
        client.message().await.1.expect("a body");
        let (head, body) = requests.recv().await.expect("a request");
        assert!(head.contains("\r\ncontent-length: 13\r\nx-new: 1\r\n") && !head.contains("key"));
        assert_eq!(body, b"{\"changed\":1}");
    });
}

/// Starts an upstream with three chunks, and an observer with these reactions.
async fn with_flows(
    react: impl Fn(&[u8]) -> Flow + Send + Sync + 'static,
    before_end: Flow,
) -> (Conn, Seen, super::support::Running) {
    let (address, _requests) =
        answering(format!("{HEAD}5\r\ntext;\r\n5\r\ncall{{\r\n5\r\n}}end.\r\n0\r\n\r\n")).await;
    let (gate, seen) = Gate::new(address);
    let proxy = gate.reacting(react).ending(before_end).start().await;
    let mut client = proxy.client().await;
    client.send(GET).await;
    client.head().await;
    (client, seen, proxy)
}

// Chunks of the upstream can arrive together, so reactions look at single bytes.
fn hold_call(chunk: &[u8]) -> Flow {
    let text = String::from_utf8_lossy(chunk);
    match (text.find('{'), text.contains('}')) {
        (Some(at), false) => Flow::Hold { pass: at },
        _ => Flow::Pass,
    }
}

#[test]
fn held_bytes_follow_when_the_call_is_whole() {
    run(async {
        let (mut client, mut seen, _proxy) = with_flows(hold_call, Flow::Pass).await;
        assert_eq!(client.chunked().await.expect("a body").0, b"text;call{}end.");
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn held_bytes_are_dropped_if_the_upstream_ends() {
    run(async {
        let hold = |chunk: &[u8]| match chunk.iter().position(|byte| *byte == b'{') {
            Some(at) => Flow::Hold { pass: at },
            None if chunk.contains(&b'}') => Flow::Hold { pass: 0 },
            None => Flow::Pass,
        };
        let (mut client, mut seen, _proxy) = with_flows(hold, Flow::Hold { pass: 0 }).await;
        let part = client.chunked().await.expect_err("a cut");
        assert!(b"text;call".starts_with(&part), "{part:?}");
        assert_eq!(seen.end().await, End::Aborted);
    });
}

#[test]
fn observer_ends_a_text_cleanly() {
    run(async {
        let end = |chunk: &[u8]| match chunk.iter().position(|byte| *byte == b';') {
            Some(at) => Flow::End { pass: at, last: bytes("[stopped]") },
            None => Flow::Pass,
        };
        let (mut client, mut seen, proxy) = with_flows(end, Flow::Pass).await;
        assert_eq!(client.chunked().await.expect("a body").0, b"text[stopped]");
        assert_eq!(seen.end().await, End::Ended);
        // The client's connection stays usable.
        client.send(GET).await;
        client.head().await;
        drop(proxy);
    });
}

#[test]
fn observer_changes_a_chunk() {
    run(async {
        let change = |chunk: &[u8]| {
            let text = String::from_utf8_lossy(chunk).replace("call", "CALL");
            Flow::Change(text.into_bytes().into())
        };
        let (mut client, mut seen, _proxy) = with_flows(change, Flow::Pass).await;
        assert_eq!(client.chunked().await.expect("a body").0, b"text;CALL{}end.");
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn observer_aborts_in_a_call() {
    run(async {
        let abort = |chunk: &[u8]| if chunk.contains(&b'{') { Flow::Abort } else { Flow::Pass };
        let (mut client, mut seen, _proxy) = with_flows(abort, Flow::Pass).await;
        let part = client.chunked().await.expect_err("a cut");
        assert!(!part.contains(&b'{'));
        assert_eq!(seen.end().await, End::Aborted);
    });
}

#[test]
fn sized_body_is_aborted_instead_of_changed() {
    run(async {
        for flow in [Flow::Change(bytes("x")), Flow::End { pass: 0, last: bytes("x") }] {
            let (address, _requests) = answering(OK).await;
            let (gate, mut seen) = Gate::new(address);
            let proxy = gate.reacting(move |_| flow.clone()).start().await;
            let mut client = proxy.client().await;
            client.send(GET).await;
            assert_eq!(client.message().await.1, Err(Vec::new()));
            assert_eq!(seen.end().await, End::Aborted);
        }
    });
}

const FINISHED: &str = "b\r\nevent: done\r\n";

#[test]
fn response_is_read_on_after_the_client_is_gone() {
    run(async {
        let (go, waits) = mpsc::unbounded_channel::<()>();
        let waits = std::sync::Arc::new(tokio::sync::Mutex::new(waits));
        let address = upstream(move |mut conn: Conn| {
            let waits = std::sync::Arc::clone(&waits);
            async move {
                conn.head().await;
                conn.send(format!("{HEAD}{FINISHED}")).await;
                waits.lock().await.recv().await;
                conn.send("8\r\nusage: 7\r\n0\r\n\r\n").await;
                let _ = conn.rest().await;
            }
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let read_on = ReadOn { time: Duration::from_secs(60), bytes: 100 };
        let proxy = gate.reading_on(read_on).start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        client.head().await;
        client.chunk().await.expect("a chunk");
        drop(client);
        while !matches!(seen.events.recv().await.expect("an event"), Event::ClientGone) {}
        go.send(()).expect("an upstream");
        assert_eq!(seen.end().await, End::ClientGone { whole: true });
        assert_eq!(seen.copy(), b"event: doneusage: 7");
    });
}

#[test]
fn call_is_closed_with_the_client_if_asked() {
    run(async {
        let (address, mut closed) = stalling("").await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.reading_on(ReadOn::STOP).start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        closed.recv().await.expect("a request");
        drop(client);
        assert_eq!(seen.end().await, End::ClientGone { whole: false });
        closed.recv().await.expect("a closed connection");
    });
}

#[test]
fn response_is_not_read_beyond_the_limit() {
    run(async {
        let address = upstream(|mut conn: Conn| async move {
            conn.head().await;
            conn.send(HEAD).await;
            while conn.stream.write_all(FINISHED.as_bytes()).await.is_ok() {}
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let read_on = ReadOn { time: Duration::from_secs(60), bytes: 1000 };
        let proxy = gate.reading_on(read_on).start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        client.head().await;
        drop(client);
        assert_eq!(seen.end().await, End::ClientGone { whole: false });
    });
}

#[test]
fn stopped_proxy_lets_exchanges_end() {
    run(async {
        let (address, _closed) = stalling("").await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        let abort = seen.aborts.recv().await.expect("a token");
        let idle = proxy.client().await;
        proxy.stop.send(()).expect("a proxy");
        let answer = Answer::whole(StatusCode::OK, "text/plain", "bye");
        abort.abort(Stop::Answer(answer));
        assert_eq!(client.message().await.1.expect("a body"), b"bye");
        proxy.is_over.await.expect("an end");
        drop(idle);
    });
}
