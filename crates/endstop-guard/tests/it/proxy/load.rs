//! Many connections at once, and clients that read slowly.

use super::support::{Conn, GET, Gate, post, run, upstream};
use endstop_guard::proxy::End;
use std::sync::Arc;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

#[test]
fn thousand_connections_are_served_at_once() {
    run(async {
        const COUNT: usize = 1000;
        // Each answer waits until all requests have arrived.
        let barrier = Arc::new(Barrier::new(COUNT));
        let address = upstream(move |mut conn: Conn| {
            let barrier = Arc::clone(&barrier);
            async move {
                conn.head().await;
                let body = conn.exact(6).await.expect("a body");
                barrier.wait().await;
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n";
                conn.send([head.as_bytes(), &body].concat()).await;
                let _ = conn.rest().await;
            }
        })
        .await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        let mut clients = JoinSet::new();
        for n in 0..COUNT {
            let mut client = proxy.client().await;
            clients.spawn(async move {
                let body = format!("{n:06}");
                client.send(post("/v1", body.as_bytes())).await;
                let (_, got) = client.message().await;
                assert_eq!(got.expect("a body"), body.as_bytes());
            });
        }
        let mut done = 0;
        while let Some(client) = clients.join_next().await {
            client.expect("a client");
            done += 1;
        }
        assert_eq!(done, COUNT);
    });
}

#[test]
fn slow_reader_receives_everything() {
    run(async {
        const CHUNKS: usize = 200;
        let address = upstream(|mut conn: Conn| async move {
            conn.head().await;
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for n in 0..CHUNKS {
                let letter = char::from(b'a' + (n % 26) as u8).to_string();
                conn.send(format!("10000\r\n{}\r\n", letter.repeat(0x10000))).await;
            }
            conn.send("0\r\n\r\n").await;
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut slow = proxy.client().await;
        slow.send(GET).await;
        slow.head().await;
        // Others are served while it does not read.
        let mut other = proxy.client().await;
        other.send(GET).await;
        other.head().await;
        assert_eq!(other.chunked().await.expect("a body").0.len(), CHUNKS << 16);
        assert_eq!(seen.end().await, End::Complete);
        let (body, _) = slow.chunked().await.expect("a body");
        assert_eq!(body.len(), CHUNKS << 16);
        assert!(
            body.chunks(1 << 16)
                .enumerate()
                .all(|(n, chunk)| { chunk.iter().all(|byte| *byte == b'a' + (n % 26) as u8) })
        );
        assert_eq!(seen.end().await, End::Complete);
    });
}
