//! Requests through proxies.

use crate::server::{FINE, Server, get, listen, text, tls};
use endstop_http::{Certificates, Client, Stage};
use http::HeaderValue;
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// Starts a proxy that tunnels to this port, if `answer` is a success. Returns its port and the
/// heads of the requests for a tunnel.
async fn tunnel(
    to: u16,
    answer: &'static str,
    tls: Option<TlsAcceptor>,
) -> (u16, Arc<Mutex<Vec<String>>>) {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    let port = listen(move |_, stream| {
        let (seen, tls) = (Arc::clone(&seen), tls.clone());
        async move {
            match tls {
                Some(tls) => join(tls.accept(stream).await.unwrap(), to, answer, &seen).await,
                None => join(stream, to, answer, &seen).await,
            }
        }
    })
    .await;
    (port, heads)
}

async fn join(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    to: u16,
    answer: &str,
    seen: &Mutex<Vec<String>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    seen.lock().unwrap().push(String::from_utf8(head).unwrap());
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut server).await;
}

const CONNECTED: &str = "HTTP/1.1 200 Connected\r\n\r\n";

#[tokio::test]
async fn proxy_receives_whole_address() {
    let proxy = Server::start(FINE).await;
    let address = format!("http://me:hu%2Bsh@127.0.0.1:{}", proxy.port);
    let client = Client::builder().proxy(address).build().unwrap();
    for _ in 0..2 {
        let response = client.send(get("http://model.test/v1?a=b")).await.unwrap();
        assert_eq!(text(response).await, "fine");
    }
    let request = proxy.requests().pop().unwrap();
    assert!(request.starts_with("GET http://model.test/v1?a=b HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("host: model.test\r\n"), "{request}");
    // me:hu+sh
    assert!(request.contains("proxy-authorization: Basic bWU6aHUrc2g=\r\n"), "{request}");
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn tunnel_hides_request_from_proxy() {
    // A proxy without TLS, and one that is reached over TLS itself.
    for secured in [false, true] {
        let (to_server, authority) = tls(&["model.test"], &["http/1.1"]);
        let server = Server::secured(to_server).await;
        let (to_proxy, of_proxy) = tls(&["127.0.0.1"], &[]);
        let to_proxy = secured.then_some(to_proxy);
        let (port, heads) = tunnel(server.port, CONNECTED, to_proxy).await;
        let scheme = if secured { "https" } else { "http" };
        let client = Client::builder()
            .proxy(format!("{scheme}://me:hush@127.0.0.1:{port}"))
            .certificates(Certificates::from_pem(authority.as_bytes()).unwrap())
            .certificates(Certificates::from_pem(of_proxy.as_bytes()).unwrap())
            .user_agent(HeaderValue::from_static("mine/1"))
            .build()
            .unwrap();
        let response = client.send(get("https://model.test/v1")).await.unwrap();
        assert_eq!(text(response).await, "fine");
        let head = heads.lock().unwrap().join("").to_lowercase();
        assert!(head.starts_with("connect model.test:443 http/1.1\r\n"), "{head}");
        assert!(head.contains("proxy-authorization: basic bwu6ahvzaa==\r\n"), "{head}");
        assert!(head.contains("user-agent: mine/1\r\n") && !head.contains("/v1"), "{head}");
        let request = server.requests().pop().unwrap();
        assert!(request.starts_with("GET /v1 HTTP/1.1\r\n"), "{request}");
        assert!(!request.contains("proxy-authorization"), "{request}");
    }
}

#[tokio::test]
async fn refusal_of_proxy_is_named() {
    for (answer, cause) in [
        ("HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n", "407"),
        ("HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nno\n", "502"),
        ("HTTP/1.1 200 OK\r\n\r\nunasked", "before the server was asked"),
        ("", "connection closed"),
    ] {
        let (port, _) = tunnel(1, answer, None).await;
        let address = format!("http://me:hush@127.0.0.1:{port}");
        let builder = Client::builder().proxy(address);
        let error = builder.build().unwrap().send(get("https://model.test/v1")).await.unwrap_err();
        assert_eq!((error.stage(), error.host()), (Stage::Proxy, "model.test:443"), "{error:?}");
        assert_eq!(error.proxy(), Some(&*format!("http://127.0.0.1:{port}")));
        assert!(error.source().unwrap().to_string().contains(cause), "{error:?}");
        let shown = format!("{error} {error:?} {builder:?} {:?}", builder.build().unwrap());
        assert!(!shown.contains("hush") && !shown.contains("bWU6"), "{shown}");
    }
}

#[tokio::test]
async fn chosen_proxy_receives_requests_of_its_servers() {
    let (proxy, server) = (Server::start(FINE).await, Server::start(FINE).await);
    let address = proxy.url("").replace("//", "//me:hush@");
    let builder = Client::builder().proxy_by(move |server| match server.host() {
        Some("wrong.test") => Some("socks5://me:hush@127.0.0.1".to_owned()),
        // The server that can be reached directly.
        Some("0.0.0.0") => None,
        _ => Some(address.clone()),
    });
    let client = builder.build().unwrap();
    let direct = format!("http://0.0.0.0:{}/", server.port);
    for url in ["http://model.test/", &direct] {
        assert_eq!(text(client.send(get(url)).await.unwrap()).await, "fine");
    }
    assert_eq!((server.requests().len(), proxy.requests().len()), (1, 1));
    assert!(proxy.requests()[0].contains("proxy-authorization: Basic bWU6aHVzaA==\r\n"));
    let error = client.send(get("https://wrong.test/")).await.unwrap_err();
    assert_eq!(error.stage(), Stage::Proxy);
    assert!(error.source().unwrap().to_string().starts_with("invalid proxy"), "{error:?}");
    let shown = format!("{error:?} {builder:?}");
    assert!(!shown.contains("hush"), "{shown}");
}

#[tokio::test]
async fn remote_proxy_is_not_used_for_this_machine() {
    let server = Server::start(FINE).await;
    // Nothing listens there.
    let client = Client::builder().proxy("http://192.0.2.1:9").build().unwrap();
    assert_eq!(text(client.send(get(&server.url("/"))).await.unwrap()).await, "fine");
    let proxy = Server::start(FINE).await;
    let local = Client::builder().proxy(proxy.url("")).build().unwrap();
    local.send(get(&server.url("/"))).await.unwrap();
    assert_eq!((server.requests().len(), proxy.requests().len()), (1, 1));
}

#[tokio::test]
async fn failures_behind_proxy_name_it() {
    let (acceptor, _) = tls(&["model.test"], &[]);
    let server = Server::secured(acceptor).await;
    let (port, _) = tunnel(server.port, CONNECTED, None).await;
    let silent = Server::start("").await;
    for (port, url, stage) in [
        // The certificate of the server is not trusted.
        (port, "https://model.test/", Stage::Tls),
        // The proxy receives the request, and hangs up.
        (silent.port, "http://model.test/", Stage::Receive),
    ] {
        let proxy = format!("http://me:hush@127.0.0.1:{port}");
        let client = Client::builder().proxy(proxy).build().unwrap();
        let error = client.send(get(url)).await.unwrap_err();
        assert_eq!(error.stage(), stage, "{error:?}");
        assert_eq!(error.proxy(), Some(&*format!("http://127.0.0.1:{port}")));
        assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    }
    assert!(server.requests().is_empty());
}
