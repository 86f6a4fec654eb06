//! Requests that are malformed, ambiguous, or meant for another server.

use super::framing::answering;
use super::support::{Conn, GET, Gate, run};
use endstop_guard::proxy::End;

/// The required treatment of a hostile client's bytes.
enum Held {
    /// The proxy answers with this status, or closes if it is 0; nothing reaches the upstream.
    Refused(&'static [u16]),
    /// Exactly one request reaches the upstream, with this body.
    Once(&'static str),
}
use Held::{Once, Refused};

const CASES: &[(&str, &str, Held)] = &[
    // Both framings: chunks win, the length is dropped, and the connection ends (RFC 9112, 6.3).
    (
        "length, then chunks",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
        Once("ab"),
    ),
    (
        "chunks, then length",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n2\r\nab\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
        Once("ab"),
    ),
    (
        "two lengths",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        Refused(&[400]),
    ),
    (
        "list of lengths",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2, 3\r\n\r\nabc",
        Refused(&[400]),
    ),
    (
        "signed length",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\nab",
        Refused(&[400]),
    ),
    (
        "negative length",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\nab",
        Refused(&[400]),
    ),
    (
        "length beyond 64 bits",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nab",
        Refused(&[400, 413]),
    ),
    (
        "chunks are not last",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        Refused(&[400]),
    ),
    (
        "unknown coding",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        Refused(&[400]),
    ),
    (
        "chunks in HTTP/1.0",
        "POST /v1 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        Refused(&[400]),
    ),
    (
        "size is not a number",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        Refused(&[0, 400]),
    ),
    (
        "size beyond 64 bits",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nab\r\n0\r\n\r\n",
        Refused(&[0, 400]),
    ),
    (
        "chunk without its end",
        "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabXX0\r\n\r\n",
        Refused(&[0, 400]),
    ),
    ("space before the colon", "GET /v1 HTTP/1.1\r\nHost: x\r\nX-A : b\r\n\r\n", Refused(&[400])),
    ("folded header", "GET /v1 HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n", Refused(&[400])),
    ("NUL in the path", "GET /v1\0/x HTTP/1.1\r\nHost: x\r\n\r\n", Refused(&[400])),
    ("NUL in a header", "GET /v1 HTTP/1.1\r\nHost: x\r\nX-A: b\0c\r\n\r\n", Refused(&[400])),
    ("parent folder", "GET /v1/../admin HTTP/1.1\r\nHost: x\r\n\r\n", Refused(&[400])),
    ("encoded parent folder", "GET /v1/%2e%2E/admin HTTP/1.1\r\nHost: x\r\n\r\n", Refused(&[400])),
    ("another host", "GET http://evil.test/v1 HTTP/1.1\r\nHost: x\r\n\r\n", Refused(&[421])),
    ("tunnel", "CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", Refused(&[405])),
    ("no path", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", Refused(&[400])),
    ("not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", Refused(&[400])),
    ("HTTP/3 in text", "GET /v1 HTTP/3.0\r\nHost: x\r\n\r\n", Refused(&[400])),
    (
        "forged run in the path",
        "GET /run/a%0d%0aX-Evil:%20b/v1 HTTP/1.1\r\nHost: x\r\n\r\n",
        Once(""),
    ),
];

#[test]
fn hostile_requests_are_held() {
    run(async {
        for read in [true, false] {
            for (name, bytes, held) in CASES {
                let (address, mut requests) = answering(super::framing::OK).await;
                let (gate, _seen) = Gate::new(address);
                let proxy = if read { gate.reading() } else { gate }.start().await;
                let mut client = proxy.client().await;
                client.send(bytes).await;
                let answer = client.until(b"\r\n\r\n").await.unwrap_or_default();
                let answer = String::from_utf8_lossy(&answer).into_owned();
                let status = answer.split(' ').nth(1).map_or(0, |s| s.parse().expect("a status"));
                match held {
                    Refused(statuses) => {
                        // A body that is streamed fails at the upstream.
                        let streamed = !read && statuses.contains(&0) && status == 502;
                        assert!(statuses.contains(&status) || streamed, "{name}: {answer}");
                    }
                    Once(body) => {
                        let (head, got) = requests.recv().await.expect(name);
                        assert_eq!(String::from_utf8_lossy(&got).trim_end(), *body, "{name}");
                        assert!(!head.to_lowercase().contains("\r\nx-evil"), "{name}: {head}");
                    }
                }
                // The proxy still serves others.
                let mut next = proxy.client().await;
                next.send(GET).await;
                assert_eq!(next.message().await.1.expect("a body"), b"ok", "after {name}");
                // Nothing else of the hostile bytes reached the upstream before it.
                let (head, _) = requests.recv().await.expect(name);
                assert!(head.starts_with("GET /v1/models "), "{name}: {head}");
                assert!(requests.try_recv().is_err(), "{name}");
            }
        }
    });
}

#[test]
fn header_bombs_are_refused() {
    run(async {
        let (address, mut requests) = answering(super::framing::OK).await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.start().await;
        let many: String = (0..5000).map(|n| format!("X-{n}: a\r\n")).collect();
        let long = format!("X-A: {}\r\n", "a".repeat(2 << 20));
        let longer_than_a_buffer = format!("X-A: {}\r\n", "a".repeat(70 << 10));
        let path = "a".repeat(100_000);
        for request in [
            format!("GET / HTTP/1.1\r\n{longer_than_a_buffer}\r\n"),
            format!("GET / HTTP/1.1\r\n{many}\r\n"),
            format!("GET / HTTP/1.1\r\n{long}\r\n"),
            format!("GET /{path} HTTP/1.1\r\n\r\n"),
        ] {
            let mut client = proxy.client().await;
            // The proxy may close before it has read everything.
            let (mut read, mut write) = client.stream.split();
            let sending = tokio::io::AsyncWriteExt::write_all(&mut write, request.as_bytes());
            let mut answer = Vec::new();
            let receiving = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut answer);
            let _ = tokio::join!(sending, receiving);
            let answer = String::from_utf8_lossy(&answer).into_owned();
            let status = answer.split(' ').nth(1).unwrap_or("0");
            assert!(["0", "400", "414", "431"].contains(&status), "{answer}");
        }
        assert!(requests.try_recv().is_err());
    });
}

#[test]
fn clients_that_vanish_leave_nothing() {
    run(async {
        let (address, mut requests) = answering(super::framing::OK).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        for part in [
            "",
            "P",
            "POST /v1 HTTP/1.1\r\nHost: x\r\n",
            "POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
            "POST /v1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        ] {
            let mut client = Conn::to(proxy.address).await;
            client.send(part).await;
            drop(client);
        }
        // A body that is cut is never sent, so the next request is the first that arrives.
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert_eq!(client.message().await.1.expect("a body"), b"ok");
        assert!(requests.recv().await.expect("a request").0.starts_with("GET "));
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn body_at_a_byte_a_time_arrives() {
    run(async {
        let (address, mut requests) = answering(super::framing::OK).await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        let mut client = proxy.client().await;
        for byte in super::support::post("/v1", b"{\"a\":1}") {
            client.send([byte]).await;
        }
        assert_eq!(client.message().await.1.expect("a body"), b"ok");
        assert_eq!(requests.recv().await.expect("a request").1, b"{\"a\":1}");
    });
}

#[test]
fn absolute_target_of_the_proxy_is_served() {
    run(async {
        let (address, mut requests) = answering(super::framing::OK).await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.start().await;
        let target = format!("localhost:{}", proxy.address.port());
        let get = |host: &str| format!("GET http://{target}/v1?a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        // The two names of the server must agree (RFC 9112, section 3.2.2).
        let mut client = proxy.client().await;
        client.send(get("y")).await;
        assert!(client.head().await.contains(" 421 "));
        let mut client = proxy.client().await;
        client.send(get(&target)).await;
        assert_eq!(client.message().await.1.expect("a body"), b"ok");
        let (head, _) = requests.recv().await.expect("a request");
        assert_eq!(head, format!("GET /v1?a HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    });
}
