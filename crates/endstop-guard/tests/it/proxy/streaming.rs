//! Each chunk arrives before the next one is sent: the sender waits for the receiver.

use super::support::{Conn, GET, Gate, run, upstream};
use endstop_guard::proxy::{End, Flow};
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

type Turns = Arc<Mutex<Option<mpsc::UnboundedReceiver<()>>>>;

/// Starts an upstream that sends the head, and then a part for each turn that it receives.
async fn stepwise(head: &'static str, parts: Vec<Vec<u8>>) -> (std::net::SocketAddr, Sender) {
    let (next, turns) = mpsc::unbounded_channel();
    let turns: Turns = Arc::new(Mutex::new(Some(turns)));
    let address = upstream(move |mut conn| {
        let (turns, parts) = (Arc::clone(&turns), parts.clone());
        async move {
            let mut turns = turns.lock().expect("a lock").take().expect("one connection");
            conn.head().await;
            conn.send(head).await;
            for part in parts {
                turns.recv().await.expect("a turn");
                conn.send(part).await;
            }
            // The connection closes at the end, which ends a body without a length.
        }
    })
    .await;
    (address, next)
}

type Sender = mpsc::UnboundedSender<()>;

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

const EVENTS: [&[u8]; 4] = [b"data: 1\n\n", b"data: 2\n\n", b"data: ", b"[DONE]\n\n"];

#[test]
fn chunk_arrives_before_next_is_sent() {
    run(async {
        let mut parts: Vec<_> = EVENTS.iter().map(|event| chunk(event)).collect();
        parts.push(b"0\r\n\r\n".to_vec());
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (address, next) = stepwise(head, parts).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        // The head arrives before the first chunk is sent.
        client.head().await;
        for event in EVENTS {
            next.send(()).expect("a turn");
            assert_eq!(client.chunk().await.expect("a chunk"), event);
            assert_eq!(seen.copies.recv().await.expect("a copy"), event);
        }
        next.send(()).expect("a turn");
        assert_eq!(client.chunked().await.expect("an end").0, b"");
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn sized_body_arrives_in_steps() {
    run(async {
        let parts = EVENTS.iter().map(|event| event.to_vec()).collect();
        let (address, next) =
            stepwise("HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n", parts).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert!(client.head().await.contains("Content-Length: 32\r\n"));
        for event in EVENTS {
            next.send(()).expect("a turn");
            assert_eq!(client.exact(event.len()).await.expect("a part"), event);
        }
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn unsized_body_arrives_in_steps() {
    run(async {
        let parts = EVENTS.iter().map(|event| event.to_vec()).collect();
        let (address, next) = stepwise("HTTP/1.1 200 OK\r\n\r\n", parts).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        client.head().await;
        for event in EVENTS {
            next.send(()).expect("a turn");
            assert_eq!(client.chunk().await.expect("a part"), event);
        }
        assert_eq!(client.chunked().await.expect("an end").0, b"");
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn compressed_events_are_observed_in_steps() {
    run(async {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        let mut parts = Vec::new();
        for event in EVENTS {
            encoder.write_all(event).expect("gzip");
            encoder.flush().expect("gzip");
            parts.push(chunk(&std::mem::take(encoder.get_mut())));
        }
        parts.push(chunk(&encoder.finish().expect("gzip")));
        parts.push(b"0\r\n\r\n".to_vec());
        let count = parts.len();
        let head =
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (address, next) = stepwise(head, parts.clone()).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert!(client.head().await.contains("Content-Encoding: gzip\r\n"));
        for (event, part) in EVENTS.iter().zip(&parts) {
            next.send(()).expect("a turn");
            // The client receives the compressed bytes, the observer the decompressed ones.
            assert_eq!(chunk(&client.chunk().await.expect("a chunk")), *part);
            assert_eq!(seen.copies.recv().await.expect("a copy"), *event);
        }
        for _ in EVENTS.len()..count {
            next.send(()).expect("a turn");
        }
        client.chunked().await.expect("an end");
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn request_body_arrives_in_steps() {
    run(async {
        let (got, mut received) = mpsc::unbounded_channel();
        let address = upstream(move |mut conn: Conn| {
            let got = got.clone();
            async move {
                conn.head().await;
                for _ in 0..4 {
                    got.send(conn.exact(9).await.expect("a part")).expect("a test");
                }
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                let _ = conn.rest().await;
            }
        })
        .await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\n").await;
        for _ in 0..4 {
            client.send(b"123456789").await;
            assert_eq!(received.recv().await.expect("a part"), b"123456789");
        }
        assert!(client.head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    });
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn trailers_do_not_end_an_aborted_response() {
    run(async {
        let end = b"0\r\nX-Sum: 5\r\n\r\n".to_vec();
        let (address, next) = stepwise(CHUNKED, vec![chunk(EVENTS[0]), end]).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.ending(Flow::Abort).start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        client.head().await;
        next.send(()).expect("a turn");
        assert_eq!(client.chunk().await.expect("a chunk"), EVENTS[0]);
        next.send(()).expect("a turn");
        assert!(client.chunk().await.is_err(), "not a clean end");
        assert_eq!(seen.end().await, End::Aborted);
    });
}
