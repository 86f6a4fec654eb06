//! The way to the upstream: proxies and authorities of the environment.

use super::support::{Conn, Event, GET, Gate, Running, Seen, header, run, upstream};
use endstop_guard::process::Outgoing;
use endstop_guard::proxy::{Disposition, End, ProxyOptions};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

type Heads = Arc<Mutex<Vec<String>>>;

/// Starts a server with TLS that answers each request. Returns its address, the heads of its
/// requests, and the certificate of its authority.
async fn secured(name: &str) -> (SocketAddr, Heads, String) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let leaf = leaf.signed_by(&key, &authority).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let address = upstream(move |conn: Conn| {
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        async move {
            let Ok(mut stream) = acceptor.accept(conn.stream).await else { return };
            let mut head = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                head.push(byte);
                if head.ends_with(b"\r\n\r\n") {
                    let head = String::from_utf8(std::mem::take(&mut head)).expect("text");
                    seen.lock().expect("a lock").push(head);
                    stream.write_all(OK.as_bytes()).await.expect("a write");
                    stream.flush().await.expect("a write");
                }
            }
        }
    })
    .await;
    (address, heads, authority.as_ref().pem())
}

/// Starts a proxy that answers `CONNECT`, and then tunnels to this address. Other requests are
/// answered with [`OK`].
async fn outgoing_proxy(answer: &'static str, to: SocketAddr) -> (SocketAddr, Heads) {
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let address = upstream(move |mut conn: Conn| {
        let seen = Arc::clone(&seen);
        async move {
            let head = conn.head().await;
            let is_tunnel = head.starts_with("CONNECT ");
            seen.lock().expect("a lock").push(head);
            conn.send(if is_tunnel { answer } else { OK }).await;
            if is_tunnel && answer.contains(" 200 ") {
                let mut server = TcpStream::connect(to).await.expect("a connection");
                let _ = copy_bidirectional(&mut conn.stream, &mut server).await;
            }
        }
    })
    .await;
    (address, heads)
}

/// Starts a guard in an environment that calls this URL.
async fn guard(url: &str, environment: &[(&str, String)]) -> (Running, Seen) {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let outgoing = Outgoing::from_environment(&environment.collect()).load();
    assert_eq!(outgoing.warnings, []);
    let (gate, seen) = Gate::new(SocketAddr::from(([127, 0, 0, 1], 1)));
    let url = url.to_owned();
    let gate = gate.deciding(move |_, mut forward| {
        forward.url = url.parse().expect("a URL");
        Disposition::Forward(forward)
    });
    let options = ProxyOptions { outgoing, ..ProxyOptions::default() };
    (gate.start_with(options).await, seen)
}

/// Returns the reason of the next exchange that has no response.
async fn reason(seen: &mut Seen) -> String {
    loop {
        match seen.events.recv().await.expect("an event") {
            Event::End(End::NoResponse { error, .. }) => return error,
            Event::End(end) => panic!("{end:?}"),
            _ => {}
        }
    }
}

fn file(folder: &Path, pem: &str) -> String {
    let path = folder.join("authority.pem");
    std::fs::write(&path, pem).expect("a file");
    path.to_str().expect("text").to_owned()
}

#[test]
fn upstream_is_reached_through_tunnel() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (server, requests, authority) = secured("model.test").await;
        let (proxy, tunnels) = outgoing_proxy("HTTP/1.1 200 Connected\r\n\r\n", server).await;
        let (guard, mut seen) = guard(
            "https://model.test/v1/models",
            &[
                ("HTTPS_PROXY", format!("http://me:swordfish@{proxy}")),
                ("NODE_EXTRA_CA_CERTS", file(folder.path(), &authority)),
            ],
        )
        .await;
        let mut client = guard.client().await;
        for _ in 0..2 {
            client.send("GET /v1/models HTTP/1.1\r\nHost: x\r\nX-API-Key: k\r\n\r\n").await;
            let (head, body) = client.message().await;
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert_eq!(body.expect("a body"), b"ok");
            assert_eq!(seen.end().await, End::Complete);
        }
        let tunnels = tunnels.lock().expect("a lock");
        assert_eq!(tunnels.len(), 1, "{tunnels:?}");
        assert!(tunnels[0].starts_with("CONNECT model.test:443 HTTP/1.1\r\n"), "{tunnels:?}");
        // me:swordfish
        let login = header(&tunnels[0], "proxy-authorization");
        assert_eq!(login.as_deref(), Some("Basic bWU6c3dvcmRmaXNo"));
        assert!(!tunnels[0].contains("/v1"), "{tunnels:?}");
        // With TLS the host comes last, because only a connection with HTTP/1.1 needs it.
        let expected = "GET /v1/models HTTP/1.1\r\nX-API-Key: k\r\nHost: model.test\r\n\r\n";
        assert_eq!(*requests.lock().expect("a lock"), [expected, expected]);
    });
}

#[test]
fn private_authority_must_be_named() {
    run(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (server, requests, authority) = secured("127.0.0.1").await;
        let url = format!("https://{server}/v1/models");
        let (unknowing, mut seen) = guard(&url, &[]).await;
        let mut client = unknowing.client().await;
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 502 "));
        let reason = reason(&mut seen).await;
        assert!(reason.contains("certificate"), "{reason}");
        assert!(requests.lock().expect("a lock").is_empty());

        let names = [("SSL_CERT_FILE", file(folder.path(), &authority))];
        let (knowing, _seen) = guard(&url, &names).await;
        let mut client = knowing.client().await;
        client.send(GET).await;
        assert!(client.head().await.starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn no_proxy_and_loopback_are_called_directly() {
    run(async {
        let direct = upstream(|mut conn: Conn| async move {
            conn.head().await;
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ndirect").await;
        })
        .await;
        let (proxy, heads) = outgoing_proxy("", direct).await;
        let port = direct.port();
        // The address 0.0.0.0 reaches this machine, but is not a loopback address.
        for (host, no_proxy, expected) in [
            ("0.0.0.0", "", &b"ok"[..]),
            ("0.0.0.0", "model.test,0.0.0.0", b"direct"),
            ("127.0.0.1", "", b"direct"),
            ("localhost", "", b"direct"),
        ] {
            let (guard, _seen) = guard(
                &format!("http://{host}:{port}/v1"),
                &[
                    ("HTTP_PROXY", format!("http://me:swordfish@{proxy}")),
                    ("NO_PROXY", no_proxy.to_owned()),
                ],
            )
            .await;
            let mut client = guard.client().await;
            client.send(GET).await;
            let (_, body) = client.message().await;
            assert_eq!(body.as_deref(), Ok(expected), "{host} {no_proxy}");
        }
        let heads = heads.lock().expect("a lock");
        assert_eq!(heads.len(), 1, "{heads:?}");
        assert!(heads[0].starts_with(&format!("GET http://0.0.0.0:{port}/v1 ")), "{heads:?}");
        let login = header(&heads[0], "proxy-authorization");
        assert_eq!(login.as_deref(), Some("Basic bWU6c3dvcmRmaXNo"));
    });
}

#[test]
fn refusing_proxy_is_named_without_password() {
    run(async {
        let refusal = "HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n";
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let (proxy, _heads) = outgoing_proxy(refusal, nowhere).await;
        let (guard, mut seen) = guard(
            "https://model.test/v1",
            &[("ALL_PROXY", format!("http://me:swordfish@{proxy}"))],
        )
        .await;
        let mut client = guard.client().await;
        client.send(GET).await;
        let (head, body) = client.message().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        let reason = reason(&mut seen).await;
        assert!(reason.contains(&format!("(proxy http://{proxy})")), "{reason}");
        assert!(reason.contains("407"), "{reason}");
        let body = String::from_utf8(body.expect("a body")).expect("text");
        for text in [&reason, &body] {
            assert!(!text.contains("swordfish") && !text.contains("bWU6"), "{text}");
        }
    });
}
