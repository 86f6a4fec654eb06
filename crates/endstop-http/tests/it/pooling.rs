//! Connections are reused, replaced and closed.

use crate::server::{FINE, Server, get, text};
use endstop_http::{Client, Stage};

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
    let mut server = Server::start("HTTP/1.1 200 OK\r\n").await;
    let client = client();
    let sending = tokio::time::timeout(
        std::time::Duration::from_millis(50),
        client.send(get(&server.url("/"))),
    );
    assert!(sending.await.is_err());
    if server.connections() > 0 {
        assert_eq!(server.closed.recv().await, Some(1));
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
async fn unused_connection_is_closed() {
    let (mut server, client) = (Server::start(FINE).await, client());
    for _ in 0..2 {
        text(client.send(get(&server.url("/"))).await.unwrap()).await;
    }
    // From here on the clock jumps to the next timer.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert_eq!(server.closed.recv().await, Some(1));
    let waited = began.elapsed().as_secs();
    assert!((85..=95).contains(&waited), "{waited} s");
    tokio::time::resume();
    assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "fine");
    assert_eq!(server.connections(), 2);
}
