//! Responses that are malformed, cut, or more than what was asked for.

use super::support::{Conn, GET, Gate, run, upstream};
use endstop_guard::proxy::{Disposition, End};

/// The part of a hostile response that the client receives.
enum Held {
    /// A complete response with this status and body.
    Whole(u16, &'static str),
    /// The start of a body without a clean end.
    Cut(&'static str),
    /// No response: the proxy's own error.
    Error,
}
use Held::{Cut, Error, Whole};

const CASES: &[(&str, &str, Held)] = &[
    ("closes at once", "", Error),
    ("closes in the status line", "HTTP/1.1 20", Error),
    ("closes in the headers", "HTTP/1.1 200 OK\r\nX-A", Error),
    ("is not HTTP", "220 mail.test ESMTP\r\n\r\n", Error),
    ("status of two digits", "HTTP/1.1 99 X\r\n\r\n", Error),
    ("status is a word", "HTTP/1.1 abc X\r\n\r\n", Error),
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", Error),
    ("length is not a number", "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nab", Error),
    ("NUL in a header", "HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 2\r\n\r\nab", Error),
    ("less than its length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Cut("abc")),
    (
        "more than its length",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabcdef",
        Whole(200, "ab"),
    ),
    ("chunk is cut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", Cut("abc")),
    (
        "no last chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        Cut("abc"),
    ),
    (
        "bad size of a chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
        Cut("abc"),
    ),
    (
        "huge size of a chunk",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
        Cut(""),
    ),
    (
        "length and chunks",
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        Whole(200, "ab"),
    ),
    (
        "two answers",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        Whole(200, "ab"),
    ),
    (
        "redirect",
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://evil.test/\r\nContent-Length: 2\r\n\r\nab",
        Whole(307, "ab"),
    ),
    (
        "retry forever",
        "HTTP/1.1 529 Overloaded\r\nRetry-After: 99999999999\r\nContent-Length: 2\r\n\r\nab",
        Whole(529, "ab"),
    ),
    (
        "early hints",
        "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
        Whole(200, "ab"),
    ),
    (
        "switches the protocol",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: evil\r\nConnection: upgrade\r\n\r\nevil",
        Error,
    ),
    (
        "body of 204",
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        Whole(204, ""),
    ),
    (
        "false gzip",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
        Whole(200, "ab"),
    ),
    ("HTTP/1.0 until the end", "HTTP/1.0 200 OK\r\n\r\nab", Whole(200, "ab")),
];

#[test]
fn hostile_responses_are_held() {
    run(async {
        for (name, bytes, held) in CASES {
            let address = upstream(move |mut conn: Conn| async move {
                conn.head().await;
                conn.send(bytes).await;
            })
            .await;
            let (gate, mut seen) = Gate::new(address);
            let proxy = gate.start().await;
            let mut client = proxy.client().await;
            client.send(GET).await;
            let (head, body) = client.message().await;
            let status: u16 = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect(name);
            let end = seen.end().await;
            match held {
                Whole(expected, text) => {
                    assert_eq!(
                        (status, body.as_deref()),
                        (*expected, Ok(text.as_bytes())),
                        "{name}"
                    );
                    assert_eq!(end, End::Complete, "{name}");
                    // The client's connection stays in step.
                    client.send(GET).await;
                    let (again, body) = client.message().await;
                    assert_eq!((again, body.as_deref()), (head, Ok(text.as_bytes())), "{name}");
                }
                Cut(text) => {
                    assert_eq!((status, body), (200, Err(text.as_bytes().to_vec())), "{name}");
                    assert!(matches!(end, End::Cut { .. }), "{name}: {end:?}");
                }
                Error => {
                    assert_eq!(status, 502, "{name}");
                    assert!(body.expect(name).starts_with(b"{\"type\":\"error\""), "{name}");
                    assert!(matches!(end, End::NoResponse { .. }), "{name}: {end:?}");
                }
            }
        }
    });
}

#[test]
fn header_bomb_of_an_upstream_is_an_error() {
    run(async {
        let address = upstream(|mut conn: Conn| async move {
            use tokio::io::AsyncWriteExt;
            conn.head().await;
            conn.send("HTTP/1.1 200 OK\r\n").await;
            while conn
                .stream
                .write_all(&b"X-A: aaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(1000))
                .await
                .is_ok()
            {}
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 502 "));
        assert!(matches!(seen.end().await, End::NoResponse { .. }));
    });
}

#[test]
fn answer_before_the_whole_request_passes() {
    run(async {
        let address = upstream(|mut conn: Conn| async move {
            conn.head().await;
            conn.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
                .await;
            let _ = conn.rest().await;
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send("POST /v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{").await;
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
        assert_eq!(body.expect("a body"), b"no");
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn pooled_connection_that_closed_is_replaced() {
    run(async {
        let address = upstream(|mut conn: Conn| async move {
            conn.head().await;
            // Announces no close.
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        for _ in 0..20 {
            client.send(GET).await;
            let (head, body) = client.message().await;
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert_eq!(body.expect("a body"), b"ok");
            assert_eq!(seen.end().await, End::Complete);
        }
    });
}

#[test]
fn failed_tls_handshake_is_an_error() {
    run(async {
        let address = upstream(|mut conn: Conn| async move {
            // A hello of a TLS client starts with these bytes.
            assert_eq!(conn.exact(2).await.expect("a hello"), [22, 3]);
            conn.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        })
        .await;
        let (gate, mut seen) = Gate::new(address);
        let gate = gate.deciding(move |_, mut forward| {
            forward.url = format!("https://{address}/v1").parse().expect("a URL");
            Disposition::Forward(forward)
        });
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 502 "));
        assert!(matches!(seen.end().await, End::NoResponse { .. }));
    });
}
