//! Requests and responses that the client refuses, and errors that name their stage.

use crate::server::{FINE, Server, get, text};
use endstop_http::{Client, Full, SettingsError, Stage};
use http::Request;
use std::error::Error as _;
use std::time::Duration;

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

#[tokio::test]
async fn unsupported_requests_are_not_sent() {
    let server = Server::start(FINE).await;
    let to = |uri: String| Request::builder().uri(uri);
    let host = format!("127.0.0.1:{}", server.port);
    for request in [
        to(format!("http://me:hush@{host}/")),
        to(format!("ftp://{host}/")),
        to("/path".to_owned()),
        to(host.clone()).method("CONNECT"),
        to(server.url("/")).header("upgrade", "websocket"),
    ] {
        let request = request.body(Full::default()).unwrap();
        let error = client().send(request).await.unwrap_err();
        assert_eq!(error.stage(), Stage::Request, "{error:?}");
        let shown = format!("{error} {error:?} {}", error.source().unwrap());
        assert!(!shown.contains("hush"), "{shown}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn upgrade_by_server_is_refused() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n";
    let server = Server::start(switch).await;
    let error = client().send(get(&server.url("/"))).await.unwrap_err();
    assert_eq!(error.stage(), Stage::Receive, "{error:?}");
}

#[tokio::test]
async fn redirect_is_returned() {
    let away = "HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n";
    let server = Server::start(away).await;
    let response = client().send(get(&server.url("/"))).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (302, &"/other".parse().unwrap())
    );
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn connection_without_response_is_named() {
    for answer in ["", "no http at all\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
        // The last one hangs up in the middle of the head.
        let server = if answer.ends_with("OK\r\n") {
            Server::start(format!("{answer}{}", "x: y\r\n".repeat(20_000))).await
        } else {
            Server::start(answer).await
        };
        let error = client().send(get(&server.url("/secret"))).await.unwrap_err();
        assert_eq!(error.stage(), Stage::Receive, "{error:?}");
        assert_eq!(error.host(), format!("127.0.0.1:{}", server.port));
        assert!(!error.is_connect() && !format!("{error} {error:?}").contains("secret"));
    }
}

#[tokio::test]
async fn long_heads_are_read() {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-length: 4\r\nx: {}\r\n\r\nfine", "y".repeat(40_000));
    let server = Server::start(head).await;
    assert_eq!(text(client().send(get(&server.url("/"))).await.unwrap()).await, "fine");
}

/// A listener whose queue is full answers no further connection.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn unanswered_connection_ends_at_time_limit() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued = std::net::TcpStream::connect(address).unwrap();
    let limit = Duration::from_secs(4);
    let client = Client::builder().no_proxy().connect_timeout(limit).build().unwrap();
    let began = tokio::time::Instant::now();
    let error = client.send(get(&format!("http://{address}/"))).await.unwrap_err();
    assert_eq!((began.elapsed().as_secs(), error.stage()), (4, Stage::Timeout), "{error:?}");
    assert!(error.is_timeout() && error.is_connect());
}

#[test]
fn invalid_settings_are_refused() {
    let proxy = Client::builder().proxy("socks5://me:hush@h");
    assert!(!format!("{proxy:?}").contains("hush"));
    assert!(matches!(proxy.build().unwrap_err(), SettingsError::Proxy));
    let zero = Client::builder().connect_timeout(Duration::ZERO);
    assert!(matches!(zero.build().unwrap_err(), SettingsError::Timeout));
}
