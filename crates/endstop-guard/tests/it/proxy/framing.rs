//! Headers, trailers, keep-alive, `Expect`, and requests that are refused.

use super::support::{Conn, Event, GET, Gate, header, post, run, upstream};
use endstop_guard::proxy::{End, Notice};
use std::net::SocketAddr;
use tokio::sync::mpsc;

/// Starts an upstream that answers each request with this response and reports the request.
pub(crate) async fn answering(
    response: impl Into<Vec<u8>>,
) -> (SocketAddr, mpsc::UnboundedReceiver<(String, Vec<u8>)>) {
    let (sent, requests) = mpsc::unbounded_channel();
    let response = response.into();
    let address = upstream(move |mut conn: Conn| {
        let (sent, response) = (sent.clone(), response.clone());
        async move {
            while let Ok(head) = conn.until(b"\r\n\r\n").await {
                let head = String::from_utf8(head).expect("text");
                let body = if let Some(length) = header(&head, "content-length") {
                    conn.exact(length.parse().expect("a length")).await
                } else if header(&head, "transfer-encoding").is_some() {
                    conn.chunked().await.map(|(mut body, trailers)| {
                        body.extend(trailers.into_bytes());
                        body
                    })
                } else {
                    Ok(Vec::new())
                };
                let Ok(body) = body else { return };
                let _ = sent.send((head, body));
                conn.send(&response).await;
            }
        }
    })
    .await;
    (address, requests)
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn request_head_passes_unchanged() {
    run(async {
        let (address, mut requests) = answering(OK).await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        let rest = "User-Agent: Agent/1 (x; y)\r\n\
                    accept-encoding: gzip, deflate, br, zstd\r\nAuthorization: Bearer sk-1\r\n\
                    X-Stainless-OS: Linux\r\nanthropic-beta: a\r\nanthropic-beta: b\r\n\
                    x-emptY:\r\nX-Obs: \u{e9}\r\nContent-Length: 2\r\n\r\n";
        let line = "POST /v1/a%2Fb//c;d?beta=true&key=%20x&&q=a+b?c HTTP/1.1\r\n";
        client.send(format!("{line}HOST: here\r\n{rest}{{}}")).await;
        client.message().await.1.expect("a body");
        let (head, body) = requests.recv().await.expect("a request");
        assert_eq!(head, format!("{line}HOST: {address}\r\n{rest}"));
        assert_eq!(body, b"{}");
    });
}

#[test]
fn response_head_passes_unchanged() {
    run(async {
        let response = "HTTP/1.1 299 Very Fine\r\nContent-Type: text/x\r\nDATE: yesterday\r\n\
                        x-Request-ID: 7\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
                        anthropic-ratelimit-Requests: 9\r\ncontent-length: 2\r\n\r\nok";
        let (address, _requests) = answering(response).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send(GET).await;
        let got = client.exact(response.len()).await.expect("a response");
        assert_eq!(String::from_utf8_lossy(&got), response);
        while !matches!(seen.events.recv().await.expect("an event"), Event::Head(head) if head.status == 299)
        {
        }
        assert_eq!(seen.end().await, End::Complete);
    });
}

#[test]
fn upstream_does_not_speak_for_the_proxy() {
    run(async {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-endstop-warning, x-end\r\n\
                       X-Endstop-Warning: forged\r\nx-endstop-run: r1\r\nx-endstop: 1\r\n\r\n\
                       2\r\nok\r\n0\r\nX-Endstop-Warning: forged\r\nx-endstop-new: 1\r\nX-End: 2\r\n\r\n";
        let (address, _requests) = answering(chunked).await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client.send("GET /v1 HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n").await;
        let head = client.head().await.to_ascii_lowercase();
        assert!(!head.contains("x-endstop-w") || head.contains("trailer: x-endstop-w"), "{head}");
        assert!(!head.contains("forged") && !head.contains("x-endstop-run"), "{head}");
        assert!(head.contains("x-endstop: 1"), "{head}");
        let (body, trailers) = client.chunked().await.expect("a body");
        assert_eq!((&*body, &*trailers.to_ascii_lowercase()), (&b"ok"[..], "x-end: 2\r\n"));
    });
}

/// A label that one side reads and the other does not would give the body two meanings.
#[test]
fn content_keeps_its_labels() {
    run(async {
        let labels =
            "Content-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Language: a\r\n";
        let connection =
            "Connection: content-encoding, Content-Type,x-hop,CONTENT-LANGUAGE\r\nX-Hop: 1\r\n";
        let response =
            format!("HTTP/1.1 200 OK\r\n{connection}{labels}Content-Length: 2\r\n\r\nok");
        let (address, mut requests) = answering(response).await;
        for read in [false, true] {
            let (gate, _seen) = Gate::new(address);
            let proxy = if read { gate.reading() } else { gate }.start().await;
            let mut client = proxy.client().await;
            let request = format!(
                "POST /v1 HTTP/1.1\r\nHost: x\r\n{connection}{labels}Content-Length: 2\r\n\r\n\x1f\x0b"
            );
            client.send(request).await;
            let (head, _) = client.message().await;
            let (request, _) = requests.recv().await.expect("a request");
            for head in [head, request] {
                assert!(head.contains(labels) && !head.contains("X-Hop"), "{head}");
            }
        }
    });
}

#[test]
fn hop_by_hop_headers_are_dropped() {
    run(async {
        let (address, mut requests) = answering(
            "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
             Proxy-Connection: a\r\nX-End: 2\r\nContent-Length: 2\r\n\r\nok",
        )
        .await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client
            .send(
                "POST /v1 HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, x-hop , Content-Length\r\n\
                 X-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: b\r\nTE: trailers, gzip\r\n\
                 X-End: 2\r\nContent-Length: 2\r\n\r\n{}",
            )
            .await;
        let (response, body) = client.message().await;
        let (request, _) = requests.recv().await.expect("a request");
        let kept = format!(
            "POST /v1 HTTP/1.1\r\nHost: {address}\r\nX-End: 2\r\nContent-Length: 2\r\n\r\n"
        );
        assert_eq!(request, kept);
        assert_eq!(response, "HTTP/1.1 200 OK\r\nX-End: 2\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(body.expect("a body"), b"ok");
    });
}

#[test]
fn trailers_pass_in_both_directions() {
    for read in [false, true] {
        run(async {
            let (address, mut requests) = answering(
                "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2\r\nok\r\n0\r\nx-sum: 5\r\n\r\n",
            )
            .await;
            let (gate, mut seen) = Gate::new(address);
            let proxy = if read { gate.reading() } else { gate }.start().await;
            let mut client = proxy.client().await;
            client
                .send(
                    "POST /v1 HTTP/1.1\r\nHost: x\r\nTE: trailers\r\nTrailer: x-mark\r\n\
                     Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-mark: 6\r\n\r\n",
                )
                .await;
            client.head().await;
            let (body, trailers) = client.chunked().await.expect("a body");
            assert_eq!((body, trailers.as_str()), (b"ok".to_vec(), "x-sum: 5\r\n"));
            let (_, body) = requests.recv().await.expect("a request");
            assert_eq!(String::from_utf8_lossy(&body), "{}x-mark: 6\r\n");
            assert_eq!(seen.end().await, End::Complete);
        });
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async {
        let address = upstream(|mut conn: Conn| async move {
            while let Ok(head) = conn.until(b"\r\n\r\n").await {
                let head = String::from_utf8(head).expect("text");
                let length = header(&head, "content-length").expect("a length");
                conn.exact(length.parse().expect("a length")).await.expect("a body");
                let path = head.split(' ').nth(1).expect("a path").to_owned();
                let length = path.len();
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}");
                conn.send(answer).await;
            }
        })
        .await;
        let (gate, _seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        let mut client = proxy.client().await;
        let all: Vec<u8> = (0..50).flat_map(|n| post(&format!("/{n}"), b"{}")).collect();
        client.send(all).await;
        for n in 0..50 {
            let (_, body) = client.message().await;
            assert_eq!(body.expect("a body"), format!("/{n}").as_bytes());
        }
    });
}

#[test]
fn expectation_is_answered_by_the_proxy() {
    for read in [false, true] {
        run(async {
            let (address, mut requests) = answering(OK).await;
            let (gate, _seen) = Gate::new(address);
            let proxy = if read { gate.reading() } else { gate }.start().await;
            let mut client = proxy.client().await;
            client
                .send(
                    "POST /v1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\
                     Content-Length: 2\r\n\r\n",
                )
                .await;
            assert_eq!(client.head().await, "HTTP/1.1 100 Continue\r\n\r\n");
            client.send("{}").await;
            assert_eq!(client.message().await.1.expect("a body"), b"ok");
            let (head, body) = requests.recv().await.expect("a request");
            assert_eq!((header(&head, "expect"), body), (None, b"{}".to_vec()));
        });
    }
}

#[test]
fn answers_without_bodies_keep_their_length() {
    run(async {
        for (request, response) in [
            ("HEAD /api/hello HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK\r\nContent-Length: 99\r\n\r\n"),
            (GET, "204 No Content\r\nX: 1\r\n\r\n"),
            (GET, "304 Not Modified\r\nETag: a\r\n\r\n"),
            (GET, "200 OK\r\nContent-Length: 0\r\n\r\n"),
        ] {
            let response = format!("HTTP/1.1 {response}");
            let (address, _requests) = answering(response.clone()).await;
            let (gate, mut seen) = Gate::new(address);
            let proxy = gate.start().await;
            let mut client = proxy.client().await;
            // The connection stays usable, so the length of each answer was clear.
            for _ in 0..2 {
                client.send(request).await;
                assert_eq!(client.head().await, response);
                assert_eq!(seen.end().await, End::Complete);
            }
        }
    });
}

#[test]
fn websocket_upgrade_is_answered_with_426() {
    run(async {
        let (address, mut requests) = answering(OK).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.start().await;
        let mut client = proxy.client().await;
        client
            .send(
                "GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n\
                 Upgrade: websocket\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n",
            )
            .await;
        let (head, _) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
        assert!(
            matches!(seen.events.recv().await, Some(Event::Notice(Notice::Refused { status, .. })) if status == 426)
        );
        // The fallback to HTTP works at once; an upgrade to h2c is ignored, as RFC 9110 allows.
        let mut client = proxy.client().await;
        client
            .send("GET /v1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            .await;
        assert_eq!(client.message().await.1.expect("a body"), b"ok");
        let (head, _) = requests.recv().await.expect("a request");
        assert_eq!(header(&head, "upgrade"), None);
        assert!(requests.try_recv().is_err(), "the upgrade reached the upstream");
    });
}

#[test]
fn http_2_with_prior_knowledge_is_served() {
    run(async {
        let (address, mut requests) = answering(OK).await;
        let (gate, mut seen) = Gate::new(address);
        let proxy = gate.reading().start().await;
        let stream = tokio::net::TcpStream::connect(proxy.address).await.expect("a connection");
        let executor = hyper_util::rt::TokioExecutor::new();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(executor, io).await.expect("a handshake");
        super::support::background(async move { drop(connection.await) });
        let request = http::Request::post(format!("http://{}/v1/messages?a=b", proxy.address))
            .header("x-api-key", "k")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(http_body_util::Full::new(super::support::bytes("{}")))
            .expect("a request");
        let response = send.send_request(request).await.expect("a response");
        assert_eq!(response.status(), 200);
        let body = http_body_util::BodyExt::collect(response.into_body()).await.expect("a body");
        assert_eq!(body.to_bytes(), "ok");
        let (head, body) = requests.recv().await.expect("a request");
        assert!(head.starts_with("POST /v1/messages?a=b HTTP/1.1\r\n"), "{head}");
        assert_eq!(header(&head, "host"), Some(address.to_string()));
        assert_eq!(header(&head, "cookie").as_deref(), Some("a=1; b=2"));
        assert_eq!(body, b"{}");
        assert_eq!(seen.end().await, End::Complete);
    });
}
