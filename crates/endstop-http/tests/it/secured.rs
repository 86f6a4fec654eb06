//! TLS, and HTTP/2, which servers choose in its handshake.

use crate::server::{Server, get, listen, text, tls};
use bytes::Bytes;
use endstop_http::{CertificateError, Certificates, Client, Full, Stage};
use http::{Request, Response, Version};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::error::Error as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

fn trusting(authority: &str) -> Client {
    let certificates = Certificates::from_pem(authority.as_bytes()).unwrap();
    Client::builder().no_proxy().certificates(certificates).build().unwrap()
}

#[tokio::test]
async fn own_authority_must_be_given() {
    let (acceptor, authority) = tls(&["127.0.0.1"], &["http/1.1"]);
    let server = Server::secured(acceptor).await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    let (_, other) = tls(&["127.0.0.1"], &[]);
    for client in [Client::builder().no_proxy().build().unwrap(), trusting(&other)] {
        let error = client.send(get(&url)).await.unwrap_err();
        assert_eq!(error.stage(), Stage::Tls);
        assert!(error.source().unwrap().to_string().contains("certificate"), "{error:?}");
    }
    let pem = |text: &str| Certificates::from_pem(text.as_bytes()).unwrap();
    let both = Client::builder().no_proxy().certificates(pem(&other)).certificates(pem(&authority));
    for client in [trusting(&authority), both.build().unwrap()] {
        assert_eq!(text(client.send(get(&url)).await.unwrap()).await, "fine");
    }
    // A certificate for another name.
    let (acceptor, authority) = tls(&["model.test"], &[]);
    let server = Server::secured(acceptor).await;
    let url = format!("https://127.0.0.1:{}/", server.port);
    assert_eq!(trusting(&authority).send(get(&url)).await.unwrap_err().stage(), Stage::Tls);
}

#[tokio::test]
async fn invalid_certificates_are_refused() {
    let broken = "-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n";
    let error = |pem: &str| Certificates::from_pem(pem.as_bytes()).unwrap_err();
    assert!(matches!(error(broken), CertificateError::Invalid(_)));
    assert_eq!(error(&broken.replace("hush", "!")), CertificateError::Pem);
    assert_eq!(error("hush"), CertificateError::Missing);
}

/// Starts a server that speaks HTTP/2. Returns its port and the number of its connections.
async fn h2_server(acceptor: tokio_rustls::TlsAcceptor) -> (u16, Arc<AtomicUsize>) {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let port = listen(move |_, stream| {
        let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            count.fetch_add(1, Ordering::Relaxed);
            let answer = service_fn(async |request: Request<hyper::body::Incoming>| {
                let seen = format!("{} {:?}", request.uri(), request.headers().get("host"));
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(seen))))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        }
    })
    .await;
    (port, opened)
}

#[tokio::test]
async fn requests_share_connection_of_http2() {
    let (acceptor, authority) = tls(&["localhost"], &["h2", "http/1.1"]);
    let (port, opened) = h2_server(acceptor).await;
    let (client, url) = (trusting(&authority), format!("https://localhost:{port}/v1"));
    let response = client.send(get(&url)).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(text(response).await, format!("{url} None"));
    // A header with the host of the address is left out.
    let mut named = get(&url);
    named.headers_mut().insert("host", format!("localhost:{port}").parse().unwrap());
    assert_eq!(text(client.send(named).await.unwrap()).await, format!("{url} None"));
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let (client, request) = (client.clone(), get(&url));
        requests.spawn(async move { client.send(request).await.unwrap().status() });
    }
    assert!(requests.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn first_requests_at_once_are_all_answered() {
    let (acceptor, authority) = tls(&["localhost"], &["h2"]);
    let (port, _) = h2_server(acceptor).await;
    let (client, url) = (trusting(&authority), format!("https://localhost:{port}/v1"));
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let (client, request) = (client.clone(), get(&url));
        requests.spawn(async move { text(client.send(request).await.unwrap()).await });
    }
    assert_eq!(requests.join_all().await.len(), 20);
}

#[tokio::test]
async fn connection_that_goes_away_is_replaced() {
    let (acceptor, authority) = tls(&["localhost"], &["h2"]);
    let (away, (finish, may_finish)) = (Arc::new(Notify::new()), watch::channel(false));
    let ((tell, mut events), goes_away) = (mpsc::unbounded_channel(), Arc::clone(&away));
    let port = listen(move |number, stream| {
        let (acceptor, away, tell) = (acceptor.clone(), Arc::clone(&goes_away), tell.clone());
        let may_finish = may_finish.clone();
        async move {
            let stream = acceptor.accept(stream).await.unwrap();
            let began = tell.clone();
            let answer = service_fn(move |request: Request<hyper::body::Incoming>| {
                let mut may_finish = may_finish.clone();
                began.send(format!("{} on {number}", request.method())).unwrap();
                async move {
                    may_finish.wait_for(|may| *may).await.unwrap();
                    let number = Bytes::from(number.to_string());
                    Ok::<_, Infallible>(Response::new(Full::new(number)))
                }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
            tokio::select! {
                _ = &mut connection => return,
                () = away.notified() => {}
            }
            if number == 1 {
                // Announces its end, and finishes its requests.
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
            let _ = tell.send(format!("end of {number}"));
        }
    })
    .await;
    let (client, url) = (trusting(&authority), format!("https://localhost:{port}/"));
    let mut next = async || events.recv().await.unwrap();
    let send = |method: &str| {
        let request = Request::builder().method(method).uri(&url).body(Full::<Bytes>::default());
        client.send(request.unwrap())
    };
    let mut requests = JoinSet::new();
    requests.spawn(send("POST"));
    assert_eq!(next().await, "POST on 1");
    away.notify_one();
    finish.send(true).unwrap();
    assert_eq!(text(requests.join_next().await.unwrap().unwrap().unwrap()).await, "1");
    assert_eq!(next().await, "end of 1");
    assert_eq!(text(send("GET").await.unwrap()).await, "2");
    assert_eq!(next().await, "GET on 2");
    // The end of a connection in the middle of a request is an error, because the server has seen it.
    finish.send(false).unwrap();
    requests.spawn(send("POST"));
    assert_eq!(next().await, "POST on 2");
    away.notify_one();
    assert_eq!(next().await, "end of 2");
    let error = requests.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.stage(), Stage::Receive, "{error:?}");
    assert!(events.is_empty(), "sent once");
}
