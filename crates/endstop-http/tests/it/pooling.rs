//! Connections are reused, replaced and closed.

use crate::server::{FINE, Server, get, text};
use endstop_http::{Client, SettingsError, Stage};
use http::HeaderValue;
use http_body_util::Full;
use std::time::Duration;
use tokio::sync::mpsc;

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

/// A response whose body never ends.
const ENDLESS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun";

#[tokio::test]
async fn later_requests_share_connection() {
    let (server, client) = (Server::start(FINE).await, client());
    for _ in 0..40 {
        let response = client.send(get(&server.url("/a?b"))).await.unwrap();
        assert_eq!(text(response).await, "fine");
    }
    assert_eq!(server.connections(), 1);
    let request = server.requests().pop().unwrap();
    let host = format!("host: 127.0.0.1:{}\r\n", server.port);
    assert!(request.starts_with("GET /a?b HTTP/1.1\r\n") && request.contains(&host), "{request}");
}

#[tokio::test]
async fn concurrent_requests_have_own_connections() {
    let server =
        Server::answering(
            |request| {
                if request.contains("/endless") { ENDLESS.into() } else { FINE.into() }
            },
        )
        .await;
    let client = client();
    let first = client.send(get(&server.url("/endless"))).await.unwrap();
    let second = client.send(get(&server.url("/endless"))).await.unwrap();
    for _ in 0..3 {
        assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "fine");
    }
    assert_eq!(server.connections(), 3);
    drop((first, second));
}

#[tokio::test]
async fn dropped_body_closes_connection() {
    let (mut server, client) = (Server::start(ENDLESS).await, client());
    drop(client.send(get(&server.url("/"))).await.unwrap());
    assert_eq!(server.closed.recv().await, Some(1));
}

#[tokio::test]
async fn dropped_request_closes_connection() {
    // Nothing is sent before the end of the head.
    let (tell, mut asked) = mpsc::unbounded_channel();
    let mut server = Server::answering(move |_| {
        tell.send(()).unwrap();
        "HTTP/1.1 200 OK\r\n".into()
    })
    .await;
    let client = client();
    tokio::select! {
        response = client.send(get(&server.url("/"))) => panic!("{response:?}"),
        // The request was accepted; the end of this block drops it.
        Some(()) = asked.recv() => {}
    }
    assert_eq!(server.closed.recv().await, Some(1));
}

#[tokio::test]
async fn names_keep_their_case_if_required() {
    let answer = "HTTP/1.1 200 OK\r\nX-oDD: 1\r\nContent-Length: 4\r\n\r\nfine";
    let server = Server::start(answer).await;
    for (keep, sent) in [(true, "X-oDD: 2\r\n"), (false, "x-odd: 2\r\n")] {
        let client = Client::builder().no_proxy().preserve_header_case(keep).build().unwrap();
        let first = client.send(get(&server.url("/"))).await.unwrap();
        let mut request = get(&server.url("/"));
        *request.extensions_mut() = first.extensions().clone();
        request.headers_mut().insert("host", HeaderValue::from_static("other.test"));
        request.headers_mut().insert("x-odd", HeaderValue::from_static("2"));
        assert_eq!(text(client.send(request).await.unwrap()).await, "fine");
        let request = server.requests().pop().unwrap();
        assert!(request.contains(sent), "{request}");
        // A host that is set is not replaced.
        assert!(request.to_lowercase().contains("host: other.test\r\n"), "{request}");
        assert!(!request.contains("127.0.0.1"), "{request}");
    }
}

#[tokio::test]
async fn dropped_client_closes_free_connections_alone() {
    let mut server = Server::start(FINE).await;
    let client = client();
    let response = client.send(get(&server.url("/"))).await.unwrap();
    drop(client);
    // A response in progress is not affected.
    assert_eq!(text(response).await, "fine");
    assert_eq!(server.closed.recv().await, Some(1));
}

#[tokio::test]
async fn closed_connection_is_replaced() {
    // The server hangs up instead of answering the second request of a connection.
    let count = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::answering(move |_| {
        let even = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2);
        if even {
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".into()
        } else {
            Vec::new()
        }
    })
    .await;
    let client = client();
    assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "ok");
    let error = client.send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(error.stage(), Stage::Receive);
    assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "ok");
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn safe_request_is_repeated_on_another_connection() {
    // The second request of each connection is received, and the connection closed.
    let count = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::answering(move |_| {
        match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            1 | 4 => Vec::new(),
            _ => FINE.into(),
        }
    })
    .await;
    let client = client();
    for _ in 0..2 {
        assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "fine");
    }
    assert_eq!((server.connections(), server.requests().len()), (2, 3), "sent twice");
    // The server may have begun to work on any other request.
    for _ in 0..2 {
        let post = http::Request::post(server.url("/")).body(Full::default()).unwrap();
        match client.send(post).await {
            Ok(response) => assert_eq!(text(response).await, "fine"),
            Err(error) => assert_eq!(error.stage(), Stage::Receive),
        }
    }
    assert_eq!(server.requests().len(), 5, "sent once each");
}

#[tokio::test]
async fn unused_connection_is_closed() {
    let short = Client::builder().no_proxy().idle_timeout(Duration::from_secs(30));
    for (client, limit) in [(client(), 90), (short.build().unwrap(), 30)] {
        let mut server = Server::start(FINE).await;
        for _ in 0..2 {
            text(client.send(get(&server.url("/"))).await.unwrap()).await;
        }
        // From here on the clock jumps to the next timer.
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        assert_eq!(server.closed.recv().await, Some(1));
        let waited = began.elapsed().as_secs();
        assert!((limit - 5..=limit + 5).contains(&waited), "{waited} s, not {limit} s");
        tokio::time::resume();
        assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "fine");
        assert_eq!(server.connections(), 2);
    }
    let zero = short.idle_timeout(Duration::ZERO).build();
    assert!(matches!(zero, Err(SettingsError::Timeout)));
}
